//! The duplicate check: at most one source row acts on a target row.
//!
//! [`plan_validation`] puts [`MergeValidation`] into a logical plan, which becomes
//! [`MergeValidationExec`]. Its input is hash partitioned by file, so that one partition sees all
//! matches of a target row, and each partition runs one [`Validator`](validator::Validator).

mod emitter;
mod exec;
mod groups;
mod logical;
mod payload;
mod validator;

pub use exec::MergeValidationExec;
pub use logical::{MergeValidation, ValidationOptions, plan_validation, with_options};
