//! The duplicate check: at most one source row acts on a target row.
//!
//! [`plan_validation`] puts [`MergeValidation`] into a logical plan, which becomes
//! [`MergeValidationExec`]. How it checks depends on the plan it stands on ([`strategy`]):
//!
//! ```text
//!   the join streams the target ──► streaming  matches of a target row are neighbours: the last
//!                                              match is all that is remembered
//!   anything else ────────────────► bitmap     hash partitioned by file, so that one partition
//!                                              sees all matches of a target row
//! ```

mod bitmap;
mod exec;
mod groups;
mod logical;
mod strategy;
mod streaming;

pub use exec::MergeValidationExec;
pub use logical::{MergeValidation, plan_validation};
pub(crate) use strategy::Strategy;
