//! The contract with the patched core: which columns MERGE hands over, and what they mean.

use std::sync::Arc;

use arrow::array::{Array, AsArray, DictionaryArray, Int32Array, RecordBatch, StringArray};
use arrow::array::{PrimitiveArray, UInt64Array};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{ArrowPrimitiveType, Schema, UInt16Type, UInt64Type};
use datafusion::common::{Result, internal_datafusion_err};

/// Column that holds the [`MatchClass`] of a row, as `Int32`.
pub const MATCH_CLASS_COLUMN: &str = "__delta_rs_match_cardinality_class";

/// Column, of type `Boolean`, that is NULL in rows that are inserted.
pub const TARGET_INSERT_COLUMN: &str = "__delta_rs_target_insert";
/// Column, of type `Boolean`, that is NULL in rows that an update has changed.
pub const TARGET_UPDATE_COLUMN: &str = "__delta_rs_target_update";
/// Column, of type `Boolean`, that is NULL in rows that are deleted.
pub const TARGET_DELETE_COLUMN: &str = "__delta_rs_target_delete";

/// What a row that left MERGE's join means for the duplicate check.
///
/// The discriminants are the values of [`MATCH_CLASS_COLUMN`]. NULL and every other value mean
/// [`MatchClass::Ignore`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub enum MatchClass {
    /// Not a match: a row of the source alone or of the target alone.
    Ignore = 0,
    /// A match that no `WHEN MATCHED` clause acts on.
    Noop = 1,
    /// A match that a `WHEN MATCHED THEN DELETE` without a condition acts on.
    UnconditionalDelete = 2,
    /// A match that an update, or a delete with a condition, acts on.
    Action = 3,
}

impl MatchClass {
    pub(crate) fn from_i32(class: i32) -> Self {
        match class {
            1 => Self::Noop,
            2 => Self::UnconditionalDelete,
            3 => Self::Action,
            _ => Self::Ignore,
        }
    }
}

/// Positions of the columns that identify a target row and class its match.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MatchColumns {
    /// `Dictionary(UInt16, Utf8)`: the file of the target row, NULL for rows of the source alone.
    pub(crate) file: usize,
    /// `UInt64`: a number that no other row of the same file has.
    pub(crate) ordinal: usize,
    /// `Int32`: see [`MATCH_CLASS_COLUMN`].
    pub(crate) class: usize,
}

impl MatchColumns {
    pub(crate) fn try_new(schema: &Schema, file: &str, ordinal: &str) -> Result<Self> {
        Ok(Self {
            file: schema.index_of(file)?,
            ordinal: schema.index_of(ordinal)?,
            class: schema.index_of(MATCH_CLASS_COLUMN)?,
        })
    }

    pub(crate) fn files<'a>(&self, batch: &'a RecordBatch) -> Result<FileColumn<'a>> {
        FileColumn::try_new(batch, self.file)
    }

    pub(crate) fn ordinals<'a>(&self, batch: &'a RecordBatch) -> Result<&'a UInt64Array> {
        primitive::<UInt64Type>(batch, self.ordinal)
    }

    pub(crate) fn classes<'a>(&self, batch: &'a RecordBatch) -> Result<&'a Int32Array> {
        primitive(batch, self.class)
    }
}

/// Positions of the columns that say what becomes of a row.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ChangeColumns {
    /// As [`MatchColumns::file`].
    pub(crate) file: usize,
    insert: usize,
    update: usize,
    delete: usize,
}

impl ChangeColumns {
    pub(crate) fn try_new(schema: &Schema, file: &str) -> Result<Self> {
        Ok(Self {
            file: schema.index_of(file)?,
            insert: schema.index_of(TARGET_INSERT_COLUMN)?,
            update: schema.index_of(TARGET_UPDATE_COLUMN)?,
            delete: schema.index_of(TARGET_DELETE_COLUMN)?,
        })
    }

    pub(crate) fn files<'a>(&self, batch: &'a RecordBatch) -> Result<FileColumn<'a>> {
        FileColumn::try_new(batch, self.file)
    }

    /// The rows that are inserted: all that are NULL in it, or none if there is no such row.
    pub(crate) fn inserted(&self, batch: &RecordBatch) -> Option<NullBuffer> {
        batch.column(self.insert).logical_nulls()
    }

    /// The rows that change a file: all that are NULL in it, or none if there is no such row.
    pub(crate) fn changed(&self, batch: &RecordBatch) -> Option<NullBuffer> {
        let nulls = |column| batch.column(column).logical_nulls();
        let updated = NullBuffer::union(nulls(self.update).as_ref(), nulls(self.delete).as_ref());
        NullBuffer::union(updated.as_ref(), self.inserted(batch).as_ref())
    }
}

/// The file of each row: a dictionary of paths.
pub(crate) struct FileColumn<'a> {
    dictionary: &'a DictionaryArray<UInt16Type>,
    paths: &'a StringArray,
}

impl<'a> FileColumn<'a> {
    fn try_new(batch: &'a RecordBatch, column: usize) -> Result<Self> {
        let array = batch.column(column);
        let unexpected = || {
            internal_datafusion_err!(
                "column {} should be a dictionary of paths, it is {}",
                batch.schema_ref().field(column).name(),
                array.data_type()
            )
        };
        let dictionary = array
            .as_dictionary_opt::<UInt16Type>()
            .ok_or_else(unexpected)?;
        let paths = dictionary
            .values()
            .as_string_opt::<i32>()
            .ok_or_else(unexpected)?;
        Ok(Self { dictionary, paths })
    }

    /// Number of paths in the dictionary, used by a row or not.
    pub(crate) fn num_paths(&self) -> usize {
        self.paths.len()
    }

    /// The dictionary key of `row`, or `None` for a row without a file.
    pub(crate) fn key(&self, row: usize) -> Option<usize> {
        let key = self.dictionary.key(row)?;
        self.paths.is_valid(key).then_some(key)
    }

    pub(crate) fn path(&self, key: usize) -> &'a str {
        self.paths.value(key)
    }
}

/// The inverse of [`FileColumn`]: paths by number, as a column of the type the core uses.
pub(crate) fn file_column(keys: Vec<u16>, paths: Vec<&str>) -> Result<DictionaryArray<UInt16Type>> {
    let paths = Arc::new(StringArray::from(paths));
    Ok(DictionaryArray::try_new(keys.into(), paths)?)
}

fn primitive<T: ArrowPrimitiveType>(
    batch: &RecordBatch,
    column: usize,
) -> Result<&PrimitiveArray<T>> {
    batch.column(column).as_primitive_opt().ok_or_else(|| {
        internal_datafusion_err!(
            "column {} should be {}, it is {}",
            batch.schema_ref().field(column).name(),
            T::DATA_TYPE,
            batch.column(column).data_type()
        )
    })
}
