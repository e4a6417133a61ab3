//! What the operators measured, per operator for `EXPLAIN ANALYZE` and as totals of one MERGE.

use std::sync::Arc;

use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::display::DisplayableExecutionPlan;
use datafusion::physical_plan::metrics::{
    BaselineMetrics, Count, ExecutionPlanMetricsSet, Gauge, MetricBuilder, MetricsSet, SpillMetrics,
};

use crate::barrier::MergeBarrierExec;
use crate::validation::MergeValidationExec;

const ROWS_CHECKED: &str = "rows_checked";
const ROWS_DEFERRED: &str = "rows_deferred";
const PEAK_MEMORY: &str = "peak_memory";

/// Metrics of one partition of [`MergeValidationExec`] or [`MergeBarrierExec`].
#[derive(Debug, Clone)]
pub(crate) struct OperatorMetrics {
    pub(crate) baseline: BaselineMetrics,
    pub(crate) spill: SpillMetrics,
    /// Matched rows that were checked, whatever their class; the barrier checks none.
    pub(crate) rows_checked: Count,
    /// Rows that had to wait until their fate was known.
    pub(crate) rows_deferred: Count,
    /// Bytes reserved at the most.
    pub(crate) peak_memory: Gauge,
}

impl OperatorMetrics {
    pub(crate) fn new(metrics: &ExecutionPlanMetricsSet, partition: usize) -> Self {
        Self {
            baseline: BaselineMetrics::new(metrics, partition),
            spill: SpillMetrics::new(metrics, partition),
            rows_checked: MetricBuilder::new(metrics).counter(ROWS_CHECKED, partition),
            rows_deferred: MetricBuilder::new(metrics).counter(ROWS_DEFERRED, partition),
            peak_memory: MetricBuilder::new(metrics).peak_memory_usage(PEAK_MEMORY, partition),
        }
    }
}

/// Totals over all operators of this crate in one executed plan.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MergeTotals {
    /// Matched rows that went through the duplicate check.
    pub rows_checked: usize,
    /// Rows that had to wait until their fate was known.
    pub rows_deferred: usize,
    /// Spill files written.
    pub spill_files: usize,
    /// Bytes written to spill files.
    pub spilled_bytes: usize,
    /// Bytes reserved in the memory pool: the peaks of all partitions, added up.
    pub peak_memory_bytes: usize,
}

impl MergeTotals {
    /// Adds up what the operators below `plan` measured.
    ///
    /// The plan, with the metrics of every operator, is logged at level DEBUG.
    pub fn of(plan: &Arc<dyn ExecutionPlan>) -> Self {
        let with_metrics = DisplayableExecutionPlan::with_metrics(plan.as_ref());
        tracing::debug!(plan = %with_metrics.indent(false), "MERGE ran this plan");
        let mut totals = Self::default();
        totals.visit(plan);
        totals
    }

    fn visit(&mut self, plan: &Arc<dyn ExecutionPlan>) {
        if (plan.is::<MergeValidationExec>() || plan.is::<MergeBarrierExec>())
            && let Some(metrics) = plan.metrics()
        {
            self.add(&metrics);
        }
        for child in plan.children() {
            self.visit(child);
        }
    }

    fn add(&mut self, metrics: &MetricsSet) {
        let sum = |name| metrics.sum_by_name(name).map_or(0, |sum| sum.as_usize());
        self.rows_checked += sum(ROWS_CHECKED);
        self.rows_deferred += sum(ROWS_DEFERRED);
        self.spill_files += metrics.spill_count().unwrap_or(0);
        self.spilled_bytes += metrics.spilled_bytes().unwrap_or(0);
        self.peak_memory_bytes += sum(PEAK_MEMORY);
    }
}
