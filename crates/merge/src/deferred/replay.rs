//! The way back.

use std::collections::VecDeque;

use arrow::array::RecordBatch;
use datafusion::common::{Result, exec_datafusion_err};
use datafusion::execution::SendableRecordBatchStream;
use futures::StreamExt;

use super::limit::Share;
use super::runs::Run;
use crate::error::MergeError;

/// Deferred rows on their way back: those in memory, then those on disk.
pub(crate) struct Replay {
    buffered: VecDeque<RecordBatch>,
    share: Share,
    runs: VecDeque<Run>,
    /// The run being read, and how many of its rows are still to come.
    current: Option<(SendableRecordBatchStream, usize)>,
}

impl Replay {
    pub(super) fn new(buffered: VecDeque<RecordBatch>, share: Share, runs: VecDeque<Run>) -> Self {
        Self {
            buffered,
            share,
            runs,
            current: None,
        }
    }

    /// The next batch; its memory is no longer reserved here.
    ///
    /// # Errors
    ///
    /// [`MergeError::Spill`] when the disk does not give back every row that was written.
    pub(crate) async fn next(&mut self) -> Result<Option<RecordBatch>> {
        if let Some(batch) = self.buffered.pop_front() {
            let rest = match self.buffered.is_empty() {
                true => 0,
                false => {
                    let size = self.share.size();
                    size.saturating_sub(batch.get_array_memory_size())
                }
            };
            self.share.try_resize(rest);
            return Ok(Some(batch));
        }
        loop {
            if let Some((stream, missing)) = &mut self.current {
                let batch = stream.next().await.transpose();
                if let Some(batch) = batch.map_err(MergeError::spill_read)? {
                    *missing = missing.saturating_sub(batch.num_rows());
                    return Ok(Some(batch));
                }
                // The reader takes a file that was cut short for one that has ended.
                if *missing > 0 {
                    return Err(MergeError::spill_read(exec_datafusion_err!(
                        "{missing} rows that were written are missing"
                    )));
                }
                self.current = None;
            }
            let Some(run) = self.runs.pop_front() else {
                return Ok(None);
            };
            self.current = Some((run.stream, run.rows));
        }
    }
}
