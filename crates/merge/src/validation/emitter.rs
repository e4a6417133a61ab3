//! Rows on their way out.

use std::collections::VecDeque;

use arrow::array::{BooleanArray, RecordBatch};
use arrow::compute::BatchCoalescer;
use arrow::datatypes::SchemaRef;
use datafusion::common::Result;
use datafusion::execution::memory_pool::MemoryReservation;

/// Emits whole batches untouched and gathers parts of batches into full ones.
///
/// What is gathered, a batch at most, is reserved, and emitted early when that is refused.
pub(super) struct Emitter {
    gathering: BatchCoalescer,
    ready: VecDeque<RecordBatch>,
    reservation: MemoryReservation,
}

impl Emitter {
    pub(super) fn new(
        schema: SchemaRef,
        batch_size: usize,
        reservation: MemoryReservation,
    ) -> Self {
        Self {
            gathering: BatchCoalescer::new(schema, batch_size),
            ready: VecDeque::new(),
            reservation,
        }
    }

    /// Emits all rows of `batch`.
    pub(super) fn pass(&mut self, batch: RecordBatch) {
        self.ready.push_back(batch);
    }

    /// Emits the rows of `batch` that `mask` selects.
    pub(super) fn filter(&mut self, batch: RecordBatch, mask: &BooleanArray) -> Result<()> {
        self.gathering.push_batch_with_filter(batch, mask)?;
        self.take_completed();
        if self.reservation.try_resize(self.memory()).is_err() {
            self.finish()?;
        }
        Ok(())
    }

    /// Emits what was gathered so far.
    pub(super) fn finish(&mut self) -> Result<()> {
        self.gathering.finish_buffered_batch()?;
        self.take_completed();
        self.reservation.free();
        Ok(())
    }

    pub(super) fn next(&mut self) -> Option<RecordBatch> {
        self.ready.pop_front()
    }

    /// Bytes of rows that are gathered.
    pub(super) fn memory(&self) -> usize {
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
