//! The hash join that suits MERGE, where the planner could not know it.
//!
//! The planner weighs bytes, and gives each partition its share of both sides, which copies every
//! row of both. MERGE wants the target streamed, and a source of moderate size taken as it comes:
//!
//! ```text
//!   ┌─────── join (Partitioned) ───────┐          ┌─────── join (CollectLeft) ────────┐
//!   ├ Hash(N) ┤              ├ Hash(N) ┤          ├ CoalescePartitions ┤  ├ RoundRobin(N) ┤
//!   └ source ┘               └ target ┘    ──►    └ source ┘              └ target ┘
//! ```
//!
//! A target row is still in one partition, all its matches together. And the round-robin gives the
//! scan tasks of its own. Without them the join would drive its probe side, which decodes a batch,
//! joins it and decodes the next; and since only ranges of a file with the start of a row group have
//! rows, a file of one row group would keep one partition busy.
//!
//! In a memory pool with a limit the sides are swapped at the most. What all partitions hold together
//! is held until MERGE is through, and a repartitioning takes a share of the pool.

use std::sync::Arc;

use datafusion::common::stats::Precision;
use datafusion::common::{JoinSide, JoinType, Result, Statistics};
use datafusion::execution::memory_pool::MemoryLimit;
use datafusion::physical_expr::Partitioning;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::joins::{HashJoinExec, PartitionMode};
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::statistics::{StatisticsArgs, StatisticsContext};
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};

use crate::plan_shape::{order_preserving_child, target_side, with_input};

/// `plan` with the hash join below it, if one is, fitted to MERGE and to `memory`.
pub(super) fn with_fitted_join(
    plan: Arc<dyn ExecutionPlan>,
    target_column: &str,
    memory: &MemoryLimit,
) -> Result<Arc<dyn ExecutionPlan>> {
    if let Some(child) = order_preserving_child(&plan) {
        let fitted = with_fitted_join(Arc::clone(child), target_column, memory)?;
        return match Arc::ptr_eq(child, &fitted) {
            true => Ok(plan),
            false => with_input(plan, fitted),
        };
    }
    let Some(join) = plan.downcast_ref::<HashJoinExec>() else {
        return Ok(plan);
    };
    if *join.join_type() != JoinType::Full {
        return Ok(plan);
    }
    let (left, right) = (join.left(), join.right());
    let target = target_side(left, right, target_column);
    let unlimited = matches!(memory, MemoryLimit::Infinite);
    match (target, join.partition_mode()) {
        (JoinSide::Left, PartitionMode::Partitioned) if better_held(right, left, memory)? => {
            let swapped = join.swap_inputs(PartitionMode::Partitioned)?;
            with_fitted_join(swapped, target_column, memory)
        }
        (JoinSide::Right, PartitionMode::Partitioned) if unlimited && is_moderate(left)? => {
            with_shared_source(join)
        }
        (JoinSide::Right, PartitionMode::CollectLeft) if unlimited => with_scan_tasks(join),
        _ => Ok(plan),
    }
}

/// Whether to hold the source is known to be better than to hold the target, as the planner wants.
///
/// The planner compares bytes: those of the target's files, compressed, with those of a source in
/// memory. Where the source has no more rows and not many times the bytes, to stream the target
/// takes less memory and time; where matches are checked, it spares the bitmaps and the rows that
/// wait. The number of source rows has to be known, not estimated, since the join holds them then.
fn better_held(
    source: &Arc<dyn ExecutionPlan>,
    target: &Arc<dyn ExecutionPlan>,
    memory: &MemoryLimit,
) -> Result<bool> {
    let (source, target) = (statistics(source)?, statistics(target)?);
    let fewer_rows = match (&source.num_rows, target.num_rows.get_value()) {
        (Precision::Exact(source), Some(target)) => source <= target,
        _ => false,
    };
    let target_bytes = target.total_byte_size.get_value();
    let as_wide = match (source.total_byte_size.get_value(), target_bytes) {
        (Some(source), Some(target)) => {
            let fits = match memory {
                MemoryLimit::Finite(bytes) => source < bytes,
                MemoryLimit::Infinite | MemoryLimit::Unknown => true,
            };
            fits && source / COMPRESSION <= *target
        }
        _ => false,
    };
    Ok(fewer_rows && as_wide)
}

