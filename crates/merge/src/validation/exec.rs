//! The operator.

use std::fmt;
use std::sync::Arc;

use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result, assert_eq_or_internal_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{Distribution, EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::execution_plan::EmissionType;
use datafusion::physical_plan::metrics::{ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::{
    ChildrenPropertiesMode, DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties,
    InputDistributionRequirements, PlanProperties, ReplaceChildrenOptions, apply_expression_roots,
};

use super::bitmap::BitmapValidator;
use super::strategy::Strategy;
use super::streaming::StreamingValidator;
use crate::columns::MatchColumns;
use crate::deferred::DeferredLimit;
use crate::metrics::OperatorMetrics;

/// Checks that at most one source row acts on a target row, and passes each target row once.
///
/// Input and output have the same columns; the order of the rows is not kept. Rows that are no
/// match pass as they come, and so does the match that acts on its target row. A match that no
/// clause acts on waits. With the streaming strategy, where all matches of a target row come one
/// after the other, it waits for the next match; with bitmaps, for the end of the input.
/// [`finish`](crate::physical_plan::finish) decides which of the two is sound.
///
/// # Errors
///
/// The stream ends with [`MergeError::DuplicateMatch`](crate::MergeError::DuplicateMatch), or with
/// [`MergeError::Spill`](crate::MergeError::Spill) when rows fit neither in memory nor on disk.
#[derive(Debug)]
pub struct MergeValidationExec {
    input: Arc<dyn ExecutionPlan>,
    file_expr: Arc<dyn PhysicalExpr>,
    file_column: Arc<String>,
    row_ordinal_column: Arc<String>,
    strategy: Strategy,
    limit: Arc<DeferredLimit>,
    metrics: ExecutionPlanMetricsSet,
    properties: Arc<PlanProperties>,
}

impl MergeValidationExec {
    /// Checks the rows of `input`, whose columns [`crate::columns`] describes.
    ///
    /// `file_expr` is the file of a row as an expression, `file_column` and `row_ordinal_column`
    /// are the names of the columns with the file and the ordinal of its target row.
    pub fn new(
        input: Arc<dyn ExecutionPlan>,
        file_expr: Arc<dyn PhysicalExpr>,
        file_column: Arc<String>,
        row_ordinal_column: Arc<String>,
    ) -> Self {
        let properties = PlanProperties::new(
            // Deferred rows come last: no ordering of the input holds for the output.
            EquivalenceProperties::new(input.schema()),
            input.output_partitioning().clone(),
            EmissionType::Both,
            input.boundedness(),
        );
        Self {
            input,
            file_expr,
            file_column,
            row_ordinal_column,
            strategy: Strategy::Bitmap {
                why: "nothing is known of the plan below".to_owned(),
            },
            limit: Arc::default(),
            metrics: ExecutionPlanMetricsSet::new(),
            properties: Arc::new(properties),
        }
    }

    pub(crate) fn with_strategy(mut self, strategy: Strategy, limit: Arc<DeferredLimit>) -> Self {
        self.strategy = strategy;
        self.limit = limit;
        self
    }

    /// Name of the column with the file of the target row.
    pub(crate) fn file_column(&self) -> &Arc<String> {
        &self.file_column
    }

    /// Name of the column with the ordinal of the target row in its file.
    pub(crate) fn row_ordinal_column(&self) -> &str {
        &self.row_ordinal_column
    }

    /// The same check on another input, whose columns are the same.
    pub(crate) fn on(&self, input: Arc<dyn ExecutionPlan>) -> Self {
        let exec = Self::new(
            input,
            Arc::clone(&self.file_expr),
            Arc::clone(&self.file_column),
            Arc::clone(&self.row_ordinal_column),
        );
        exec.with_strategy(self.strategy.clone(), Arc::clone(&self.limit))
    }
}

impl DisplayAs for MergeValidationExec {
    fn fmt_as(&self, format: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        match format {
            DisplayFormatType::Default | DisplayFormatType::Verbose => {
                let (file, strategy) = (&self.file_expr, &self.strategy);
                write!(f, "MergeValidationExec: file={file}, strategy={strategy}")?;
                match &self.strategy {
                    Strategy::Streaming { .. } => Ok(()),
                    Strategy::Bitmap { .. } => self.limit.fmt_as(f),
                }
            }
            DisplayFormatType::TreeRender => write!(f, "strategy={}", self.strategy),
        }
    }
}

impl ExecutionPlan for MergeValidationExec {
    fn name(&self) -> &str {
        Self::static_name()
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn required_input_distribution(&self) -> Vec<Distribution> {
        self.input_distribution_requirements().into_per_child()
    }

    fn input_distribution_requirements(&self) -> InputDistributionRequirements {
        let distribution = match &self.strategy {
            Strategy::Streaming { .. } => Distribution::UnspecifiedDistribution,
            Strategy::Bitmap { .. } => {
                Distribution::KeyPartitioned(vec![Arc::clone(&self.file_expr)])
            }
        };
        InputDistributionRequirements::new(vec![distribution])
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
        assert_eq_or_internal_err!(children.len(), 1, "MergeValidationExec takes one input");
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
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        apply_expression_roots([&self.file_expr], f)
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let input = self.input.execute(partition, Arc::clone(&context))?;
        let columns =
            MatchColumns::try_new(&self.schema(), &self.file_column, &self.row_ordinal_column)?;
        let metrics = OperatorMetrics::new(&self.metrics, partition);
        Ok(match &self.strategy {
            Strategy::Streaming { .. } => {
                StreamingValidator::new(partition, input, columns, metrics, &context).into_stream()
            }
            Strategy::Bitmap { .. } => {
                let limit = Arc::clone(&self.limit);
                BitmapValidator::new(partition, input, columns, limit, metrics, &context)
                    .into_stream()
            }
        })
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}
