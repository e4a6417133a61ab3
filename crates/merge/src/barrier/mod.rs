//! The barrier: files in which nothing changes are not written again.
//!
//! [`MergeBarrier`] becomes [`MergeBarrierExec`]. Its partitions share which files are open
//! ([`files`]) and wait for each other at the end of their input ([`rendezvous`]), because a row
//! that opens a file may be in any of them:
//!
//! ```text
//!   partition 0 ──► stream ──┐            ┌──► rows of open files
//!   partition 1 ──► stream ──┼── rendez- ─┼──►
//!   partition 2 ──► stream ──┘    vous    └──►
//!                     │  ▲
//!                     ▼  │ once a batch
//!                  SharedFiles
//! ```

mod exec;
mod files;
mod held;
mod logical;
mod rendezvous;
mod stream;
mod sync;

pub use exec::MergeBarrierExec;
pub use logical::MergeBarrier;
