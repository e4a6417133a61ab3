//! Rows on their way out.

use std::collections::VecDeque;
use std::sync::Arc;

use arrow::array::{BooleanArray, RecordBatch};
use arrow::compute::BatchCoalescer;
use arrow::datatypes::SchemaRef;
use datafusion::common::Result;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};

/// Emits whole batches untouched and gathers parts of batches into full ones.
///
/// What is gathered, a batch at most, is reserved, and emitted early when that is refused.
pub(crate) struct Emitter {
    gathering: BatchCoalescer,
    ready: VecDeque<RecordBatch>,
    reservation: MemoryReservation,
}

impl Emitter {
    /// Gathers batches of `batch_size` rows; `name` is that of its consumer in `pool`.
    pub(crate) fn new(
        name: String,
        schema: SchemaRef,
        batch_size: usize,
        pool: &Arc<dyn MemoryPool>,
    ) -> Self {
        Self {
            gathering: BatchCoalescer::new(schema, batch_size),
            ready: VecDeque::new(),
            reservation: MemoryConsumer::new(name).register(pool),
        }
    }

    /// Emits all rows of `batch`.
    pub(crate) fn pass(&mut self, batch: RecordBatch) {
        self.ready.push_back(batch);
    }

    /// Emits the rows of `batch` that `mask` selects.
    pub(crate) fn filter(&mut self, batch: RecordBatch, mask: &BooleanArray) -> Result<()> {
        self.gathering.push_batch_with_filter(batch, mask)?;
        self.take_completed();
        if self.reservation.try_resize(self.memory()).is_err() {
            self.finish()?;
        }
        Ok(())
    }

    /// Emits what was gathered so far.
    pub(crate) fn finish(&mut self) -> Result<()> {
        self.gathering.finish_buffered_batch()?;
        self.take_completed();
        self.reservation.free();
        Ok(())
    }

    pub(crate) fn next(&mut self) -> Option<RecordBatch> {
        self.ready.pop_front()
    }

    /// Bytes of rows that are gathered.
    pub(crate) fn memory(&self) -> usize {
        match self.gathering.get_buffered_rows() {
            0 => 0,
            _ => self.gathering.size(),
        }
    }

    fn take_completed(&mut self) {
        while let Some(batch) = self.gathering.next_completed_batch() {
            self.ready.push_back(batch);
        }
    }
}
