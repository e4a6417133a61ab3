//! The last word on MERGE's physical plan.
//!
//! What is sound depends on what the optimizer has chosen, which the planner of a node cannot
//! know. So [`finish`] looks at the plan when all rules are through with it:
//!
//! ```text
//!   as planned                      the join streams the target     it does not
//!
//!   MergeValidation (bitmap)        MergeBarrier                    MergeValidation (bitmap)
//!     Repartition (by file)           MergeValidation (streaming)     Repartition (by file)
//!       MergeBarrier                    join                            MergeBarrier
//!         join                                                            join
//! ```
//!
//! [`place`] does so. Where the keys are declared unique there is no check to place. A hash join is
//! fitted in both cases ([`join`]).
//!
//! Where the memory pool has a limit, no repartitioning may wait for itself ([`repartition`]) and no
//! nested-loop join may start over ([`read_once`]).

mod join;
mod place;
mod read_once;
mod repartition;

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::execution::TaskContext;
use datafusion::execution::memory_pool::{MemoryLimit, MemoryPool};
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::{ExecutionPlan, displayable};

use crate::MergeOptions;
use crate::barrier::MergeBarrierExec;
use crate::deferred::DeferredLimit;
pub use crate::plan_shape::find_node;
use crate::unique::SourceKeyGuardExec;
use crate::validation::MergeValidationExec;

/// Fits MERGE's physical plan to what the optimizer has made of it, and to the session's memory.
///
/// The plan that results is logged at level DEBUG.
///
/// # Errors
///
/// Those of rebuilding a plan, none of its own.
pub fn finish(
    plan: Arc<dyn ExecutionPlan>,
    options: &MergeOptions,
    context: &TaskContext,
) -> Result<Arc<dyn ExecutionPlan>> {
    let pool = context.memory_pool();
    let user = options.deferred_rows_memory_limit;
    let limit = Arc::new(DeferredLimit::new(user, pool.as_ref()));
    let plan = plan.transform_up(|node| {
        if let Some(barrier) = node.downcast_ref::<MergeBarrierExec>() {
            let input = Arc::clone(barrier.children()[0]);
            return Ok(Transformed::yes(Arc::new(barrier.on(input, &limit)) as _));
        }
        if let Some(guard) = node.downcast_ref::<SourceKeyGuardExec>() {
            return Ok(Transformed::yes(place::guard(guard, pool.memory_limit())?));
        }
        match node.downcast_ref::<MergeValidationExec>() {
            Some(validation) => Ok(Transformed::yes(place::validation(
                validation,
                pool.memory_limit(),
                &limit,
            )?)),
            None => Ok(Transformed::no(node)),
        }
    })?;
    let plan = match is_limited(pool.as_ref()) {
        true => read_once::with_build_sides_read_once(repartition::with_single_inputs(plan.data)?)?,
        false => plan.data,
    };
    tracing::debug!(plan = %displayable(plan.as_ref()).indent(false), "MERGE runs this plan");
    Ok(plan)
}

/// Coalesces what MERGE's writer repartitions, where the memory pool has a limit.
///
/// `plan` is what the writer is about to run. Plans of other operations stay as they are.
///
/// # Errors
///
/// Those of rebuilding a plan, none of its own.
pub fn finish_write(
    plan: Arc<dyn ExecutionPlan>,
    context: &TaskContext,
) -> Result<Arc<dyn ExecutionPlan>> {
    let Some(repartition) = plan.downcast_ref::<RepartitionExec>() else {
        return Ok(plan);
    };
    if !is_limited(context.memory_pool().as_ref()) || !plan.exists(|node| Ok(is_merge(node)))? {
        return Ok(plan);
    }
    // What is below has been handed out already, and is asked for what it has measured: it stays.
    Ok(repartition::coalesced(repartition)?.unwrap_or(plan))
}

fn is_merge(node: &Arc<dyn ExecutionPlan>) -> bool {
    node.is::<MergeBarrierExec>()
}

/// Whether a consumer can be refused, for all that is known.
fn is_limited(pool: &dyn MemoryPool) -> bool {
    !matches!(pool.memory_limit(), MemoryLimit::Infinite)
}
