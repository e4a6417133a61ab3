//! MERGE from outside: real tables, the patched core, an independent oracle.
//!
//! One binary, since each links all of DataFusion.

mod by_source;
mod deletion_vectors;
mod failures;
mod metrics;
mod plan;
mod random;
mod semantics;
mod sizes;
mod strategies;
mod unique_keys;
