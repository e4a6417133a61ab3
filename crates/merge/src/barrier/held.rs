//! How many rows of which file a partition holds in memory.

use crate::files::FileId;

/// Decides when it pays to go through the rows held for those whose file has opened.
///
/// Each time at least half of the rows leave, so that a row is looked at twice on average, however
/// many files open.
#[derive(Debug, Default)]
pub(super) struct Held {
    rows_of: Vec<usize>,
    rows: usize,
    /// Rows of files that have opened since.
    free: usize,
}

impl Held {
    /// A row of the closed file `file` is held.
    pub(super) fn add(&mut self, file: FileId) {
        let file = file as usize;
        if self.rows_of.len() <= file {
            self.rows_of.resize(file + 1, 0);
        }
        self.rows_of[file] += 1;
        self.rows += 1;
    }

    /// `file` has opened.
    pub(super) fn open(&mut self, file: FileId) {
        self.free += self.rows_of.get(file as usize).copied().unwrap_or(0);
    }

    /// A row of the open file `file` has left.
    pub(super) fn remove(&mut self, file: FileId) {
        self.rows_of[file as usize] -= 1;
        self.rows -= 1;
        self.free -= 1;
    }

    /// All rows went to disk.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    pub(super) fn worth_a_sweep(&self) -> bool {
        self.free > 0 && 2 * self.free >= self.rows
    }
}
