//! How the check is done, as the plan below it allows.
//!
//! A hash join takes its probe side row by row, a sort-merge join its streamed side: all matches of
//! a row leave before those of the next row of that partition, and rows that match nothing only
//! lie between them or at the end. So where that side is the target, the matches of a target row
//! are neighbours. Operators that keep order and partition keep them so.

use std::fmt;
use std::sync::Arc;

use datafusion::common::stats::Precision;
use datafusion::common::{JoinSide, JoinType, Result, Statistics};
use datafusion::physical_expr::Partitioning;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::{HashJoinExec, PartitionMode, SortMergeJoinExec};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::statistics::{StatisticsArgs, StatisticsContext};

use crate::physical_plan::with_input;

/// How the check is done, and why it can or has to be done so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Strategy {
    /// Matches of a target row come one after the other: the last match is all there is to know.
    Streaming { why: String },
    /// They come in any order: bitmaps of all target rows, partitioned by file.
    Bitmap { why: String },
}

impl Strategy {
    /// What is sound for rows that leave `plan`, with `target_column` a column of the target.
    pub(crate) fn of(plan: &Arc<dyn ExecutionPlan>, target_column: &str) -> Self {
        let mut node = plan;
        while let Some(child) = order_preserving_child(node) {
            node = child;
        }
        if let Some(join) = node.downcast_ref::<HashJoinExec>() {
            let name = HashJoinExec::static_name();
            // Auto is settled by the optimizer; where it is not, either side may be the build side.
            let probe = match join.partition_mode() {
                PartitionMode::Partitioned | PartitionMode::CollectLeft => JoinSide::Right,
                PartitionMode::Auto => JoinSide::None,
            };
            let target = target_side(join.left(), join.right(), target_column);
            return Self::of_join(target, probe, "probe", "build", name);
        }
        if let Some(join) = node.downcast_ref::<SortMergeJoinExec>() {
            let name = SortMergeJoinExec::static_name();
            let streamed = SortMergeJoinExec::probe_side(&join.join_type());
            let target = target_side(join.left(), join.right(), target_column);
            return Self::of_join(target, streamed, "streamed", "buffered", name);
        }
        Self::Bitmap {
            why: format!(
                "{} does not keep the matches of a row together",
                node.name()
            ),
        }
    }

    fn of_join(
        target: JoinSide,
        streamed: JoinSide,
        streamed_name: &str,
        held_name: &str,
        join: &str,
    ) -> Self {
        match (target, streamed) {
            (JoinSide::None, _) | (_, JoinSide::None) => Self::Bitmap {
                why: format!("the side of the target in {join} is not known"),
            },
            _ if target == streamed => Self::Streaming {
                why: format!("the target is the {streamed_name} side of {join}"),
            },
            _ => Self::Bitmap {
                why: format!("the target is the {held_name} side of {join}"),
            },
        }
    }
}

impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Self::Streaming { why } => write!(f, "streaming ({why})"),
            Self::Bitmap { why } => write!(f, "bitmap ({why})"),
        }
    }
}

/// The child of `node`, if its rows leave in their order and in their partition.
///
/// A round-robin does not keep them; it counts because [`without_round_robin`] takes it out.
fn order_preserving_child(node: &Arc<dyn ExecutionPlan>) -> Option<&Arc<dyn ExecutionPlan>> {
    let preserves = node.is::<ProjectionExec>()
        || node.is::<FilterExec>()
        || node.is::<CooperativeExec>()
        || is_round_robin(node);
    preserves.then(|| node.children()[0])
}

fn is_round_robin(node: &Arc<dyn ExecutionPlan>) -> bool {
    node.downcast_ref::<RepartitionExec>()
        .is_some_and(|repartition| {
            matches!(repartition.partitioning(), Partitioning::RoundRobinBatch(_))
        })
}

/// `plan` without round-robins between its top and the join, or whatever else ends the chain of
/// order-preserving nodes: they would part the matches of a target row.
pub(crate) fn without_round_robin(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    let Some(child) = order_preserving_child(&plan).cloned() else {
        return Ok(plan);
    };
    let child = without_round_robin(child)?;
    match is_round_robin(&plan) {
        true => Ok(child),
        false => with_input(plan, child),
    }
}

/// `plan` with a hash join that streams the target, if the planner made it hold the target although
/// that is no smaller than the source.
///
/// The planner compares bytes: those of the target's files, compressed, with those of a source in
/// memory. Where the source has no more rows and not many times the bytes, to stream the target
/// spares the bitmaps and the rows that wait. The number of source rows has to be known, not
/// estimated, since the join holds them then. A target so small that all partitions hold it
/// together stays as it is.
pub(crate) fn with_target_streaming(
    plan: Arc<dyn ExecutionPlan>,
    target_column: &str,
) -> Result<Arc<dyn ExecutionPlan>> {
    if let Some(child) = order_preserving_child(&plan) {
        let streaming = with_target_streaming(Arc::clone(child), target_column)?;
        return match Arc::ptr_eq(child, &streaming) {
            true => Ok(plan),
            false => with_input(plan, streaming),
        };
    }
    let Some(join) = plan.downcast_ref::<HashJoinExec>() else {
        return Ok(plan);
    };
    let holds_target = *join.partition_mode() == PartitionMode::Partitioned
        && *join.join_type() == JoinType::Full
        && target_side(join.left(), join.right(), target_column) == JoinSide::Left;
    if !holds_target {
        return Ok(plan);
    }
    let (target, source) = (statistics(join.left())?, statistics(join.right())?);
    let fewer_rows = match (target.num_rows.get_value(), &source.num_rows) {
        (Some(target), Precision::Exact(source)) => source <= target,
        _ => false,
    };
    let target_bytes = target.total_byte_size.get_value().copied();
    let as_wide = match (target_bytes, source.total_byte_size.get_value()) {
        (Some(target), Some(source)) => *source / COMPRESSION <= target,
        _ => false,
    };
    match fewer_rows && as_wide {
        true => join.swap_inputs(PartitionMode::Partitioned),
        false => Ok(plan),
    }
}

/// How many times smaller than in memory the target may be in its files.
const COMPRESSION: usize = 8;

fn statistics(plan: &Arc<dyn ExecutionPlan>) -> Result<Arc<Statistics>> {
    StatisticsContext::new().compute(plan.as_ref(), &StatisticsArgs::new())
}

/// The side that has a column `target_column`, if only one has.
fn target_side(
    left: &Arc<dyn ExecutionPlan>,
    right: &Arc<dyn ExecutionPlan>,
    target_column: &str,
) -> JoinSide {
    let has = |side: &Arc<dyn ExecutionPlan>| side.schema().index_of(target_column).is_ok();
    match (has(left), has(right)) {
        (true, false) => JoinSide::Left,
        (false, true) => JoinSide::Right,
        _ => JoinSide::None,
    }
}
