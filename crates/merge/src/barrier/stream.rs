//! One partition of the barrier.
//!
//! ```text
//!            ┌──────────────────────── Read ────────────────────────┐
//!   input ──►│ slice ──► which files does it open, which are closed │
//!            │    ├─ open, or inserted ─────────────────────────────┼──► emitter ──► out
//!            │    ├─ closed ──► DeferredRows ── once half opened ───┼──►    ▲
//!            │    └─ source alone, not inserted ──► dropped         │       │
//!            └─────────────────────────┬────────────────────────────┘       │
//!                                      │ input ended                        │
//!                                    Meet  wait for the other partitions    │
//!                                      │ now it is known what stays closed  │
//!                                   Replay ── rows of open files ───────────┘
//! ```

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::Arc;

use arrow::array::{BooleanArray, RecordBatch};
use arrow::buffer::BooleanBuffer;
use datafusion::common::{Result, assert_eq_or_internal_err};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::EmptyRecordBatchStream;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::{StreamExt, stream};

use super::files::{SharedFiles, View};
use super::held::Held;
use super::rendezvous::{Outcome, Seat};
use crate::columns::ChangeColumns;
use crate::deferred::{DeferredLimit, DeferredRows, Replay};
use crate::emitter::Emitter;
use crate::error::explain_memory;
use crate::files::FileId;
use crate::metrics::OperatorMetrics;
use crate::payload::Payload;
use crate::slices::slices;

/// The rows of one partition on their way through the barrier.
pub(super) struct BarrierStream {
    input: SendableRecordBatchStream,
    batch_size: usize,
    /// Slices of the last batch that have not been routed.
    slices: VecDeque<RecordBatch>,
    deferred: DeferredRows,
    held: Held,
    sweeping: bool,
    shared: Arc<SharedFiles>,
    seat: Seat,
    router: Router,
}

impl BarrierStream {
    #[expect(clippy::too_many_arguments, reason = "called once, by the operator")]
    pub(super) fn new(
        partition: usize,
        input: SendableRecordBatchStream,
        columns: ChangeColumns,
        shared: Arc<SharedFiles>,
        seat: Seat,
        limit: Arc<DeferredLimit>,
        metrics: OperatorMetrics,
        context: &TaskContext,
    ) -> Self {
        let batch_size = context.session_config().batch_size();
        let pool = context.memory_pool();
        let payload = Payload::new(input.schema(), columns.file);
        let deferred = DeferredRows::new(
            format!("MergeBarrier deferred rows[{partition}]"),
            payload.stored(),
            limit,
            metrics.spill.clone(),
            context,
        );
        let emitter = Emitter::new(
            format!("MergeBarrier output[{partition}]"),
            input.schema(),
            batch_size,
            pool,
        );
        let files = MemoryConsumer::new(format!("MergeBarrier files[{partition}]")).register(pool);
        Self {
            input,
            batch_size,
            slices: VecDeque::new(),
            deferred,
            held: Held::default(),
            sweeping: false,
            shared,
            seat,
            router: Router {
                columns,
                payload,
                emitter,
                metrics,
                view: View::default(),
                view_memory: files,
                rows: Rows::default(),
            },
        }
    }

    pub(super) fn into_stream(self) -> SendableRecordBatchStream {
        let schema = self.input.schema();
        let phase = Phase::Read(Box::new(self));
        let batches = stream::try_unfold(phase, |phase| phase.next());
        Box::pin(RecordBatchStreamAdapter::new(schema, batches))
    }

    /// One step of reading. Returns false when the input has ended.
    async fn read(&mut self) -> Result<bool> {
        if self.sweeping {
            self.sweep()?;
        } else if let Some(slice) = self.slices.pop_front() {
            self.route(slice)?;
        } else {
            let batch = self.input.next().await.transpose();
            let Some(batch) = batch.map_err(explain_memory)? else {
                // What the streams below hold is not kept while other partitions are waited for. What
                // a join holds for all partitions stays as long as the plan.
                self.input = Box::pin(EmptyRecordBatchStream::new(self.input.schema()));
                return Ok(false);
            };
            self.router.rows.read += batch.num_rows();
            self.slices.extend(slices(batch, self.batch_size));
        }
        Ok(true)
    }

