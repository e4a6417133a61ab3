//! The rows of a batch by file, so that the state of a file is fetched once a batch.

use std::ops::Range;

use crate::files::FileId;

/// Rows of one batch, grouped by file. Reused from batch to batch.
#[derive(Debug, Default)]
pub(super) struct Groups {
    pairs: Vec<(FileId, usize)>,
    rows: Vec<usize>,
    ranges: Vec<(FileId, Range<usize>)>,
}

impl Groups {
    /// Groups `pairs` of a file and a row. The rows of a file keep their order.
    pub(super) fn set(&mut self, pairs: impl Iterator<Item = (FileId, usize)>) {
        self.pairs.clear();
        self.pairs.extend(pairs);
        // Rows of a file mostly stand together, which this sort takes advantage of.
        self.pairs.sort_by_key(|(file, _)| *file);

        self.rows.clear();
        self.rows.extend(self.pairs.iter().map(|(_, row)| *row));
        self.ranges.clear();
        let mut start = 0;
        for group in self.pairs.chunk_by(|a, b| a.0 == b.0) {
            let end = start + group.len();
            self.ranges.push((group[0].0, start..end));
            start = end;
        }
    }

    /// Number of rows in all groups.
    pub(super) fn num_rows(&self) -> usize {
        self.rows.len()
    }

    /// Each file with its rows.
    pub(super) fn iter(&self) -> impl Iterator<Item = (FileId, &[usize])> {
        let groups = self.ranges.iter();
        groups.map(|(file, range)| (*file, &self.rows[range.clone()]))
    }

    /// The file of each of a batch's `num_rows` rows; rows in no group get an arbitrary one.
    pub(super) fn file_of_each_row(&self, num_rows: usize) -> Vec<FileId> {
        let mut files = vec![0; num_rows];
        for (file, row) in &self.pairs {
            files[*row] = *file;
        }
        files
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_interleaved_rows_in_their_order() {
        let mut groups = Groups::default();
        groups.set([(3, 0), (1, 1), (3, 2), (1, 4)].into_iter());
        assert_eq!(groups.num_rows(), 4);
        let grouped: Vec<_> = groups.iter().collect();
        assert_eq!(grouped, [(1, &[1, 4][..]), (3, &[0, 2])]);
        let files = groups.file_of_each_row(5);
        assert_eq!([files[0], files[1], files[2], files[4]], [3, 1, 3, 1]);
        groups.set(std::iter::empty());
        assert_eq!(groups.iter().count(), 0);
    }
}
