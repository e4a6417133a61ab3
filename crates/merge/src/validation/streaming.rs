//! The check where all matches of a target row come one after the other.
//!
//! That is so directly above a join that streams the target: see [`super::strategy`]. Only rows
//! that are no match may lie between. So it is enough to know the last match:
//!
//! ```text
//!   target row of    ── another one ──► remember it, the row passes
//!   the match is
//!                    ── the last one's ──► last was   match is     then
//!                                          any        no-op        drop the match
//!                                          no-op      any other    drop the last one, pass the match
//!                                          delete     delete       drop the match
//!                                          all else                duplicate
//! ```
//!
//! The last match can still be dropped while no clause has acted on its target row. If it is the
//! last of its batch, the batch waits for the next match, as it is: one batch, as every operator
//! has one in hand.

use std::collections::VecDeque;
use std::sync::Arc;

use arrow::array::{Array, BooleanArray, RecordBatch};
use arrow::buffer::BooleanBuffer;
use datafusion::common::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::{StreamExt, stream};

use crate::columns::{FileColumn, MatchClass, MatchColumns};
use crate::emitter::Emitter;
use crate::error::MergeError;
use crate::metrics::OperatorMetrics;
use crate::slices::slices;

/// A batch and those of its rows that do not pass.
struct Checked {
    batch: RecordBatch,
    dropped: Vec<usize>,
}

/// Where the row lies that passes for the last target row, if it can still be dropped.
enum Candidate {
    None,
    /// In the batch that waits.
    Waiting {
        row: usize,
    },
    /// In the batch that is being checked.
    Current {
        row: usize,
    },
}

/// The last match.
struct LastMatch {
    file: Arc<str>,
    /// Dictionary key of `file` in the batch that is being checked, once it was met there.
    key: Option<usize>,
    ordinal: u64,
    /// What became of its target row so far.
    class: MatchClass,
    candidate: Candidate,
}

/// The check of one partition.
pub(super) struct StreamingValidator {
    input: SendableRecordBatchStream,
    columns: MatchColumns,
    batch_size: usize,
    /// Slices of the last batch that have not been checked.
    slices: VecDeque<RecordBatch>,
    last: Option<LastMatch>,
    waiting: Option<Checked>,
    emitter: Emitter,
    metrics: OperatorMetrics,
    ended: bool,
}

impl StreamingValidator {
    pub(super) fn new(
        partition: usize,
        input: SendableRecordBatchStream,
        columns: MatchColumns,
        metrics: OperatorMetrics,
        context: &TaskContext,
    ) -> Self {
        let batch_size = context.session_config().batch_size();
        let emitter = Emitter::new(
            format!("MergeValidation output[{partition}]"),
            input.schema(),
            batch_size,
            context.memory_pool(),
        );
        Self {
            input,
            columns,
            batch_size,
            slices: VecDeque::new(),
            last: None,
            waiting: None,
            emitter,
            metrics,
            ended: false,
        }
    }

    /// The rows that pass. The stream ends after an error.
    pub(super) fn into_stream(self) -> SendableRecordBatchStream {
        let schema = self.input.schema();
        let batches = stream::try_unfold(self, |mut validator| async move {
            let batch = validator.next().await?;
            Ok(batch.map(|batch| (batch, validator)))
        });
        Box::pin(RecordBatchStreamAdapter::new(schema, batches))
    }

