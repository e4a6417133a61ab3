//! What the duplicate check reads: joined rows with the marker columns of MERGE.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, DictionaryArray, Float64Array, Int32Array, Int64Array, RecordBatch, StringViewArray,
    TimestampMicrosecondArray, UInt64Array,
};
use arrow::datatypes::UInt16Type;

use crate::delta_datafusion::PATH_COLUMN;
use crate::upstream::{
    MatchParticipationClass as Class, TARGET_MATCH_CARDINALITY_CLASS_COLUMN,
    TARGET_ROW_ORDINAL_IN_FILE_COLUMN,
};

pub(crate) const ROWS: u64 = 200_000;

/// The batch size of a session nobody has configured.
const BATCH_ROWS: u64 = 8_192;

/// Each target row is matched once, in the order of a table that is read file by file.
pub(crate) struct Input {
    /// One match in so many acts on its target row, the others do nothing.
    action_every: u64,
    files: u64,
    /// Rows of one file that follow each other.
    run: u64,
}

impl Input {
    /// "Update only what changed", with 1 % changed.
    pub(crate) fn noop_heavy() -> Self {
        Self {
            action_every: 100,
            files: 1,
            run: ROWS,
        }
    }

    /// Every match updates.
    pub(crate) fn action_only() -> Self {
        Self {
            action_every: 1,
            files: 1,
            run: ROWS,
        }
    }

    /// As after a shuffle: short runs of 200 files, some thirty in each batch.
    pub(crate) fn many_files() -> Self {
        Self {
            action_every: 10,
            files: 200,
            run: 250,
        }
    }

    pub(crate) fn batches(&self) -> Vec<RecordBatch> {
        (0..ROWS)
            .step_by(BATCH_ROWS as usize)
            .map(|start| self.batch(start..ROWS.min(start + BATCH_ROWS)))
            .collect()
    }

    fn batch(&self, rows: std::ops::Range<u64>) -> RecordBatch {
        let files = rows.clone().map(|row| self.file(row));
        let files: Vec<String> = files
            .map(|file| format!("part-{file:05}.parquet"))
            .collect();
        let files: DictionaryArray<UInt16Type> = files.iter().map(String::as_str).collect();
        let ordinals = UInt64Array::from_iter_values(rows.clone().map(|row| self.ordinal(row)));
        let classes = Int32Array::from_iter_values(rows.clone().map(|row| self.class(row) as i32));

        let payload: [(&str, ArrayRef); 5] = [
            ("key", strings(rows.clone(), |row| format!("{row:016x}"))),
            (
                "version",
                Arc::new(Int64Array::from_iter_values(
                    rows.clone().map(|row| row as i64),
                )),
            ),
            (
                "amount",
                Arc::new(Float64Array::from_iter_values(
                    rows.clone().map(|row| row as f64),
                )),
            ),
            (
                "updated_at",
                Arc::new(TimestampMicrosecondArray::from_iter_values(
                    rows.clone().map(|row| row as i64),
                )),
            ),
            ("payload", strings(rows, |row| format!("{row:040}"))),
        ];
        let markers: [(&str, ArrayRef); 3] = [
            (PATH_COLUMN, Arc::new(files)),
            (TARGET_ROW_ORDINAL_IN_FILE_COLUMN, Arc::new(ordinals)),
            (TARGET_MATCH_CARDINALITY_CLASS_COLUMN, Arc::new(classes)),
        ];
        RecordBatch::try_from_iter(payload.into_iter().chain(markers)).expect("columns fit")
    }

    fn file(&self, row: u64) -> u64 {
        row / self.run % self.files
    }

    /// Counts the rows of each file, over all of its runs.
    fn ordinal(&self, row: u64) -> u64 {
        row / (self.run * self.files) * self.run + row % self.run
    }

    fn class(&self, row: u64) -> Class {
        if row.is_multiple_of(self.action_every) {
            Class::MatchedAction
        } else {
            Class::MatchedNoop
        }
    }
}

fn strings(rows: std::ops::Range<u64>, value: impl Fn(u64) -> String) -> ArrayRef {
    Arc::new(StringViewArray::from_iter_values(rows.map(value)))
}