/// Whether the source is known to be of a size that one task may build the hash table of, and that
/// one batch may hold: offsets into its strings have 31 bits.
fn is_moderate(source: &Arc<dyn ExecutionPlan>) -> Result<bool> {
    let statistics = statistics(source)?;
    let bytes = statistics.total_byte_size.get_value();
    Ok(bytes.is_some_and(|bytes| bytes.saturating_mul(COMPRESSION) <= i32::MAX as usize))
}

/// How many times smaller than in memory rows may be in their files.
const COMPRESSION: usize = 8;

fn statistics(plan: &Arc<dyn ExecutionPlan>) -> Result<Arc<Statistics>> {
    StatisticsContext::new().compute(plan.as_ref(), &StatisticsArgs::new())
}

/// `join`, whose build side is the source, with that side shared by all partitions.
fn with_shared_source(join: &HashJoinExec) -> Result<Arc<dyn ExecutionPlan>> {
    let partitions = join.right().output_partitioning().partition_count();
    let mut source = without_hash(join.left());
    if source.output_partitioning().partition_count() > 1 {
        source = Arc::new(CoalescePartitionsExec::new(source));
    }
    let target = with_tasks(without_hash(join.right()), partitions)?;
    rebuild(join, source, target)
}

/// `join`, which drives its probe side, with tasks that do.
fn with_scan_tasks(join: &HashJoinExec) -> Result<Arc<dyn ExecutionPlan>> {
    let partitions = join.right().output_partitioning().partition_count();
    let target = with_tasks(Arc::clone(join.right()), partitions)?;
    rebuild(join, Arc::clone(join.left()), target)
}

fn rebuild(
    join: &HashJoinExec,
    source: Arc<dyn ExecutionPlan>,
    target: Arc<dyn ExecutionPlan>,
) -> Result<Arc<dyn ExecutionPlan>> {
    join.builder()
        .with_partition_mode(PartitionMode::CollectLeft)
        .with_new_children(vec![source, target])?
        .recompute_properties()
        .build_exec()
}

/// What `plan` repartitions by hash, or `plan` itself.
fn without_hash(plan: &Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
    match plan.downcast_ref::<RepartitionExec>() {
        Some(repartition) if matches!(repartition.partitioning(), Partitioning::Hash(..)) => {
            Arc::clone(repartition.input())
        }
        _ => Arc::clone(plan),
    }
}

/// `plan` in as many partitions, the rows of which come from tasks of their own.
fn with_tasks(plan: Arc<dyn ExecutionPlan>, partitions: usize) -> Result<Arc<dyn ExecutionPlan>> {
    let is_split = plan.output_partitioning().partition_count() == partitions;
    if partitions == 1 || is_split && has_repartitioning(&plan) {
        return Ok(plan);
    }
    let partitioning = Partitioning::RoundRobinBatch(partitions);
    Ok(Arc::new(RepartitionExec::try_new(plan, partitioning)?))
}