    async fn next(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            if let Some(batch) = self.emitter.next() {
                self.metrics.baseline.record_output(batch.num_rows());
                return Ok(Some(batch));
            }
            if let Some(slice) = self.slices.pop_front() {
                let time = self.metrics.baseline.elapsed_compute().clone();
                let _timer = time.timer();
                self.check(slice)?;
                self.metrics.peak_memory.set_max(self.emitter.memory());
                continue;
            }
            if self.ended {
                return Ok(None);
            }
            match self.input.next().await.transpose()? {
                Some(batch) => self.slices.extend(slices(batch, self.batch_size)),
                None => {
                    self.ended = true;
                    self.release_waiting()?;
                    self.emitter.finish()?;
                }
            }
        }
    }

    fn check(&mut self, batch: RecordBatch) -> Result<()> {
        let dropped = self.find_dropped(&batch)?;
        let checked = Checked { batch, dropped };
        match &mut self.last {
            Some(last) => match last.candidate {
                // Between the waiting batch and this one lies no other target row's match.
                Candidate::Waiting { .. } => self.emit(checked),
                Candidate::Current { row } => {
                    last.candidate = Candidate::Waiting { row };
                    self.release_waiting()?;
                    self.waiting = Some(checked);
                    Ok(())
                }
                Candidate::None => {
                    self.release_waiting()?;
                    self.emit(checked)
                }
            },
            None => self.emit(checked),
        }
    }

    /// The rows of `batch` that do not pass.
    fn find_dropped(&mut self, batch: &RecordBatch) -> Result<Vec<usize>> {
        let files = self.columns.files(batch)?;
        let ordinals = self.columns.ordinals(batch)?;
        let classes = self.columns.classes(batch)?;
        let mut dropped = Vec::new();
        let mut matches = 0;
        if let Some(last) = &mut self.last {
            last.key = None;
        }
        for row in 0..batch.num_rows() {
            let class = MatchClass::from_i32(classes.value(row));
            if class == MatchClass::Ignore || classes.is_null(row) || ordinals.is_null(row) {
                continue;
            }
            let Some(key) = files.key(row) else { continue };
            matches += 1;
            let ordinal = ordinals.value(row);
            let again = match &mut self.last {
                Some(last) if last.ordinal == ordinal => last.is_in(&files, key),
                _ => false,
            };
            if again {
                self.match_again(class, row, &mut dropped)?;
            } else {
                self.first_match(&files, key, ordinal, class, row);
            }
        }
        self.metrics.rows_checked.add(matches);
        Ok(dropped)
    }

    fn first_match(
        &mut self,
        files: &FileColumn,
        key: usize,
        ordinal: u64,
        class: MatchClass,
        row: usize,
    ) {
        let known = self
            .last
            .as_mut()
            .is_some_and(|last| last.is_in(files, key));
        let file = match self.last.take() {
            Some(last) if known => last.file,
            _ => files.path(key).into(),
        };
        self.last = Some(LastMatch {
            file,
            key: Some(key),
            ordinal,
            class,
            candidate: match class {
                MatchClass::Noop => Candidate::Current { row },
                _ => Candidate::None,
            },
        });
    }

    /// Another match of the last target row.
    fn match_again(
        &mut self,
        class: MatchClass,
        row: usize,
        dropped: &mut Vec<usize>,
    ) -> Result<()> {
        use MatchClass::{Action, Noop, UnconditionalDelete};
        let Some(last) = &mut self.last else {
            return Ok(());
        };
        match (last.class, class) {
            (_, Noop) | (UnconditionalDelete, UnconditionalDelete) => dropped.push(row),
            (Noop, Action | UnconditionalDelete) => {
                last.class = class;
                match std::mem::replace(&mut last.candidate, Candidate::None) {
                    Candidate::Current { row } => dropped.push(row),
                    Candidate::Waiting { row } => {
                        self.waiting.iter_mut().for_each(|w| w.dropped.push(row));
                    }
                    Candidate::None => {}
                }
            }
            _ => {
                return Err(MergeError::DuplicateMatch {
                    file: last.file.to_string(),
                    ordinal: last.ordinal,
                }
                .into());
            }
        }
        Ok(())
    }

    fn release_waiting(&mut self) -> Result<()> {
        match self.waiting.take() {
            Some(checked) => self.emit(checked),
            None => Ok(()),
        }
    }

    fn emit(&mut self, checked: Checked) -> Result<()> {
        let Checked { batch, mut dropped } = checked;
        if dropped.is_empty() {
            self.emitter.pass(batch);
            return Ok(());
        }
        // A row is dropped when a later one takes its place.
        dropped.sort_unstable();
        let mut dropped = dropped.into_iter().peekable();
        let passes =
            BooleanBuffer::collect_bool(batch.num_rows(), |row| dropped.next_if_eq(&row).is_none());
        self.emitter.filter(batch, &BooleanArray::from(passes))
    }
}

impl LastMatch {
    /// Whether it is in the file that `key` stands for in `files`.
    fn is_in(&mut self, files: &FileColumn, key: usize) -> bool {
        if self.key == Some(key) {
            return true;
        }
        let same = files.path(key) == &*self.file;
        if same {
            self.key = Some(key);
        }
        same
    }
}