    fn route(&mut self, batch: RecordBatch) -> Result<()> {
        let time = self.router.metrics.baseline.elapsed_compute().clone();
        let _timer = time.timer();

        if let Some((stored, closed)) = self.router.route(batch, &self.shared)? {
            let files = self.router.payload.files(&stored);
            for row in closed.values().set_indices() {
                self.held.add(files[row]);
            }
            self.deferred.push(stored, &closed)?;
        }
        for file in self.router.view.newly_opened() {
            self.held.open(*file);
        }
        let granted = self.deferred.try_settle();
        if self.held.worth_a_sweep() {
            self.deferred.begin_sweep()?;
            self.sweeping = true;
        } else if !granted {
            self.deferred.spill()?;
            self.held.clear();
        }
        self.router.note_memory(self.deferred.memory());
        Ok(())
    }

    /// Looks at one batch of rows that are held.
    fn sweep(&mut self) -> Result<()> {
        let Some(stored) = self.deferred.sweep() else {
            self.sweeping = false;
            if !self.deferred.try_settle() {
                self.deferred.spill()?;
                self.held.clear();
            }
            return Ok(());
        };
        let files = self.router.payload.files(&stored);
        let open = self.router.open_rows(files);
        for row in open.values().set_indices() {
            self.held.remove(files[row]);
        }
        match open.true_count() {
            0 => self.deferred.keep(stored),
            all if all == stored.num_rows() => self.router.restore(&stored, &open)?,
            _ => {
                self.router.restore(&stored, &open)?;
                self.deferred.push(stored, &arrow::compute::not(&open)?)?;
            }
        }
        // What has left is given back at once, what stays was reserved before.
        self.deferred.try_settle();
        Ok(())
    }
}

enum Phase {
    Read(Box<BarrierStream>),
    Meet(Box<BarrierStream>),
    Replay(Box<(Router, Replay, Seat)>),
}

impl Phase {
    /// The next batch, and what to do then.
    async fn next(mut self) -> Result<Option<(RecordBatch, Self)>> {
        loop {
            if let Some(batch) = self.router().emit() {
                return Ok(Some((batch, self)));
            }
            self = match self {
                Self::Read(mut barrier) => match barrier.read().await? {
                    true => Self::Read(barrier),
                    false => Self::Meet(barrier),
                },
                Self::Meet(mut barrier) => {
                    let met = poll_fn(|context| barrier.seat.poll_met(context)).await;
                    if met == Outcome::Broken {
                        // The partition that broke off has its own error, or was dropped. Here
                        // the stream ends, and the commit is refused.
                        return Ok(None);
                    }
                    let BarrierStream {
                        deferred,
                        shared,
                        seat,
                        mut router,
                        ..
                    } = *barrier;
                    router.update_view(&shared, |_| ());
                    let open = router.view.opened();
                    let replay = deferred.replay(|files| !files.is_disjoint(&open))?;
                    Self::Replay(Box::new((router, replay, seat)))
                }
                Self::Replay(mut replay) => {
                    let (router, deferred, seat) = &mut *replay;
                    match deferred.next().await? {
                        Some(stored) => {
                            let open = router.open_rows(router.payload.files(&stored));
                            router.restore(&stored, &open)?;
                        }
                        None => {
                            router.emitter.finish()?;
                            let Some(batch) = router.emit() else {
                                router.rows.check()?;
                                seat.leave();
                                return Ok(None);
                            };
                            return Ok(Some((batch, Self::Replay(replay))));
                        }
                    }
                    Self::Replay(replay)
                }
            };
        }
    }

    fn router(&mut self) -> &mut Router {
        match self {
            Self::Read(barrier) | Self::Meet(barrier) => &mut barrier.router,
            Self::Replay(replay) => &mut replay.0,
        }
    }
}

/// Rows by what became of them.
#[derive(Debug, Default)]
struct Rows {
    read: usize,
    /// Source rows that no clause inserts.
    dropped: usize,
    deferred: usize,
    /// Deferred rows whose file has opened.
    restored: usize,
    emitted: usize,
}

impl Rows {
    /// No row may be lost or doubled: what was read has passed, was dropped, or waits.
    fn check(&self) -> Result<()> {
        let passed = self.emitted - self.restored;
        assert_eq_or_internal_err!(
            self.read,
            passed + self.dropped + self.deferred,
            "rows went missing in MergeBarrierExec: {self:?}"
        );
        Ok(())
    }
}

