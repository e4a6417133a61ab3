//! Giant batches.

use arrow::array::RecordBatch;

/// `batch` in pieces of `batch_size` rows, without a copy.
///
/// A join may hand over everything it has left as one batch. Whatever holds, filters or writes
/// rows is bounded by the size of a batch.
pub(crate) fn slices(batch: RecordBatch, batch_size: usize) -> impl Iterator<Item = RecordBatch> {
    let starts = (0..batch.num_rows()).step_by(batch_size.max(1));
    starts.map(move |start| match batch.num_rows() <= batch_size {
        true => batch.clone(),
        false => batch.slice(start, batch_size.min(batch.num_rows() - start)),
    })
}
