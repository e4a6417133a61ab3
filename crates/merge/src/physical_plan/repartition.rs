//! One input task for each repartitioning.
//!
//! Under a memory limit a `RepartitionExec` spills what its readers have not taken yet. When two of
//! its input tasks do so at once, a reader can wait on the older file while the rows it needs are
//! in the newer one, for ever (apache/datafusion issue 24883). With one input task it cannot.
//!
//! ```text
//!   ┌ Hash(N) ┐         ┌ Hash(N) ┐
//!   ├ RoundRobin(N) ┤ ─►│         │        a round-robin only feeds more tasks: it goes
//!   └ scan(1) ┘         └ scan(1) ┘
//!
//!   ┌ Hash(N) ┐         ┌ Hash(N) ┐
//!   │         │ ──────► ├ CoalescePartitions ┤
//!   └ scan(M) ┘         └ scan(M) ┘
//! ```

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::physical_expr::Partitioning;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};

use crate::plan_shape::with_input;

/// `plan` with one input partition for each `RepartitionExec`.
pub(super) fn with_single_inputs(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    // From the top down: a round-robin has gone with the repartitioning above it before its own inputs
    // would be coalesced, and what lies between keeps the partitions of the scan.
    let plan = plan.transform_down(|node| {
        let Some(repartition) = node.downcast_ref::<RepartitionExec>() else {
            return Ok(Transformed::no(node));
        };
        if repartition.input().output_partitioning().partition_count() == 1 {
            return Ok(Transformed::no(node));
        }
        Ok(Transformed::yes(single_input(repartition)?))
    })?;
    Ok(plan.data)
}

/// `repartition`, of several input partitions, on one.
fn single_input(repartition: &RepartitionExec) -> Result<Arc<dyn ExecutionPlan>> {
    let input = Arc::clone(repartition.input());
    let input = match repartition.preserve_order() {
        true => input,
        false => without_lowest_round_robin(input)?,
    };
    let mut single = RepartitionExec::try_new(input, repartition.partitioning().clone())?;
    if repartition.preserve_order() {
        single = single.with_preserve_order();
    }
    Ok(match coalesced(&single)? {
        Some(coalesced) => coalesced,
        None => Arc::new(single),
    })
}

/// `repartition` with its input partitions coalesced, or `None` if it has one.
pub(super) fn coalesced(repartition: &RepartitionExec) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let input = repartition.input();
    if input.output_partitioning().partition_count() == 1 {
        return Ok(None);
    }
    let ordering = match repartition.preserve_order() {
        true => repartition.properties().output_ordering().cloned(),
        false => None,
    };
    let single: Arc<dyn ExecutionPlan> = match ordering {
        Some(ordering) => Arc::new(SortPreservingMergeExec::new(ordering, Arc::clone(input))),
        None => Arc::new(CoalescePartitionsExec::new(Arc::clone(input))),
    };
    let partitioning = repartition.partitioning().clone();
    let repartition = RepartitionExec::try_new(single, partitioning)?;
    Ok(Some(Arc::new(repartition)))
}

/// `plan` without the round-robin that made the partitions it has now, if one did.
fn without_lowest_round_robin(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    if let Some(repartition) = plan.downcast_ref::<RepartitionExec>() {
        return Ok(match repartition.partitioning() {
            Partitioning::RoundRobinBatch(_) => Arc::clone(repartition.input()),
            _ => plan,
        });
    }
    let partitions = plan.output_partitioning().partition_count();
    let children = plan.children();
    let [child] = children[..] else {
        return Ok(plan);
    };
    if child.output_partitioning().partition_count() != partitions {
        return Ok(plan);
    }
    let child = without_lowest_round_robin(Arc::clone(child))?;
    match child.output_partitioning().partition_count() == partitions {
        true => Ok(plan),
        false => with_input(plan, child),
    }
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::{DataType, Field, Schema};
    use datafusion::physical_plan::displayable;
    use datafusion::physical_plan::empty::EmptyExec;
    use datafusion::physical_plan::expressions::{col, lit};
    use datafusion::physical_plan::filter::FilterExec;

    use super::*;

    fn scan(partitions: usize) -> Arc<dyn ExecutionPlan> {
        let schema = Schema::new(vec![Field::new("k", DataType::Int64, false)]);
        Arc::new(EmptyExec::new(Arc::new(schema)).with_partitions(partitions))
    }

    fn filter(input: Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
        Arc::new(FilterExec::try_new(lit(true), input).unwrap())
    }

    fn repartition(input: Arc<dyn ExecutionPlan>, to: Partitioning) -> Arc<dyn ExecutionPlan> {
        Arc::new(RepartitionExec::try_new(input, to).unwrap())
    }

    fn hash(input: Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
        let key = col("k", &input.schema()).unwrap();
        repartition(input, Partitioning::Hash(vec![key], 4))
    }

    /// The names of the operators, from the top down.
    fn names(plan: &Arc<dyn ExecutionPlan>) -> Vec<String> {
        let text = displayable(plan.as_ref()).indent(false).to_string();
        let lines = text
            .lines()
            .map(|line| line.trim().split([':', ' ']).next());
        lines.flatten().map(str::to_owned).collect()
    }

    #[test]
    fn a_round_robin_goes() {
        let plan = hash(filter(repartition(
            scan(1),
            Partitioning::RoundRobinBatch(4),
        )));
        let plan = with_single_inputs(plan).unwrap();
        assert_eq!(names(&plan), ["RepartitionExec", "FilterExec", "EmptyExec"]);
        assert_eq!(plan.output_partitioning().partition_count(), 4);
    }

    #[test]
    fn many_partitions_are_coalesced() {
        let round_robin = repartition(scan(3), Partitioning::RoundRobinBatch(4));
        for plan in [hash(filter(scan(3))), hash(filter(round_robin))] {
            let plan = with_single_inputs(plan).unwrap();
            let expected = [
                "RepartitionExec",
                "CoalescePartitionsExec",
                "FilterExec",
                "EmptyExec",
            ];
            assert_eq!(names(&plan), expected);
        }
    }

    #[test]
    fn hash_upon_hash_keeps_the_lower_one() {
        let plan = with_single_inputs(hash(hash(scan(1)))).unwrap();
        let expected = [
            "RepartitionExec",
            "CoalescePartitionsExec",
            "RepartitionExec",
            "EmptyExec",
        ];
        assert_eq!(names(&plan), expected);
    }

    #[test]
    fn one_partition_stays_as_it_is() {
        let plan = hash(filter(scan(1)));
        let same = with_single_inputs(Arc::clone(&plan)).unwrap();
        assert!(Arc::ptr_eq(&plan, &same));
    }
}
