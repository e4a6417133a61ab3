//! The items of upstream's module of this name that its duplicate check uses.

use arrow::array::{DictionaryArray, RecordBatch, StringArray, TypedDictionaryArray};
use arrow::datatypes::UInt16Type;

use crate::DeltaTableError;

pub(crate) const PATH_COLUMN: &str = "__delta_rs_path";

/// The column that names the data file of each row.
pub(crate) fn get_path_column<'a>(
    batch: &'a RecordBatch,
    name: &str,
) -> Result<TypedDictionaryArray<'a, UInt16Type, StringArray>, DeltaTableError> {
    let column = batch.column_by_name(name);
    let column = column.and_then(|column| {
        let column = column.as_any();
        column.downcast_ref::<DictionaryArray<UInt16Type>>()
    });
    column
        .and_then(DictionaryArray::downcast_dict)
        .ok_or_else(|| DeltaTableError::Generic(format!("{name} is no dictionary of paths")))
}
