//! Questions that are asked of physical plans, and small changes to them.

use std::sync::Arc;

use datafusion::common::{JoinSide, Result};
use datafusion::physical_expr::Partitioning;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::{ChildrenPropertiesMode, ExecutionPlan, ReplaceChildrenOptions};

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

/// The child of `node`, if its rows leave in their order and in their partition.
///
/// A round-robin does not keep them; it counts because [`without_round_robin`] takes it out.
pub(crate) fn order_preserving_child(
    node: &Arc<dyn ExecutionPlan>,
) -> Option<&Arc<dyn ExecutionPlan>> {
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

/// The side that has a column `target_column`, if only one has.
pub(crate) fn target_side(
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
