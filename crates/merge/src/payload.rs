//! Deferred rows as they are stored: the file is a number, not a dictionary of paths.
//!
//! A number is all that is needed when the rows come back. It is also smaller, and it spares
//! merging the dictionaries of many batches in memory and on disk.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, RecordBatch, UInt32Array};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, UInt32Type};
use datafusion::common::{Result, internal_datafusion_err};

use crate::columns::file_column;
use crate::deferred::Stored;
use crate::files::FileId;

/// Translates between rows of the input and rows as they are stored.
pub(crate) struct Payload {
    input: SchemaRef,
    stored: Stored,
}

impl Payload {
    /// For rows of schema `input`, whose file is in the column at `file_column`.
    pub(crate) fn new(input: SchemaRef, file_column: usize) -> Self {
        let mut fields = input.fields().to_vec();
        let name = fields[file_column].name();
        fields[file_column] = Arc::new(Field::new(name, DataType::UInt32, false));
        let stored = Stored {
            schema: Arc::new(Schema::new(fields)),
            file_column,
        };
        Self { input, stored }
    }

    pub(crate) fn stored(&self) -> Stored {
        self.stored.clone()
    }

    /// `batch` to be stored, given the file of each of its rows.
    pub(crate) fn store(&self, batch: &RecordBatch, files: Vec<FileId>) -> Result<RecordBatch> {
        let files = Arc::new(UInt32Array::from(files));
        self.with_file_column(batch, &self.stored.schema, files)
    }

    /// The files of the rows of a stored batch.
    pub(crate) fn files<'a>(&self, stored: &'a RecordBatch) -> &'a [FileId] {
        let files = stored.column(self.stored.file_column);
        files.as_primitive::<UInt32Type>().values()
    }

    /// The rows of the input that `stored` was made of, given the path of each file.
    pub(crate) fn restore<'a>(
        &self,
        stored: &RecordBatch,
        path: impl Fn(FileId) -> &'a str,
    ) -> Result<RecordBatch> {
        let mut keys: HashMap<FileId, usize> = HashMap::new();
        let mut paths = Vec::new();
        let dictionary = self.files(stored).iter().map(|file| {
            let key = *keys.entry(*file).or_insert_with(|| {
                paths.push(path(*file));
                paths.len() - 1
            });
            let too_many = |_| internal_datafusion_err!("a batch has rows of {key} files");
            u16::try_from(key).map_err(too_many)
        });
        let dictionary = dictionary.collect::<Result<_>>()?;
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
        columns[self.stored.file_column] = files;
        Ok(RecordBatch::try_new(Arc::clone(schema), columns)?)
    }
}