fn has_repartitioning(plan: &Arc<dyn ExecutionPlan>) -> bool {
    plan.is::<RepartitionExec>() || plan.children().into_iter().any(has_repartitioning)
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::{DataType, Field, Schema};
    use datafusion::common::NullEquality;
    use datafusion::physical_plan::displayable;
    use datafusion::physical_plan::empty::EmptyExec;
    use datafusion::physical_plan::expressions::col;

    use super::*;

    const PARTITIONS: usize = 3;

    fn scan(column: &str, partitions: usize) -> Arc<dyn ExecutionPlan> {
        let schema = Schema::new(vec![Field::new(column, DataType::Int64, false)]);
        Arc::new(EmptyExec::new(Arc::new(schema)).with_partitions(partitions))
    }

    fn hash(input: Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
        let key = col(input.schema().field(0).name(), &input.schema()).unwrap();
        let partitioning = Partitioning::Hash(vec![key], PARTITIONS);
        Arc::new(RepartitionExec::try_new(input, partitioning).unwrap())
    }

    fn join(
        left: Arc<dyn ExecutionPlan>,
        right: Arc<dyn ExecutionPlan>,
        mode: PartitionMode,
    ) -> Arc<dyn ExecutionPlan> {
        let key = |side: &Arc<dyn ExecutionPlan>| {
            let schema = side.schema();
            col(schema.field(0).name(), &schema).unwrap()
        };
        let on = vec![(key(&left), key(&right))];
        let nulls = NullEquality::NullEqualsNothing;
        let join = HashJoinExec::try_new(
            left,
            right,
            on,
            None,
            &JoinType::Full,
            None,
            mode,
            nulls,
            false,
        );
        Arc::new(join.unwrap())
    }

    /// The fitted plan, an operator on each line, and its number of partitions.
    fn fitted(plan: Arc<dyn ExecutionPlan>) -> (String, usize) {
        let columns = plan.schema();
        let plan = with_fitted_join(plan, "target", &MemoryLimit::Infinite).unwrap();
        assert_eq!(plan.schema(), columns);
        let partitions = plan.output_partitioning().partition_count();
        let text = displayable(plan.as_ref()).indent(false).to_string();
        (text.replace(", on=[(source@0, target@0)]", ""), partitions)
    }

    const HELD_ONCE: &str = "\
HashJoinExec: mode=CollectLeft, join_type=Full
  CoalescePartitionsExec
    EmptyExec
  RepartitionExec: partitioning=RoundRobinBatch(3), input_partitions=2
    EmptyExec
";

    #[test]
    fn all_partitions_hold_the_source_together() {
        let (source, target) = (hash(scan("source", 2)), hash(scan("target", 2)));
        let plan = join(source, target, PartitionMode::Partitioned);
        assert_eq!(fitted(plan), (HELD_ONCE.to_owned(), PARTITIONS));
    }

    /// Both are known to have no rows, so to hold the source takes no more than to hold the target.
    #[test]
    fn a_target_that_is_no_smaller_is_streamed() {
        let (source, target) = (hash(scan("source", 2)), hash(scan("target", 2)));
        let plan = join(target, source, PartitionMode::Partitioned);
        let (plan, partitions) = fitted(plan);
        let (reordered, join) = plan.split_once('\n').unwrap();
        assert!(reordered.starts_with("ProjectionExec"), "{plan}");
        assert_eq!(join.replace("\n  ", "\n").trim_start(), HELD_ONCE);
        assert_eq!(partitions, PARTITIONS);
    }

    #[test]
    fn a_round_robin_that_is_there_is_enough() {
        let round_robin = Partitioning::RoundRobinBatch(PARTITIONS);
        let target = RepartitionExec::try_new(scan("target", 1), round_robin).unwrap();
        let (source, target) = (scan("source", 1), Arc::new(target) as _);
        let partitioned = join(
            hash(Arc::clone(&source)),
            hash(Arc::clone(&target)),
            PartitionMode::Partitioned,
        );
        let collected = join(source, target, PartitionMode::CollectLeft);
        assert_eq!(fitted(partitioned), fitted(Arc::clone(&collected)));
        let (plan, _) = fitted(collected);
        assert_eq!(plan.matches("RepartitionExec").count(), 1, "{plan}");
    }

    #[test]
    fn the_scan_below_a_shared_source_gets_tasks() {
        let (source, target) = (scan("source", 1), scan("target", PARTITIONS));
        let (plan, partitions) = fitted(join(source, target, PartitionMode::CollectLeft));
        let tasks = "RepartitionExec: partitioning=RoundRobinBatch(3), input_partitions=3";
        assert!(plan.contains(tasks), "{plan}");
        assert_eq!(partitions, PARTITIONS);
    }

    #[test]
    fn a_target_that_all_partitions_hold_stays_as_it_is() {
        let plan = join(
            scan("target", 1),
            scan("source", PARTITIONS),
            PartitionMode::CollectLeft,
        );
        let same = with_fitted_join(Arc::clone(&plan), "target", &MemoryLimit::Infinite).unwrap();
        assert!(Arc::ptr_eq(&plan, &same));
    }

    #[test]
    fn in_a_limited_pool_the_sides_are_swapped_at_the_most() {
        let limit = MemoryLimit::Finite(1);
        let (source, target) = (hash(scan("source", 2)), hash(scan("target", 2)));
        let streamed = join(
            Arc::clone(&source),
            Arc::clone(&target),
            PartitionMode::Partitioned,
        );
        let same = with_fitted_join(Arc::clone(&streamed), "target", &limit).unwrap();
        assert!(Arc::ptr_eq(&streamed, &same));

        let held = join(target, source, PartitionMode::Partitioned);
        let swapped = with_fitted_join(Arc::clone(&held), "target", &limit).unwrap();
        let plan = displayable(swapped.as_ref()).indent(false).to_string();
        assert!(plan.contains("mode=Partitioned"), "{plan}");
        let (source, target) = (plan.find("Hash([source"), plan.find("Hash([target"));
        assert!(source < target, "{plan}");

        // No room for a byte.
        let same = with_fitted_join(Arc::clone(&held), "target", &MemoryLimit::Finite(0)).unwrap();
        assert!(Arc::ptr_eq(&held, &same));
    }
}
