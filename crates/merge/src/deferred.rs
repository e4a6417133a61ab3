//! Rows whose fate is not known yet.
//!
//! A matched row that no clause acts on is written only if no other source row acts on the same
//! target row, which is known when the input ends. Until then it waits here. This is the one
//! place that holds payload, so it is the one place that bounds it.
//!
//! ```text
//!   push(batch, mask)
//!        │ filter, compact to full batches: no view into a larger parent stays alive
//!        ▼
//!   ┌──────────┐ full  ┌──────────┐   refused by the pool, or over the limit
//!   │ building ├──────►│ buffered ├──────────────────────────┐
//!   └──────────┘ batch └────┬─────┘                          ▼
//!     reserved     reserved │                     ┌─────────────────────┐
//!                           │                     │ spill pool: all     │
//!                           │                     │ that was held       │
//!                           │                     └──────────┬──────────┘
//!   replay():  first ◄──────┘ released batch by batch        │
//!              then  ◄───────────────────────────────────────┘ read once, front to back
//! ```
//!
//! # Limits
//!
//! Rows are held in memory while the session's memory pool grants the reservation and all
//! partitions of the MERGE together stay within the limit, [`DEFAULT_DEFERRED_ROWS_MEMORY_LIMIT`]
//! or the user's. Past either, everything held is written to disk and the reservation is given
//! back. What a push adds is reserved right after it is compacted, so that the exact size is
//! known: one batch at most is unreserved, for an instant.
//!
//! On disk there is one file at a time until it reaches DataFusion's
//! `datafusion.execution.max_spill_file_size_bytes`, however many data files the table has.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow::array::{BooleanArray, RecordBatch};
use arrow::compute::BatchCoalescer;
use arrow::datatypes::SchemaRef;
use datafusion::common::{Result, exec_datafusion_err};
use datafusion::execution::memory_pool::{
    MemoryConsumer, MemoryLimit, MemoryPool, MemoryReservation,
};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::metrics::SpillMetrics;
use datafusion::physical_plan::spill::SpillManager;
use datafusion::physical_plan::spill::spill_pool::{self, SpillPoolSink};
use futures::StreamExt;

use crate::error::MergeError;

/// Limit of deferred rows in memory when the user sets none and the memory pool is unbounded.
pub const DEFAULT_DEFERRED_ROWS_MEMORY_LIMIT: usize = 128 * 1024 * 1024;

/// How many bytes of deferred rows one MERGE may hold in memory, over all its partitions.
#[derive(Debug)]
pub(crate) struct DeferredLimit {
    /// Bytes, or `None` where the memory pool alone decides.
    limit: Option<usize>,
    used: AtomicUsize,
}

impl DeferredLimit {
    /// The limit the user set, else [`DEFAULT_DEFERRED_ROWS_MEMORY_LIMIT`] in a pool without a
    /// limit of its own.
    pub(crate) fn new(user: Option<usize>, pool: &dyn MemoryPool) -> Self {
        let limit = user.or(match pool.memory_limit() {
            MemoryLimit::Finite(_) => None,
            MemoryLimit::Infinite | MemoryLimit::Unknown => {
                Some(DEFAULT_DEFERRED_ROWS_MEMORY_LIMIT)
            }
        });
        Self {
            limit,
            used: AtomicUsize::new(0),
        }
    }

    fn try_grow(&self, bytes: usize) -> bool {
        let limit = self.limit.unwrap_or(usize::MAX);
        self.used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
                used.checked_add(bytes).filter(|used| *used <= limit)
            })
            .is_ok()
    }

    fn shrink(&self, bytes: usize) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// A share of [`DeferredLimit`] and of the memory pool, always of the same size.
#[derive(Debug)]
struct Share {
    limit: Arc<DeferredLimit>,
    reservation: MemoryReservation,
}

impl Share {
    fn size(&self) -> usize {
        self.reservation.size()
    }

    /// Resizes to `bytes`, or changes nothing and returns false.
    fn try_resize(&self, bytes: usize) -> bool {
        let size = self.size();
        if bytes <= size {
            self.reservation.shrink(size - bytes);
            self.limit.shrink(size - bytes);
            return true;
        }
        let more = bytes - size;
        if !self.limit.try_grow(more) {
            return false;
        }
        let granted = self.reservation.try_grow(more).is_ok();
        if !granted {
            self.limit.shrink(more);
        }
        granted
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.limit.shrink(self.size());
    }
}

/// Holds rows until the input ends, in memory or on disk. See the module's documentation.
pub(crate) struct DeferredRows {
    building: BatchCoalescer,
    buffered: VecDeque<RecordBatch>,
    buffered_bytes: usize,
    share: Share,
    spill_manager: Arc<SpillManager>,
    max_spill_file_size: usize,
    spilled: Option<Spilled>,
}

/// The rows on disk: one end writes until the replay begins, the other reads from then on.
struct Spilled {
    sink: SpillPoolSink,
    stream: SendableRecordBatchStream,
    rows: usize,
}

