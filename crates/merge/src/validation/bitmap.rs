//! The check by bitmaps: one partition, which sees all matches of the files it has.
//!
//! ```text
//!   a batch ──► which rows are matches, and of which file
//!                                  │
//!                                  ▼
//!               MatchState: a decision for each row ──── duplicate ───► error
//!                  │
//!            Pass  ├──────────────────────────────────────────────────► emitter ──► out
//!            Defer ├──► DeferredRows ──► at the end of the input, those     ▲
//!            Drop  └──► nothing          whose target row no clause ────────┘
//!                                        acted on
//! ```

use std::collections::VecDeque;
use std::sync::Arc;

use arrow::array::{Array, BooleanArray, RecordBatch};
use arrow::buffer::BooleanBuffer;
use datafusion::common::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::{StreamExt, stream};

use super::groups::Groups;
use crate::columns::{MatchClass, MatchColumns};
use crate::deferred::{DeferredLimit, DeferredRows, Replay};
use crate::emitter::Emitter;
use crate::error::{MergeError, explain_memory};
use crate::files::DictionaryFiles;
use crate::match_state::{Decision, MatchState};
use crate::metrics::OperatorMetrics;
use crate::payload::Payload;
use crate::slices::slices;

/// Reads the input to its end, then the rows that were deferred.
pub(super) struct BitmapValidator {
    input: SendableRecordBatchStream,
    batch_size: usize,
    /// Slices of the last batch that have not been checked.
    slices: VecDeque<RecordBatch>,
    checker: Checker,
    deferred: DeferredRows,
}

impl BitmapValidator {
    pub(super) fn new(
        partition: usize,
        input: SendableRecordBatchStream,
        columns: MatchColumns,
        limit: Arc<DeferredLimit>,
        metrics: OperatorMetrics,
        context: &TaskContext,
    ) -> Self {
        let schema = input.schema();
        let payload = Payload::new(Arc::clone(&schema), columns.file);
        let deferred = DeferredRows::new(
            format!("MergeValidation deferred rows[{partition}]"),
            payload.stored(),
            limit,
            metrics.spill.clone(),
            context,
        );
        let state = MatchState::new(
            format!("MergeValidation match state[{partition}]"),
            metrics.spill.clone(),
            context,
        );
        let batch_size = context.session_config().batch_size();
        let emitter = Emitter::new(
            format!("MergeValidation output[{partition}]"),
            schema,
            batch_size,
            context.memory_pool(),
        );
        let checker = Checker {
            columns,
            state,
            payload,
            emitter,
            metrics,
            groups: Groups::default(),
            decisions: Vec::new(),
        };
        Self {
            input,
            batch_size,
            slices: VecDeque::new(),
            checker,
            deferred,
        }
    }

    async fn check_slice(&mut self) -> Result<()> {
        match self.slices.pop_front() {
            Some(slice) => self.checker.check(slice, &mut self.deferred).await,
            None => Ok(()),
        }
    }

    /// The rows that pass. The stream ends after an error.
    /// The next batch, which a repartitioning without memory may refuse.
    async fn read(&mut self) -> Result<Option<RecordBatch>> {
        let batch = self.input.next().await.transpose();
        batch.map_err(explain_memory)
    }

    pub(super) fn into_stream(self) -> SendableRecordBatchStream {
        let schema = self.input.schema();
        let phase = Phase::Check(Box::new(self));
        let batches = stream::try_unfold(phase, |phase| phase.next());
        Box::pin(RecordBatchStreamAdapter::new(schema, batches))
    }
}

enum Phase {
    Check(Box<BitmapValidator>),
    Replay(Box<(Checker, Replay)>),
}

impl Phase {
    /// The next batch, and what to do then.
    async fn next(mut self) -> Result<Option<(RecordBatch, Self)>> {
        loop {
            if let Some(batch) = self.checker().emit() {
                return Ok(Some((batch, self)));
            }
            self = match self {
                Self::Check(mut validator) if !validator.slices.is_empty() => {
                    validator.check_slice().await?;
                    Self::Check(validator)
                }
                Self::Check(mut validator) => match validator.read().await? {
                    Some(batch) => {
                        let slices = slices(batch, validator.batch_size);
                        validator.slices.extend(slices);
                        Self::Check(validator)
                    }
                    None => {
                        let BitmapValidator {
                            mut checker,
                            deferred,
                            ..
                        } = *validator;
                        checker.state.forget_deferred();
                        Self::Replay(Box::new((checker, deferred.replay(|_| true)?)))
                    }
                },
                Self::Replay(mut replay) => {
                    let (checker, deferred) = &mut *replay;
                    match deferred.next().await? {
                        Some(batch) => checker.replay(batch).await?,
                        None => {
                            checker.emitter.finish()?;
                            let batch = checker.emit();
                            return Ok(batch.map(|batch| (batch, Self::Replay(replay))));
                        }
                    }
                    Self::Replay(replay)
                }
            };
        }
    }

