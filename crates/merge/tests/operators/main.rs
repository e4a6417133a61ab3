//! The operators as a plan runs them: whole partitions in, whole partitions out.

mod failures;
mod guard;
mod matches;
mod properties;
mod session;
mod validation;
