//! Sources of a MERGE: in memory, or streamed and read once, to the end or not.

use std::fmt;
use std::sync::{Arc, Mutex};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::catalog::MemTable;
use datafusion::catalog::streaming::StreamingTable;
use datafusion::error::DataFusionError;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::PartitionStream;
use datafusion::prelude::{DataFrame, SessionContext};
use futures::{StreamExt as _, stream};
use tokio::sync::Notify;

use crate::row::Row;
use crate::table::{batch_of, schema};

/// How one partition of a streamed source ends.
#[derive(Debug, Clone)]
pub enum End {
    Complete,
    /// With an error of this text.
    Error(&'static str),
    /// Never; whoever waits is told once the last batch was taken.
    Stall(Arc<Notify>),
}

/// One partition of a streamed source. It can be read once, as a network stream can.
struct Partition {
    schema: SchemaRef,
    batches: Mutex<Option<Vec<RecordBatch>>>,
    end: End,
}

impl fmt::Debug for Partition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Partition")
            .field("end", &self.end)
            .finish_non_exhaustive()
    }
}

impl PartitionStream for Partition {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _ctx: Arc<TaskContext>) -> SendableRecordBatchStream {
        let batches = self
            .batches
            .lock()
            .expect("no panic while it is held")
            .take();
        let batches = match batches {
            Some(batches) => stream::iter(batches.into_iter().map(Ok)).left_stream(),
            None => stream::iter([Err(DataFusionError::Execution(
                "a streamed source was read twice".to_owned(),
            ))])
            .right_stream(),
        };
        let end = match self.end.clone() {
            End::Complete => stream::empty().boxed(),
            End::Error(message) => {
                stream::iter([Err(DataFusionError::Execution(message.to_owned()))]).boxed()
            }
            End::Stall(reached) => stream::once(async move {
                reached.notify_one();
                std::future::pending().await
            })
            .boxed(),
        };
        Box::pin(RecordBatchStreamAdapter::new(
            Arc::clone(&self.schema),
            batches.chain(end),
        ))
    }
}

/// A source in memory, its rows dealt to `partitions` in batches of `batch_rows`.
pub fn in_memory(rows: &[Row], partitions: usize, batch_rows: usize) -> DataFrame {
    let table = MemTable::try_new(schema(), deal(rows, partitions, batch_rows))
        .expect("batches of the source's schema");
    SessionContext::new()
        .read_table(Arc::new(table))
        .expect("a table in memory")
}

/// A streamed source, its rows dealt to as many partitions as there are ends.
pub fn streamed(rows: &[Row], ends: &[End], batch_rows: usize) -> DataFrame {
    let partitions = deal(rows, ends.len(), batch_rows)
        .into_iter()
        .zip(ends)
        .map(|(batches, end)| {
            Arc::new(Partition {
                schema: schema(),
                batches: Mutex::new(Some(batches)),
                end: end.clone(),
            }) as Arc<dyn PartitionStream>
        })
        .collect();
    let table =
        StreamingTable::try_new(schema(), partitions).expect("partitions of the source's schema");
    SessionContext::new()
        .read_table(Arc::new(table))
        .expect("a streaming table")
}

/// Deals batches of consecutive rows to the partitions in turn.
fn deal(rows: &[Row], partitions: usize, batch_rows: usize) -> Vec<Vec<RecordBatch>> {
    let mut dealt = vec![Vec::new(); partitions];
    for (position, rows) in rows.chunks(batch_rows).enumerate() {
        dealt[position % partitions].push(batch_of(rows));
    }
    dealt
}