/// Knows which files are open, and sends rows where they belong.
struct Router {
    columns: ChangeColumns,
    payload: Payload,
    emitter: Emitter,
    metrics: OperatorMetrics,
    view: View,
    view_memory: MemoryReservation,
    rows: Rows,
}

/// What a batch says about a file in it.
#[derive(Clone, Copy, Default)]
struct FileInBatch {
    id: Option<FileId>,
    used: bool,
    changed: bool,
}

impl Router {
    /// Emits and drops rows of `batch`; returns it, as it is to be stored, with those to defer.
    fn route(
        &mut self,
        batch: RecordBatch,
        shared: &SharedFiles,
    ) -> Result<Option<(RecordBatch, BooleanArray)>> {
        let files = self.columns.files(&batch)?;
        let mut in_batch = vec![FileInBatch::default(); files.num_paths()];
        let keys: Vec<_> = (0..batch.num_rows()).map(|row| files.key(row)).collect();
        let mut without_file = 0;
        for key in &keys {
            match key {
                Some(key) => in_batch[*key].used = true,
                None => without_file += 1,
            }
        }
        if let Some(unchanged) = self.columns.changed(&batch) {
            let changed = !unchanged.inner();
            for key in changed.set_indices().filter_map(|row| keys[row]) {
                in_batch[key].changed = true;
            }
        }
        self.update_view(shared, |table| {
            for (key, file) in in_batch.iter_mut().enumerate().filter(|(_, f)| f.used) {
                let id = table.intern(files.path(key));
                file.id = Some(id);
                if file.changed {
                    table.open(id);
                }
            }
        });

        let inserted = match without_file {
            0 => None,
            _ => self.columns.inserted(&batch),
        };
        let is_inserted = |row| inserted.as_ref().is_some_and(|nulls| nulls.is_null(row));
        let file_of = |row: usize| keys[row].and_then(|key| in_batch[key].id);
        let view = &self.view;
        let passes = BooleanBuffer::collect_bool(keys.len(), |row| match file_of(row) {
            Some(file) => view.is_open(file),
            None => is_inserted(row),
        });
        let num_passing = passes.count_set_bits();
        if num_passing == keys.len() {
            self.emitter.pass(batch);
            return Ok(None);
        }
        let closed = BooleanBuffer::collect_bool(keys.len(), |row| {
            file_of(row).is_some_and(|file| !view.is_open(file))
        });
        let num_closed = closed.count_set_bits();
        self.rows.dropped += keys.len() - num_passing - num_closed;
        self.rows.deferred += num_closed;
        self.metrics.rows_deferred.add(num_closed);

        let deferred = match num_closed {
            0 => None,
            _ => {
                let files = (0..keys.len()).map(|row| file_of(row).unwrap_or_default());
                let stored = self.payload.store(&batch, files.collect())?;
                Some((stored, BooleanArray::from(closed)))
            }
        };
        if num_passing > 0 {
            self.emitter.filter(batch, &BooleanArray::from(passes))?;
        }
        Ok(deferred)
    }

    fn update_view(&mut self, shared: &SharedFiles, change: impl FnOnce(&mut super::files::Table)) {
        shared.update(&mut self.view, change);
        self.view_memory.resize(self.view.memory());
    }

    /// Which of the rows of `files` are of an open file.
    fn open_rows(&self, files: &[FileId]) -> BooleanArray {
        BooleanBuffer::collect_bool(files.len(), |row| self.view.is_open(files[row])).into()
    }

    /// Emits the rows of a stored batch that `open` selects.
    fn restore(&mut self, stored: &RecordBatch, open: &BooleanArray) -> Result<()> {
        let num_open = open.true_count();
        if num_open == 0 {
            return Ok(());
        }
        self.rows.restored += num_open;
        let batch = self.payload.restore(stored, |file| self.view.path(file))?;
        if num_open == stored.num_rows() {
            self.emitter.pass(batch);
            return Ok(());
        }
        self.emitter.filter(batch, open)
    }

    fn emit(&mut self) -> Option<RecordBatch> {
        let batch = self.emitter.next()?;
        self.rows.emitted += batch.num_rows();
        self.metrics.baseline.record_output(batch.num_rows());
        Some(batch)
    }

    fn note_memory(&self, deferred: usize) {
        let memory = deferred + self.emitter.memory() + self.view.memory();
        self.metrics.peak_memory.set_max(memory);
    }
}
