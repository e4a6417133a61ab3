//! Rows that are being deferred.

use std::collections::VecDeque;
use std::sync::Arc;

use arrow::array::{BooleanArray, RecordBatch};
use arrow::compute::BatchCoalescer;
use datafusion::common::Result;
use datafusion::execution::TaskContext;
use datafusion::physical_plan::metrics::SpillMetrics;
use roaring::RoaringBitmap;

use super::Stored;
use super::limit::{DeferredLimit, Share};
use super::replay::Replay;
use super::runs::Runs;
use crate::error::MergeError;
use crate::reservation::SpillableReservation;

/// Holds rows until their fate is known, in memory or on disk. See the module's documentation.
pub(crate) struct DeferredRows {
    building: BatchCoalescer,
    buffered: VecDeque<RecordBatch>,
    /// Batches that the sweep under way has not looked at yet.
    unswept: VecDeque<RecordBatch>,
    /// Bytes of the batches in both.
    bytes: usize,
    share: Share,
    runs: Runs,
}

impl DeferredRows {
    pub(crate) fn new(
        name: String,
        stored: Stored,
        limit: Arc<DeferredLimit>,
        metrics: SpillMetrics,
        context: &TaskContext,
    ) -> Self {
        let batch_size = context.session_config().batch_size();
        let reservation = SpillableReservation::new(name, context.memory_pool());
        Self {
            building: BatchCoalescer::new(Arc::clone(&stored.schema), batch_size),
            buffered: VecDeque::new(),
            unswept: VecDeque::new(),
            bytes: 0,
            share: Share::new(limit, reservation),
            runs: Runs::new(stored, metrics, context),
        }
    }

    /// Adds the rows of `batch` that `mask` selects, unreserved until [`Self::try_settle`].
    pub(crate) fn push(&mut self, batch: RecordBatch, mask: &BooleanArray) -> Result<()> {
        self.building.push_batch_with_filter(batch, mask)?;
        self.take_completed();
        Ok(())
    }

    /// Reserves what is held now. Returns false, and reserves nothing more, when that is refused:
    /// rows have to leave then, or [`Self::spill`].
    pub(crate) fn try_settle(&mut self) -> bool {
        let building = match self.building.get_buffered_rows() {
            0 => 0,
            _ => self.building.size(),
        };
        self.share.try_resize(self.bytes + building)
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
        while let Some(batch) = self
            .unswept
            .pop_front()
            .or_else(|| self.buffered.pop_front())
        {
            self.runs.append(&batch).map_err(MergeError::spill_write)?;
        }
        self.bytes = 0;
        self.share.written();
        Ok(())
    }

    /// Begins to go through the rows in memory once, for those whose fate is known by now.
    pub(crate) fn begin_sweep(&mut self) -> Result<()> {
        self.building.finish_buffered_batch()?;
        self.take_completed();
        self.unswept.append(&mut self.buffered);
        Ok(())
    }

    /// The next batch of the sweep. It is no longer held: what stays deferred is given back with
    /// [`Self::keep`] or [`Self::push`]. Its memory stays reserved until [`Self::try_settle`].
    pub(crate) fn sweep(&mut self) -> Option<RecordBatch> {
        let batch = self.unswept.pop_front()?;
        self.bytes -= batch.get_array_memory_size();
        Some(batch)
    }

    /// Takes back, as it is, a batch that [`Self::sweep`] gave out.
    pub(crate) fn keep(&mut self, batch: RecordBatch) {
        self.bytes += batch.get_array_memory_size();
        self.buffered.push_back(batch);
    }

    /// Turns to reading: every row comes back once, those in memory first, but for the runs on
    /// disk that hold no row of a data file that is `wanted`.
    ///
    /// # Errors
    ///
    /// [`MergeError::Spill`] when what is held does not fit any more and cannot be written.
    pub(crate) fn replay(mut self, wanted: impl Fn(&RoaringBitmap) -> bool) -> Result<Replay> {
        self.begin_sweep()?;
        if !self.try_settle() {
            self.spill()?;
        }
        let runs = self.runs.finish().into_iter();
        let runs = runs.filter(|run| wanted(&run.files)).collect();
        Ok(Replay::new(self.unswept, self.share, runs))
    }

    fn take_completed(&mut self) {
        while let Some(batch) = self.building.next_completed_batch() {
            self.bytes += batch.get_array_memory_size();
            self.buffered.push_back(batch);
        }
    }
}
