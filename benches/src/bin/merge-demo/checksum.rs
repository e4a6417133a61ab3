//! A checksum of a table's content that does not depend on the order of its rows.
//!
//! Each row is hashed by its values and the hashes are added up, so files, row groups and the
//! order of the writer make no difference, while a row lost, doubled or changed does.

use anyhow::{Context, Result, ensure};
use arrow::compute::cast;
use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;
use arrow::row::{RowConverter, SortField};
use deltalake_core::DeltaTable;
use futures::StreamExt;

use crate::data;
use crate::workload::Workload;

/// The sum over all rows, and their number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Content {
    pub(crate) rows: u64,
    pub(crate) checksum: u64,
}

/// Adds up batches after casting them to one schema, since a scan may return strings as views.
struct Summer {
    schema: SchemaRef,
    converter: RowConverter,
    content: Content,
}

impl Summer {
    fn try_new(schema: SchemaRef) -> Result<Self> {
        let fields = schema.fields().iter();
        let fields = fields.map(|field| SortField::new(field.data_type().clone()));
        Ok(Self {
            converter: RowConverter::new(fields.collect())?,
            schema,
            content: Content {
                rows: 0,
                checksum: 0,
            },
        })
    }

    fn add(&mut self, batch: &RecordBatch) -> Result<()> {
        let columns = self.schema.fields().iter().map(|field| {
            let column = batch
                .column_by_name(field.name())
                .with_context(|| format!("column {} is missing in the table", field.name()))?;
            Ok(cast(column, field.data_type())?)
        });
        let columns = columns.collect::<Result<Vec<_>>>()?;
        for row in &self.converter.convert_columns(&columns)? {
            self.content.checksum = self.content.checksum.wrapping_add(hash(row.as_ref()));
        }
        self.content.rows += batch.num_rows() as u64;
        Ok(())
    }
}

fn hash(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let mut hash = bytes.len() as u64;
    for word in words {
        hash = data::scramble(hash ^ u64::from_le_bytes(*word));
    }
    for byte in rest {
        hash = data::scramble(hash ^ u64::from(*byte));
    }
    hash
}

/// Reads the whole table and compares it with what the workload says it must hold.
pub(crate) async fn verify(workload: &Workload, table: &DeltaTable) -> Result<Content> {
    let schema = data::schema(workload)?;

    let mut found = Summer::try_new(schema.clone())?;
    let (_, mut stream) = table.scan_table().await?;
    while let Some(batch) = stream.next().await {
        found.add(&batch?)?;
    }

    let mut expected = Summer::try_new(schema)?;
    for batch in data::expected(workload) {
        expected.add(&batch?)?;
    }

    ensure!(
        found.content == expected.content,
        "the table holds {:x?} after the merge, but {} must end with {:x?}",
        found.content,
        workload.name,
        expected.content
    );
    Ok(found.content)
}
