//! Where in the plan a check goes, and what the join below it becomes.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::execution::memory_pool::MemoryLimit;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::repartition::RepartitionExec;

use super::join;
use crate::barrier::MergeBarrierExec;
use crate::deferred::DeferredLimit;
use crate::plan_shape::{with_input, without_round_robin};
use crate::unique::SourceKeyGuardExec;
use crate::validation::{MergeValidationExec, Strategy};

/// Decides how to check, and moves the check below the barrier where the join is to be directly
/// below it.
pub(super) fn validation(
    validation: &MergeValidationExec,
    memory: MemoryLimit,
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
    let joined = join::with_fitted_join(Arc::clone(joined), ordinal, &memory)?;
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

/// Fits the join below `guard` to rows of which none is compared with its neighbours.
pub(super) fn guard(
    guard: &SourceKeyGuardExec,
    memory: MemoryLimit,
) -> Result<Arc<dyn ExecutionPlan>> {
    let input = Arc::clone(guard.children()[0]);
    let input = join::with_fitted_join(input, guard.target_column(), &memory)?;
    Ok(Arc::new(guard.on(input)))
}
