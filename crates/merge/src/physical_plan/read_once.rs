//! An input that is read once.
//!
//! A nested-loop join without room for its build side starts over, from disk: it executes that
//! side a second time. What was read from a stream, or went through a repartitioning, cannot be
//! read again, and the join that starts over loses rows of the other side (DataFusion 55.2: those
//! without a match, when the build side takes more than one pass). So it is not let to.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{JoinType, Result, assert_eq_or_internal_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::joins::NestedLoopJoinExec;
use datafusion::physical_plan::{
    ChildrenPropertiesMode, DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties,
    ReplaceChildrenOptions,
};

use crate::error::MergeError;

/// `plan` with nested-loop joins that do not start over when their build side does not fit.
pub(super) fn with_build_sides_read_once(
    plan: Arc<dyn ExecutionPlan>,
) -> Result<Arc<dyn ExecutionPlan>> {
    let plan = plan.transform_up(|node| {
        let Some(join) = node.downcast_ref::<NestedLoopJoinExec>() else {
            return Ok(Transformed::no(node));
        };
        // MERGE plans no other, and one in the user's source would lose rows, too.
        if *join.join_type() != JoinType::Full {
            return Ok(Transformed::no(node));
        }
        let left = Arc::new(ReadOnceExec::new(Arc::clone(join.left())));
        let children = vec![left as _, Arc::clone(join.right())];
        let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
        Ok(Transformed::yes(node.replace_children(children, options)?))
    })?;
    Ok(plan.data)
}

/// Passes partition 0 of its input, once.
///
/// # Errors
///
/// [`MergeError::BuildSideTooLarge`] when it is executed a second time.
#[derive(Debug)]
pub(super) struct ReadOnceExec {
    input: Arc<dyn ExecutionPlan>,
    was_read: AtomicBool,
}

impl ReadOnceExec {
    pub(super) fn new(input: Arc<dyn ExecutionPlan>) -> Self {
        Self {
            input,
            was_read: AtomicBool::new(false),
        }
    }
}

impl DisplayAs for ReadOnceExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("ReadOnceExec")
    }
}

impl ExecutionPlan for ReadOnceExec {
    fn name(&self) -> &str {
        Self::static_name()
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.input.properties()
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn replace_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
        _options: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        assert_eq_or_internal_err!(children.len(), 1, "ReadOnceExec takes one input");
        Ok(Arc::new(Self::new(children.swap_remove(0))))
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
        self.replace_children(children, options)
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        assert_eq_or_internal_err!(partition, 0, "ReadOnceExec has one partition");
        if self.was_read.swap(true, Ordering::Relaxed) {
            return Err(MergeError::BuildSideTooLarge.into());
        }
        self.input.execute(partition, context)
    }
}
