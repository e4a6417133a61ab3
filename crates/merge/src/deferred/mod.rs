//! Rows whose fate is not known yet.
//!
//! The duplicate check and the barrier hold rows back until they know whether these belong in the
//! result. Whatever is more than a batch waits here, so this is the place that bounds it.
//!
//! ```text
//!   push(batch, mask)
//!        │ filter, compact to full batches: no view into a larger parent stays alive
//!        ▼
//!   ┌──────────┐ full  ┌──────────┐   refused by the pool, or over the limit
//!   │ building ├──────►│ buffered ├──────────────────────────┐
//!   └──────────┘ batch └─┬──────┬─┘                          ▼
//!     reserved           │ re-  │                 ┌─────────────────────┐
//!                        │served│                 │ a run on disk: all  │
//!   sweep()  ◄───────────┘      │                 │ that was held       │
//!     leaves, or is kept        │                 └──────────┬──────────┘
//!                               │                            │ only runs that hold a row
//!   replay():  first ◄──────────┘ released batch by batch    │ of a file that is wanted
//!              then  ◄───────────────────────────────────────┘ read once, front to back
//! ```
//!
//! # Limits
//!
//! Rows are held in memory while the session's memory pool grants the reservation and all
//! partitions of the MERGE together stay within the limit: the user's, else
//! [`DEFAULT_DEFERRED_ROWS_MEMORY_LIMIT`] where the pool has none of its own. Past either,
//! everything held is written to disk and the reservation is given back. From then on all partitions
//! together hold 32 MiB at the most between two writes. What a push adds is reserved right after it
//! is compacted, so that the exact size is known: one batch at most is unreserved, for an instant.
//!
//! A run grows to DataFusion's `datafusion.execution.max_spill_file_size_bytes`, however many
//! data files the table has, so there are few.

mod limit;
mod replay;
mod rows;
mod runs;

use arrow::datatypes::SchemaRef;

pub use limit::DEFAULT_DEFERRED_ROWS_MEMORY_LIMIT;
pub(crate) use limit::DeferredLimit;
pub(crate) use replay::Replay;
pub(crate) use rows::DeferredRows;

/// What the rows that are stored look like.
#[derive(Debug, Clone)]
pub(crate) struct Stored {
    pub(crate) schema: SchemaRef,
    /// Position of the column with the number of a row's data file.
    pub(crate) file_column: usize,
}
