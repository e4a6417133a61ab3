//! The count guard.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use arrow::array::{Array, RecordBatch};
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{DFSchemaRef, Result, assert_eq_or_internal_err, internal_datafusion_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{Expr, Extension, LogicalPlan, UserDefinedLogicalNodeCore};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    ChildrenPropertiesMode, DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties,
    PlanProperties, ReplaceChildrenOptions,
};
use futures::{StreamExt, stream};

use crate::error::MergeError;

/// Finds in a plan that ran how many rows the scan of the target produced.
pub type RowsRead = fn(&Arc<dyn ExecutionPlan>) -> Option<usize>;

/// Passes its input, the rows that leave MERGE's join, and fails at its end if a target row was
/// among them more than once.
#[derive(Debug, PartialEq, Eq, Hash, PartialOrd)]
pub struct SourceKeyGuard {
    /// The rows that leave the join.
    pub input: LogicalPlan,
    /// Column that is not NULL in rows with a target side.
    pub target_column: String,
    /// The source columns that were declared unique together.
    pub keys: Vec<String>,
}

/// Puts the guard above `input`, the rows that leave the join.
///
/// `target_column` is not NULL in rows with a target side, `keys` were declared unique.
pub fn plan_guard(input: LogicalPlan, target_column: &str, keys: &[String]) -> LogicalPlan {
    let node = Arc::new(SourceKeyGuard {
        input,
        target_column: target_column.to_owned(),
        keys: keys.to_vec(),
    });
    LogicalPlan::Extension(Extension { node })
}

impl UserDefinedLogicalNodeCore for SourceKeyGuard {
    fn name(&self) -> &str {
        "SourceKeyGuard"
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        vec![&self.input]
    }

    fn schema(&self) -> &DFSchemaRef {
        self.input.schema()
    }

    fn expressions(&self) -> Vec<Expr> {
        vec![]
    }

    fn fmt_for_explain(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "SourceKeyGuard: keys=[{}]", self.keys.join(", "))
    }

    fn with_exprs_and_inputs(&self, _: Vec<Expr>, mut inputs: Vec<LogicalPlan>) -> Result<Self> {
        assert_eq_or_internal_err!(inputs.len(), 1, "SourceKeyGuard takes one input");
        Ok(Self {
            input: inputs.swap_remove(0),
            target_column: self.target_column.clone(),
            keys: self.keys.clone(),
        })
    }
}

/// The operator of [`SourceKeyGuard`].
///
/// # Errors
///
/// The stream of the partition that ends last ends with
/// [`MergeError::SourceKeysNotUnique`] if the counts differ.
pub struct SourceKeyGuardExec {
    input: Arc<dyn ExecutionPlan>,
    target_column: String,
    keys: Vec<String>,
    rows_read: RowsRead,
    /// Rows with a target side, over all partitions.
    joined: Arc<AtomicU64>,
    /// Partitions whose input has not ended.
    running: Arc<AtomicUsize>,
}

impl SourceKeyGuardExec {
    /// Runs `guard` on `input`; `rows_read` is asked about `input` when all of it has been read.
    pub fn new(guard: &SourceKeyGuard, input: Arc<dyn ExecutionPlan>, rows_read: RowsRead) -> Self {
        let (target_column, keys) = (guard.target_column.clone(), guard.keys.clone());
        Self::with_parts(input, target_column, keys, rows_read)
    }

    fn with_parts(
        input: Arc<dyn ExecutionPlan>,
        target_column: String,
        keys: Vec<String>,
        rows_read: RowsRead,
    ) -> Self {
        let partitions = input.output_partitioning().partition_count();
        Self {
            input,
            target_column,
            keys,
            rows_read,
            joined: Arc::new(AtomicU64::new(0)),
            running: Arc::new(AtomicUsize::new(partitions)),
        }
    }

    /// The same guard on another input, whose columns are the same.
    pub(crate) fn on(&self, input: Arc<dyn ExecutionPlan>) -> Self {
        let (target_column, keys) = (self.target_column.clone(), self.keys.clone());
        Self::with_parts(input, target_column, keys, self.rows_read)
    }

    pub(crate) fn target_column(&self) -> &str {
        &self.target_column
    }
}

impl fmt::Debug for SourceKeyGuardExec {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.debug_struct("SourceKeyGuardExec")
            .field("keys", &self.keys)
            .field("joined", &self.joined)
            .finish_non_exhaustive()
    }
}

impl DisplayAs for SourceKeyGuardExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "SourceKeyGuardExec: keys=[{}]", self.keys.join(", "))
    }
}

impl ExecutionPlan for SourceKeyGuardExec {
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
        assert_eq_or_internal_err!(children.len(), 1, "SourceKeyGuardExec takes one input");
        Ok(Arc::new(self.on(children.swap_remove(0))))
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
        let schema = self.schema();
        let counter = Counter {
            stream: self.input.execute(partition, context)?,
            target: schema.index_of(&self.target_column)?,
            plan: Arc::clone(&self.input),
            rows_read: self.rows_read,
            keys: self.keys.join(", "),
            joined: Arc::clone(&self.joined),
            running: Arc::clone(&self.running),
        };
        let batches = stream::try_unfold(counter, |mut counter| async move {
            let batch = counter.next().await?;
            Ok(batch.map(|batch| (batch, counter)))
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, batches)))
    }
}

/// One partition of the guard.
struct Counter {
    stream: SendableRecordBatchStream,
    target: usize,
    plan: Arc<dyn ExecutionPlan>,
    rows_read: RowsRead,
    keys: String,
    joined: Arc<AtomicU64>,
    running: Arc<AtomicUsize>,
}

impl Counter {
    async fn next(&mut self) -> Result<Option<RecordBatch>> {
        let batch = self.stream.next().await.transpose()?;
        match &batch {
            Some(batch) => {
                let target = batch.column(self.target);
                let rows = batch.num_rows() - target.logical_null_count();
                self.joined.fetch_add(rows as u64, Ordering::Relaxed);
            }
            // The last to end sees the counts of the others.
            None if self.running.fetch_sub(1, Ordering::AcqRel) == 1 => self.compare()?,
            None => {}
        }
        Ok(batch)
    }

    fn compare(&self) -> Result<()> {
        let read = (self.rows_read)(&self.plan)
            .ok_or_else(|| internal_datafusion_err!("the plan does not count target rows"))?;
        let (read, joined) = (read as u64, self.joined.load(Ordering::Acquire));
        if read == joined {
            return Ok(());
        }
        let keys = self.keys.clone();
        Err(MergeError::SourceKeysNotUnique { keys, read, joined }.into())
    }
}
