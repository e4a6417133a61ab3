//! The operators as a plan runs them: whole partitions in, whole partitions out.

mod barrier;
mod failures;
mod guard;
mod joined;
mod matches;
mod nested_loop;
mod properties;
mod session;
mod validation;
