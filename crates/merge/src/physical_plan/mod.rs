//! The last word on MERGE's physical plan.
//!
//! What is sound depends on what the optimizer has chosen, which the planner of a node cannot
//! know. So [`finish`] looks at the plan when all rules are through with it:
//!
//! ```text
//!   as planned                      the join streams the target     it does not
//!
//!   MergeValidation (bitmap)        MergeBarrier                    MergeValidation (bitmap)
//!     Repartition (by file)           MergeValidation (streaming)     Repartition (by file)
//!       MergeBarrier                    join                            MergeBarrier
//!         join                                                            join
//! ```
//!
//! and, where the memory pool has a limit, sees to it that no repartitioning can wait for itself
//! ([`repartition`]) and that no nested-loop join starts over ([`read_once`]).

mod read_once;
mod repartition;

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{JoinType, Result};
use datafusion::execution::TaskContext;
use datafusion::execution::memory_pool::{MemoryLimit, MemoryPool};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_plan::joins::NestedLoopJoinExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::{
    ChildrenPropertiesMode, ExecutionPlan, ReplaceChildrenOptions, displayable,
};

use self::read_once::ReadOnceExec;
use crate::MergeOptions;
use crate::barrier::MergeBarrierExec;
use crate::deferred::DeferredLimit;
use crate::validation::{
    MergeValidationExec, Strategy, with_target_streaming, without_round_robin,
};

/// Fits MERGE's physical plan to what the optimizer has made of it, and to the session's memory.
///
/// The plan that results is logged at level DEBUG.
///
/// # Errors
///
/// Those of rebuilding a plan, none of its own.
pub fn finish(
    plan: Arc<dyn ExecutionPlan>,
    options: &MergeOptions,
    context: &TaskContext,
) -> Result<Arc<dyn ExecutionPlan>> {
    let pool = context.memory_pool();
    let user = options.deferred_rows_memory_limit;
    let limit = Arc::new(DeferredLimit::new(user, pool.as_ref()));
    let plan = plan.transform_up(|node| {
        if let Some(barrier) = node.downcast_ref::<MergeBarrierExec>() {
            let input = Arc::clone(barrier.children()[0]);
            return Ok(Transformed::yes(Arc::new(barrier.on(input, &limit)) as _));
        }
        match node.downcast_ref::<MergeValidationExec>() {
            Some(validation) => Ok(Transformed::yes(place_validation(validation, &limit)?)),
            None => Ok(Transformed::no(node)),
        }
    })?;
    let plan = match is_limited(pool.as_ref()) {
        true => with_build_sides_read_once(repartition::with_single_inputs(plan.data)?)?,
        false => plan.data,
    };
    tracing::debug!(plan = %displayable(plan.as_ref()).indent(false), "MERGE runs this plan");
    Ok(plan)
}

/// Coalesces what MERGE's writer repartitions, where the memory pool has a limit.
///
/// `plan` is what the writer is about to run. Plans of other operations stay as they are.
///
/// # Errors
///
/// Those of rebuilding a plan, none of its own.
pub fn finish_write(
    plan: Arc<dyn ExecutionPlan>,
    context: &TaskContext,
) -> Result<Arc<dyn ExecutionPlan>> {
    let Some(repartition) = plan.downcast_ref::<RepartitionExec>() else {
        return Ok(plan);
    };
    if !is_limited(context.memory_pool().as_ref()) || !plan.exists(|node| Ok(is_merge(node)))? {
        return Ok(plan);
    }
    // What is below has been handed out already, and is asked for what it has measured: it stays.
    Ok(repartition::coalesced(repartition)?.unwrap_or(plan))
}

fn is_merge(node: &Arc<dyn ExecutionPlan>) -> bool {
    node.is::<MergeBarrierExec>()
}

/// Whether a consumer can be refused.
fn is_limited(pool: &dyn MemoryPool) -> bool {
    !matches!(pool.memory_limit(), MemoryLimit::Infinite)
}

/// Decides how to check, and moves the check below the barrier where the join is to be directly
/// below it.
fn place_validation(
    validation: &MergeValidationExec,
    limit: &Arc<DeferredLimit>,
) -> Result<Arc<dyn ExecutionPlan>> {
    let checked = |input, strategy| -> Arc<dyn ExecutionPlan> {
        let exec = validation.on(input);
        Arc::new(exec.with_strategy(strategy, Arc::clone(limit)))
    };
    let input = validation.children()[0];
    // In between are the projection that classes matches, and the hash by file.
    let mut projections = Vec::new();
    let mut node = input;
    while node.is::<ProjectionExec>() || node.is::<RepartitionExec>() {
        if node.is::<ProjectionExec>() {
            projections.push(Arc::clone(node));
        }
        node = node.children()[0];
    }
    let barrier = node.downcast_ref::<MergeBarrierExec>();
    let joined = barrier.map_or(node, |barrier| barrier.children()[0]);
    let ordinal = validation.row_ordinal_column();
    let joined = with_target_streaming(Arc::clone(joined), ordinal)?;
    let strategy = Strategy::of(&joined, ordinal);
    if let Strategy::Bitmap { .. } = strategy {
        return Ok(checked(Arc::clone(input), strategy));
    }
    let mut plan = without_round_robin(joined)?;
    for projection in projections.into_iter().rev() {
        plan = with_input(projection, plan)?;
    }
    let plan = checked(plan, strategy);
    if barrier.is_none() {
        return Ok(plan);
    }
    let file = validation.file_column();
    let file_expr = Column::new_with_schema(file, &plan.schema())?;
    let barrier = MergeBarrierExec::new(plan, Arc::clone(file), Arc::new(file_expr));
    Ok(Arc::new(barrier.with_limit(Arc::clone(limit))))
}

/// `plan` with nested-loop joins that do not start over when their build side does not fit.
fn with_build_sides_read_once(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    let plan = plan.transform_up(|node| {
        let Some(join) = node.downcast_ref::<NestedLoopJoinExec>() else {
            return Ok(Transformed::no(node));
        };
        // MERGE plans no other; joins in the user's source are not its business.
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

/// The first operator of type `T` in `plan`, from the top down.
pub fn find_node<T: ExecutionPlan>(
    plan: &Arc<dyn ExecutionPlan>,
) -> Option<Arc<dyn ExecutionPlan>> {
    if plan.is::<T>() {
        return Some(Arc::clone(plan));
    }
    plan.children().into_iter().find_map(find_node::<T>)
}

/// `plan`, which has one child, on `input` instead.
pub(crate) fn with_input(
    plan: Arc<dyn ExecutionPlan>,
    input: Arc<dyn ExecutionPlan>,
) -> Result<Arc<dyn ExecutionPlan>> {
    let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
    plan.replace_children(vec![input], options)
}
