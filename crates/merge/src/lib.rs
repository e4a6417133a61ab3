//! Operators that make MERGE on Delta Lake fit in memory.
//!
//! The patched `deltalake-core` plans MERGE as a full join of source and target, classes every row
//! that leaves it, and hands the rest to the operators here:
//!
//! ```text
//!        source                     target
//!           │                          │ rows read, counted by the core
//!           └──────► FULL JOIN ◄───────┘
//!                        │ one row per match, per source row alone, per target row alone;
//!                        │ the core adds: file, ordinal in the file, match class
//!          ┌─────────────┴──────────────────────────┐
//!          │ source keys declared unique            │ otherwise
//!          ▼                                        │
//!   SourceKeyGuard  rows joined = rows read?        │
//!          │        bounded by: two counters        │
//!          └─────────────┬──────────────────────────┘
//!                        ▼ hash by file
//!              barrier of the core   drops the rows of files in which nothing changes
//!                        │
//!          ┌─────────────┴──────────────────────────┐
//!          │                                        ▼
//!          │                              MergeValidation   at most one source row acts on a
//!          │                                        │       target row, and each target row
//!          │                                        │       leaves once
//!          │                                        │  bounded by: MatchState, three bitmaps per
//!          │                                        │  file, reserved and spilled; DeferredRows,
//!          │                                        │  reserved and spilled
//!          └─────────────┬──────────────────────────┘
//!                        ▼
//!                      write
//! ```
//!
//! This crate depends on DataFusion and Arrow alone, never on `deltalake-core`: [`columns`] is the
//! contract between the two.

pub mod columns;
mod deferred;
mod error;
mod match_state;
mod metrics;
mod options;
pub mod unique;
pub mod validation;

pub use deferred::DEFAULT_DEFERRED_ROWS_MEMORY_LIMIT;
pub use error::MergeError;
pub use metrics::MergeTotals;
pub use options::MergeOptions;