    fn checker(&mut self) -> &mut Checker {
        match self {
            Self::Check(validator) => &mut validator.checker,
            Self::Replay(replay) => &mut replay.0,
        }
    }
}

/// Knows what happened to each target row, and sends rows where they belong.
struct Checker {
    columns: MatchColumns,
    state: MatchState,
    payload: Payload,
    emitter: Emitter,
    metrics: OperatorMetrics,
    groups: Groups,
    /// What becomes of each row of the current batch.
    decisions: Vec<Decision>,
}

impl Checker {
    async fn check(&mut self, batch: RecordBatch, deferred: &mut DeferredRows) -> Result<()> {
        let time = self.metrics.baseline.elapsed_compute().clone();
        let _timer = time.timer();

        self.group_matches(&batch)?;
        if self.groups.num_rows() == 0 {
            self.emitter.pass(batch);
            return Ok(());
        }
        self.metrics.rows_checked.add(self.groups.num_rows());
        self.decide(&batch, deferred).await?;
        self.route(batch, deferred)?;

        let memory = deferred.memory() + self.state.memory() + self.emitter.memory();
        self.metrics.peak_memory.set_max(memory);
        Ok(())
    }

    /// Groups the rows of `batch` that are matches by file.
    fn group_matches(&mut self, batch: &RecordBatch) -> Result<()> {
        let files = self.columns.files(batch)?;
        let ordinals = self.columns.ordinals(batch)?;
        let classes = self.columns.classes(batch)?;
        let mut files = DictionaryFiles::new(&files);
        self.groups.set((0..batch.num_rows()).filter_map(|row| {
            let is_match = classes.is_valid(row)
                && ordinals.is_valid(row)
                && MatchClass::from_i32(classes.value(row)) != MatchClass::Ignore;
            let file = is_match.then(|| files.get(row, |path| self.state.intern(path)))?;
            file.map(|file| (file, row))
        }));
        Ok(())
    }

    /// Decides on the rows in the groups, all others pass.
    async fn decide(&mut self, batch: &RecordBatch, deferred: &mut DeferredRows) -> Result<()> {
        let ordinals = self.columns.ordinals(batch)?.values();
        let classes = self.columns.classes(batch)?.values();
        self.decisions.clear();
        self.decisions.resize(batch.num_rows(), Decision::Pass);
        for (file, rows) in self.groups.iter() {
            let matches = self.state.get(file).await?;
            let admitted = matches.admit(rows, ordinals, classes, &mut self.decisions);
            admitted.map_err(|duplicate| MergeError::DuplicateMatch {
                file: self.state.path(file).to_owned(),
                ordinal: duplicate.0,
            })?;
            if !self.state.try_settle(file) {
                // Payload gives way first: there is more of it, and it is needed only once more.
                deferred.spill()?;
                self.state.settle(file).await?;
            }
        }
        Ok(())
    }

    /// Sends the rows of `batch` where the decisions say.
    fn route(&mut self, batch: RecordBatch, deferred: &mut DeferredRows) -> Result<()> {
        let defer = self.rows_to(Decision::Defer);
        let num_deferred = defer.true_count();
        if num_deferred > 0 {
            self.metrics.rows_deferred.add(num_deferred);
            let files = self.groups.file_of_each_row(batch.num_rows());
            deferred.push(self.payload.store(&batch, files)?, &defer)?;
            if !deferred.try_settle() {
                deferred.spill()?;
            }
        }
        self.pass(batch)
    }

    /// Passes the rows of `batch`, deferred until now, whose target row nothing acted on.
    async fn replay(&mut self, batch: RecordBatch) -> Result<()> {
        let time = self.metrics.baseline.elapsed_compute().clone();
        let _timer = time.timer();

        let files = self.payload.files(&batch);
        let ordinals = self.columns.ordinals(&batch)?.values();
        self.groups.set(files.iter().copied().zip(0..));
        self.decisions.clear();
        self.decisions.resize(batch.num_rows(), Decision::Pass);
        for (file, rows) in self.groups.iter() {
            if !self.state.has_superseded(file) {
                continue;
            }
            let matches = self.state.get(file).await?;
            for &row in rows {
                if matches.is_acted_on(ordinals[row]) {
                    self.decisions[row] = Decision::Drop;
                }
            }
            self.state.settle(file).await?;
        }
        let batch = self.payload.restore(&batch, |file| self.state.path(file))?;
        self.pass(batch)
    }

    fn pass(&mut self, batch: RecordBatch) -> Result<()> {
        let pass = self.rows_to(Decision::Pass);
        if pass.true_count() == batch.num_rows() {
            self.emitter.pass(batch);
            return Ok(());
        }
        self.emitter.filter(batch, &pass)
    }

    fn rows_to(&self, decision: Decision) -> BooleanArray {
        let decisions = &self.decisions;
        BooleanBuffer::collect_bool(decisions.len(), |row| decisions[row] == decision).into()
    }

    fn emit(&mut self) -> Option<RecordBatch> {
        let batch = self.emitter.next()?;
        self.metrics.baseline.record_output(batch.num_rows());
        Some(batch)
    }
}
