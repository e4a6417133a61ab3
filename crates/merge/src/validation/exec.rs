//! The operator.

use std::fmt;
use std::sync::{Arc, OnceLock};

use arrow::datatypes::SchemaRef;
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

use super::ValidationOptions;
use super::validator::Validator;
use crate::columns::MatchColumns;
use crate::deferred::DeferredLimit;
use crate::metrics::ValidationMetrics;

/// Checks that at most one source row acts on a target row, and passes each target row once.
///
/// Input and output have the same columns. Rows that are no match pass as they come; so does the
/// match that acts on its target row. A match that no clause acts on waits until the input ends.
/// The order of the rows is not kept.
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
    options: ValidationOptions,
    /// Shared by the partitions, made by the first that runs, which knows the memory pool.
    limit: OnceLock<Arc<DeferredLimit>>,
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
            options: ValidationOptions::default(),
            limit: OnceLock::new(),
            metrics: ExecutionPlanMetricsSet::new(),
            properties: Arc::new(properties),
        }
    }

    /// Sets how to run it.
    pub fn with_options(mut self, options: ValidationOptions) -> Self {
        self.options = options;
        self
    }
}

impl DisplayAs for MergeValidationExec {
    fn fmt_as(&self, format: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        match format {
            DisplayFormatType::Default | DisplayFormatType::Verbose => {
                write!(f, "MergeValidationExec: file={}", self.file_expr)?;
                if let Some(limit) = self.options.deferred_rows_memory_limit {
                    write!(f, ", deferred_rows_memory_limit={limit}")?;
                }
                Ok(())
            }
            DisplayFormatType::TreeRender => write!(f, "file={}", self.file_expr),
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
        let by_file = Distribution::KeyPartitioned(vec![Arc::clone(&self.file_expr)]);
        InputDistributionRequirements::new(vec![by_file])
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
        let exec = Self::new(
            children.swap_remove(0),
            Arc::clone(&self.file_expr),
            Arc::clone(&self.file_column),
            Arc::clone(&self.row_ordinal_column),
        );
        Ok(Arc::new(exec.with_options(self.options)))
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
        let limit = self.limit.get_or_init(|| {
            let user = self.options.deferred_rows_memory_limit;
            Arc::new(DeferredLimit::new(user, context.memory_pool().as_ref()))
        });
        let schema: SchemaRef = self.schema();
        let validator = Validator::new(
            partition,
            self.input.execute(partition, Arc::clone(&context))?,
            MatchColumns::try_new(&schema, &self.file_column, &self.row_ordinal_column)?,
            Arc::clone(limit),
            ValidationMetrics::new(&self.metrics, partition),
            &context,
        );
        Ok(validator.into_stream(schema))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}
