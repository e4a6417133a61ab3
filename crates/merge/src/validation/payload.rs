//! Deferred rows as they are stored: the file is a number, not a dictionary of paths.
//!
//! A number is all the check needs when the rows come back. It is also smaller, and it spares
//! merging the dictionaries of many batches in memory and on disk.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, RecordBatch, UInt32Array};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, UInt32Type};
use datafusion::common::Result;

use crate::columns::{MatchColumns, file_column};
use crate::match_state::FileId;

/// Translates between rows of the input and rows as they are stored.
pub(super) struct Payload {
    input: SchemaRef,
    stored: SchemaRef,
    columns: MatchColumns,
}

impl Payload {
    pub(super) fn new(input: SchemaRef, columns: MatchColumns) -> Self {
        let mut fields = input.fields().to_vec();
        let name = fields[columns.file].name();
        fields[columns.file] = Arc::new(Field::new(name, DataType::UInt32, false));
        Self {
            stored: Arc::new(Schema::new(fields)),
            input,
            columns,
        }
    }

    pub(super) fn stored_schema(&self) -> SchemaRef {
        Arc::clone(&self.stored)
    }

    /// `batch` to be stored, given the file of each of its rows.
    pub(super) fn store(&self, batch: &RecordBatch, files: Vec<FileId>) -> Result<RecordBatch> {
        let files = Arc::new(UInt32Array::from(files));
        self.with_file_column(batch, &self.stored, files)
    }

    /// The files of the rows of a stored batch.
    pub(super) fn files<'a>(&self, stored: &'a RecordBatch) -> &'a [FileId] {
        let files = stored.column(self.columns.file);
        files.as_primitive::<UInt32Type>().values()
    }

    /// The rows of the input that `stored` was made of, given the path of each file.
    pub(super) fn restore<'a>(
        &self,
        stored: &RecordBatch,
        path: impl Fn(FileId) -> &'a str,
    ) -> Result<RecordBatch> {
        let mut keys: HashMap<FileId, u16> = HashMap::new();
        let mut paths = Vec::new();
        let dictionary = self.files(stored).iter().map(|file| {
            *keys.entry(*file).or_insert_with(|| {
                paths.push(path(*file));
                (paths.len() - 1) as u16
            })
        });
        let dictionary = dictionary.collect();
        let files = Arc::new(file_column(dictionary, paths)?);
        self.with_file_column(stored, &self.input, files)
    }

    fn with_file_column(
        &self,
        batch: &RecordBatch,
        schema: &SchemaRef,
        files: ArrayRef,
    ) -> Result<RecordBatch> {
        let mut columns = batch.columns().to_vec();
        columns[self.columns.file] = files;
        Ok(RecordBatch::try_new(Arc::clone(schema), columns)?)
    }
}
