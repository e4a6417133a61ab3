//! The operator.

use std::fmt;
use std::sync::Arc;

use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result, assert_eq_or_internal_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::execution_plan::EmissionType;
use datafusion::physical_plan::metrics::{ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::{
    ChildrenPropertiesMode, DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties,
    PlanProperties, ReplaceChildrenOptions, apply_expression_roots,
};

use super::files::SharedFiles;
use super::rendezvous::Rendezvous;
use super::stream::BarrierStream;
use crate::columns::ChangeColumns;
use crate::deferred::DeferredLimit;
use crate::error::MergeError;
use crate::metrics::OperatorMetrics;

/// Holds back the rows of a file until one of them changes, and drops those of files that stay as
/// they are.
///
/// Input and output have the same columns; the order of the rows is not kept. The partitions share
/// what they know of the files, so the input may be partitioned in any way. They wait for each
/// other at the end, so all of them have to run at once. It runs once.
///
/// # Errors
///
/// A stream ends with [`MergeError::Spill`] when rows fit neither in memory nor on disk. When a
/// partition fails or is dropped the others end early, and [`Self::changed_files`] is an error.
pub struct MergeBarrierExec {
    input: Arc<dyn ExecutionPlan>,
    file_column: Arc<String>,
    file_expr: Arc<dyn PhysicalExpr>,
    limit: Arc<DeferredLimit>,
    files: Arc<SharedFiles>,
    rendezvous: Rendezvous,
    metrics: ExecutionPlanMetricsSet,
    properties: Arc<PlanProperties>,
}

impl MergeBarrierExec {
    /// Holds back rows of `input`, whose columns [`crate::columns`] describes.
    ///
    /// `file_column` is the name of the column with the file of the target row, `file_expr` the
    /// same as an expression.
    pub fn new(
        input: Arc<dyn ExecutionPlan>,
        file_column: Arc<String>,
        file_expr: Arc<dyn PhysicalExpr>,
    ) -> Self {
        let partitioning = input.output_partitioning().clone();
        let partitions = partitioning.partition_count();
        let properties = PlanProperties::new(
            // Rows that were held come later: no ordering of the input holds for the output.
            EquivalenceProperties::new(input.schema()),
            partitioning,
            EmissionType::Both,
            input.boundedness(),
        );
        Self {
            input,
            file_column,
            file_expr,
            limit: Arc::default(),
            files: Arc::default(),
            rendezvous: Rendezvous::new(partitions),
            metrics: ExecutionPlanMetricsSet::new(),
            properties: Arc::new(properties),
        }
    }

    pub(crate) fn with_limit(mut self, limit: Arc<DeferredLimit>) -> Self {
        self.limit = limit;
        self
    }

    /// The same barrier on another input, whose columns are the same.
    pub(crate) fn on(&self, input: Arc<dyn ExecutionPlan>, limit: &Arc<DeferredLimit>) -> Self {
        let (file_column, file_expr) = (&self.file_column, &self.file_expr);
        let exec = Self::new(input, Arc::clone(file_column), Arc::clone(file_expr));
        exec.with_limit(Arc::clone(limit))
    }

    /// The files in which a row was inserted, updated or deleted, as the scan names them, once
    /// all partitions have run to their end.
    ///
    /// # Errors
    ///
    /// [`MergeError::Incomplete`] when a partition has not.
    pub fn changed_files(&self) -> Result<Vec<String>> {
        match self.rendezvous.is_complete() {
            true => Ok(self.files.opened()),
            false => Err(MergeError::Incomplete.into()),
        }
    }
}

impl fmt::Debug for MergeBarrierExec {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.debug_struct("MergeBarrierExec")
            .field("input", &self.input)
            .field("file_column", &self.file_column)
            .finish_non_exhaustive()
    }
}

impl DisplayAs for MergeBarrierExec {
    fn fmt_as(&self, format: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        match format {
            DisplayFormatType::Default | DisplayFormatType::Verbose => {
                write!(f, "MergeBarrierExec: file={}", self.file_expr)?;
                self.limit.fmt_as(f)
            }
            DisplayFormatType::TreeRender => write!(f, "file={}", self.file_expr),
        }
    }
}

impl ExecutionPlan for MergeBarrierExec {
    fn name(&self) -> &str {
        Self::static_name()
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
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
        assert_eq_or_internal_err!(children.len(), 1, "MergeBarrierExec takes one input");
        Ok(Arc::new(self.on(children.swap_remove(0), &self.limit)))
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
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        apply_expression_roots([&self.file_expr], f)
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        // Taken first: an input that does not start breaks the rendezvous.
        let seat = self.rendezvous.seat(partition);
        let stream = BarrierStream::new(
            partition,
            self.input.execute(partition, Arc::clone(&context))?,
            ChangeColumns::try_new(&self.schema(), &self.file_column)?,
            Arc::clone(&self.files),
            seat,
            Arc::clone(&self.limit),
            OperatorMetrics::new(&self.metrics, partition),
            &context,
        );
        Ok(stream.into_stream())
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}
