//! Declared source keys: when the promise is enough to skip the duplicate check, and the guard
//! that catches a false one.
//!
//! *The source is unique by these columns* is not yet *at most one source row matches a target
//! row*. [`check_keys`] decides, before anything runs, whether the one follows from the other.
//! [`SourceKeyGuard`] counts, while the merge runs, whether the promise was kept: a full join
//! emits each target row once for each source row that matches it, and once if none does, so with
//! at most one match for each, as many rows with a target side leave the join as were read.

mod guard;
mod keys;
mod lossless;

pub use guard::{RowsRead, SourceKeyGuard, SourceKeyGuardExec, plan_guard};
pub use keys::check_keys;
