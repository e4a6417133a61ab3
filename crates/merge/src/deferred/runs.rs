//! Deferred rows on disk.

use std::sync::Arc;

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::UInt32Type;
use datafusion::common::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::metrics::SpillMetrics;
use datafusion::physical_plan::spill::SpillManager;
use datafusion::physical_plan::spill::spill_pool::{self, SpillPoolSink};
use roaring::RoaringBitmap;

use super::Stored;

/// Rows written in one piece, in a file of their own.
pub(super) struct Run {
    /// Reads the rows from the start. The file goes when it is dropped.
    pub(super) stream: SendableRecordBatchStream,
    pub(super) rows: usize,
    /// The data files that the rows are of.
    pub(super) files: RoaringBitmap,
}

/// Runs that were written, and the one that is being written.
pub(super) struct Runs {
    manager: Arc<SpillManager>,
    file_column: usize,
    /// Bytes after which a new run begins.
    run_size: usize,
    open: Option<OpenRun>,
    finished: Vec<Run>,
}

struct OpenRun {
    sink: SpillPoolSink,
    bytes: usize,
    run: Run,
}

impl Runs {
    pub(super) fn new(stored: Stored, metrics: SpillMetrics, context: &TaskContext) -> Self {
        let config = context.session_config();
        let manager = SpillManager::new(context.runtime_env(), metrics, stored.schema)
            .with_compression_type(config.spill_compression());
        Self {
            manager: Arc::new(manager),
            file_column: stored.file_column,
            run_size: config.options().execution.max_spill_file_size_bytes.into(),
            open: None,
            finished: Vec::new(),
        }
    }

    pub(super) fn append(&mut self, batch: &RecordBatch) -> Result<()> {
        let open = self.open.get_or_insert_with(|| {
            // A run ends below, when it is full: the pool begins no other file by itself.
            let (sink, stream) = spill_pool::spsc_channel(usize::MAX, Arc::clone(&self.manager));
            OpenRun {
                sink,
                bytes: 0,
                run: Run {
                    stream,
                    rows: 0,
                    files: RoaringBitmap::new(),
                },
            }
        });
        open.sink.push_batch(batch)?;
        open.bytes += batch.get_array_memory_size();
        open.run.rows += batch.num_rows();
        let files = batch.column(self.file_column).as_primitive::<UInt32Type>();
        open.run.files.extend(files.values().iter().copied());
        if open.bytes >= self.run_size {
            self.finish_run();
        }
        Ok(())
    }

    fn finish_run(&mut self) {
        // Dropping the sink tells the reader that nothing follows.
        self.finished.extend(self.open.take().map(|open| open.run));
    }

    /// All runs, in the order in which they were written.
    pub(super) fn finish(mut self) -> Vec<Run> {
        self.finish_run();
        self.finished
    }
}