impl DeferredRows {
    pub(crate) fn new(
        name: String,
        schema: SchemaRef,
        limit: Arc<DeferredLimit>,
        metrics: SpillMetrics,
        context: &TaskContext,
    ) -> Self {
        let config = context.session_config();
        let reservation = MemoryConsumer::new(name)
            .with_can_spill(true)
            .register(context.memory_pool());
        let spill_manager = SpillManager::new(context.runtime_env(), metrics, Arc::clone(&schema))
            .with_compression_type(config.spill_compression());
        Self {
            building: BatchCoalescer::new(schema, config.batch_size()),
            buffered: VecDeque::new(),
            buffered_bytes: 0,
            share: Share { limit, reservation },
            spill_manager: Arc::new(spill_manager),
            max_spill_file_size: config.options().execution.max_spill_file_size_bytes.into(),
            spilled: None,
        }
    }

    /// Adds the rows of `batch` that `mask` selects.
    ///
    /// # Errors
    ///
    /// [`MergeError::Spill`] when the rows do not fit in memory and can not be written to disk.
    pub(crate) fn push(&mut self, batch: RecordBatch, mask: &BooleanArray) -> Result<()> {
        self.building.push_batch_with_filter(batch, mask)?;
        self.take_completed();
        if !self.share.try_resize(self.size()) {
            self.spill()?;
        }
        Ok(())
    }

    /// Bytes reserved.
    pub(crate) fn memory(&self) -> usize {
        self.share.size()
    }

    /// Writes all rows held in memory to disk and gives their memory back.
    ///
    /// # Errors
    ///
    /// [`MergeError::Spill`] when the disk refuses.
    pub(crate) fn spill(&mut self) -> Result<()> {
        self.building.finish_buffered_batch()?;
        self.take_completed();
        if self.buffered.is_empty() {
            return Ok(());
        }
        let spilled = self.spilled.get_or_insert_with(|| {
            let manager = Arc::clone(&self.spill_manager);
            let (sink, stream) = spill_pool::spsc_channel(self.max_spill_file_size, manager);
            Spilled {
                sink,
                stream,
                rows: 0,
            }
        });
        while let Some(batch) = self.buffered.pop_front() {
            let written = spilled.sink.push_batch(&batch);
            written.map_err(MergeError::spill_write)?;
            spilled.rows += batch.num_rows();
        }
        self.buffered_bytes = 0;
        self.share.try_resize(0);
        Ok(())
    }

    fn take_completed(&mut self) {
        while let Some(batch) = self.building.next_completed_batch() {
            self.buffered_bytes += batch.get_array_memory_size();
            self.buffered.push_back(batch);
        }
    }

    fn size(&self) -> usize {
        let building = match self.building.get_buffered_rows() {
            0 => 0,
            _ => self.building.size(),
        };
        self.buffered_bytes + building
    }

    /// Turns to reading: every row comes back once, those in memory first.
    ///
    /// # Errors
    ///
    /// [`MergeError::Spill`] when what is held does not fit any more and can not be written.
    pub(crate) fn replay(mut self) -> Result<Replay> {
        self.building.finish_buffered_batch()?;
        self.take_completed();
        if !self.share.try_resize(self.buffered_bytes) {
            self.spill()?;
        }
        Ok(Replay {
            buffered: self.buffered,
            share: self.share,
            // Dropping the sink here tells the reader that nothing follows.
            spilled: self.spilled.map(|spilled| (spilled.stream, spilled.rows)),
        })
    }
}

/// Deferred rows on their way back.
pub(crate) struct Replay {
    buffered: VecDeque<RecordBatch>,
    share: Share,
    /// What is on disk, and how many rows are still to come from there.
    spilled: Option<(SendableRecordBatchStream, usize)>,
}

impl Replay {
    /// The next batch; its memory is no longer reserved here.
    ///
    /// # Errors
    ///
    /// [`MergeError::Spill`] when the disk does not give back every row that was written.
    pub(crate) async fn next(&mut self) -> Result<Option<RecordBatch>> {
        if let Some(batch) = self.buffered.pop_front() {
            let size = self.share.size();
            let rest = size.saturating_sub(batch.get_array_memory_size());
            self.share.try_resize(rest);
            return Ok(Some(batch));
        }
        let Some((stream, missing)) = &mut self.spilled else {
            return Ok(None);
        };
        let batch = stream.next().await.transpose();
        let batch = batch.map_err(MergeError::spill_read)?;
        *missing = missing.saturating_sub(batch.as_ref().map_or(0, RecordBatch::num_rows));
        // The reader takes a file that was cut short for one that has ended.
        if batch.is_none() && *missing > 0 {
            return Err(MergeError::spill_read(exec_datafusion_err!(
                "{missing} rows that were written are missing"
            )));
        }
        Ok(batch)
    }
}
