//! Files as numbers, so that a row's file costs four bytes and no hashing.

use crate::columns::FileColumn;

/// Number of a file, in order of first appearance.
pub(crate) type FileId = u32;

/// Numbers of the files in a batch's dictionary, each looked up once, those not used never.
pub(crate) struct DictionaryFiles<'a> {
    column: &'a FileColumn<'a>,
    ids: Vec<Option<FileId>>,
}

impl<'a> DictionaryFiles<'a> {
    pub(crate) fn new(column: &'a FileColumn<'a>) -> Self {
        Self {
            ids: vec![None; column.num_paths()],
            column,
        }
    }

    /// The file of `row`, numbered by `intern`, or `None` for a row without a file.
    pub(crate) fn get(
        &mut self,
        row: usize,
        intern: impl FnOnce(&str) -> FileId,
    ) -> Option<FileId> {
        let key = self.column.key(row)?;
        let id = self.ids[key].get_or_insert_with(|| intern(self.column.path(key)));
        Some(*id)
    }
}
