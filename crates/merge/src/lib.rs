//! Operators that make MERGE on Delta Lake fit in memory.
//!
//! The patched `deltalake-core` plans MERGE as a full join of source and target and classes every
//! row that leaves it. What becomes of these rows is decided here:
//!
//! ```text
//!        source                     target
//!           │                          │ rows read, counted by the core
//!           └──────► FULL JOIN ◄───────┘
//!                        │ one row per match, per source row alone, per target row alone;
//!                        │ the core adds: file, ordinal in the file, what becomes of it
//!        ┌───────────────┼──────────────────────────────┐
//!        │ keys declared │ the join streams the target  │ any other join
//!        │ unique        ▼                              ▼
//!        │         MergeValidation (streaming)     MergeBarrier
//!        ▼           one match is remembered        hash by file
//!   SourceKeyGuard       │                         MergeValidation (bitmap)
//!     two counters       │                           MatchState, three bitmaps per file;
//!        │               │                           DeferredRows
//!        └────────►  MergeBarrier                       │
//!                      DeferredRows of files            │
//!                      that are closed so far           │
//!                        │                              │
//!                        └──────────► write ◄───────────┘
//! ```
//!
//! [`validation`] sees to it that at most one source row acts on a target row and that each target
//! row leaves once, [`barrier`] drops the rows of files in which nothing changes, [`unique`] stands
//! in for the first where source keys are declared unique. Which of the three shapes it is,
//! [`physical_plan`] decides. MatchState and DeferredRows are reserved in the session's memory pool
//! and go to disk when it refuses; all else is bounded by a batch, and by the number of files.
//!
//! This crate depends on DataFusion and Arrow alone, never on `deltalake-core`: [`columns`] is the
//! contract between the two.

pub mod barrier;
pub mod columns;
mod deferred;
mod emitter;
mod error;
mod files;
mod match_state;
mod metrics;
mod options;
mod payload;
pub mod physical_plan;
mod plan_shape;
mod reservation;
mod slices;
pub mod unique;
pub mod validation;

pub use deferred::DEFAULT_DEFERRED_ROWS_MEMORY_LIMIT;
pub use error::MergeError;
pub use metrics::MergeTotals;
pub use options::MergeOptions;
