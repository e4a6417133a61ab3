//! Rows in closed form: every value follows from a row's id and version.

use std::ops::Range;
use std::sync::Arc;

use anyhow::{Result, bail};
use arrow::array::{ArrayRef, Float64Array, Int64Array, StringBuilder, TimestampMicrosecondArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use arrow::record_batch::RecordBatch;

use crate::workload::Workload;

/// Rows per batch of generated data, the way an Arrow table arrives in a few large chunks.
const BATCH_ROWS: u64 = 65_536;

/// Shuffles the source: `n * STRIDE % rows` visits every row once, since it is a prime that
/// divides none of the row counts.
const STRIDE: u64 = 479_001_599;

/// 2024-01-01 in microseconds.
const EPOCH: i64 = 1_704_067_200_000_000;

#[derive(Clone, Copy)]
struct Row {
    id: u64,
    version: i64,
}

/// The target rows of a range of ids, as they are before the MERGE.
pub(crate) fn target(workload: &Workload, ids: Range<u64>) -> Result<Vec<RecordBatch>> {
    batches(workload, ids, |id| Row {
        id,
        version: workload.target_version(),
    })
    .collect()
}

/// The source rows, shuffled.
pub(crate) fn source(workload: &Workload) -> Result<Vec<RecordBatch>> {
    batches(workload, 0..workload.source_rows, |n| {
        let id = workload.source_id(n * STRIDE % workload.source_rows);
        let version = workload
            .source_version(id)
            .expect("source_id only names rows of the source");
        Row { id, version }
    })
    .collect()
}

/// The rows the table must hold after the MERGE, one batch at a time.
pub(crate) fn expected(workload: &Workload) -> impl Iterator<Item = Result<RecordBatch>> + '_ {
    batches(workload, 0..workload.final_rows(), |id| Row {
        id,
        version: workload.final_version(id),
    })
}

pub(crate) fn schema(workload: &Workload) -> Result<SchemaRef> {
    let fields = workload.columns.iter().map(|name| {
        let data_type = match *name {
            "key" | "payload" => DataType::Utf8,
            "part" | "version" | "rowversion" => DataType::Int64,
            "amount" => DataType::Float64,
            "updated_at" => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
            other => bail!("no data is defined for column {other}"),
        };
        Ok(Field::new(*name, data_type, true))
    });
    Ok(Arc::new(Schema::new(fields.collect::<Result<Vec<_>>>()?)))
}

fn batches<'a>(
    workload: &'a Workload,
    range: Range<u64>,
    row: impl Fn(u64) -> Row + 'a,
) -> impl Iterator<Item = Result<RecordBatch>> + 'a {
    let end = range.end;
    range.step_by(BATCH_ROWS as usize).map(move |start| {
        let rows: Vec<Row> = (start..end.min(start + BATCH_ROWS)).map(&row).collect();
        batch(workload, &rows)
    })
}

fn batch(workload: &Workload, rows: &[Row]) -> Result<RecordBatch> {
    let schema = schema(workload)?;
    let columns = workload
        .columns
        .iter()
        .map(|name| column(workload, name, rows))
        .collect::<Result<Vec<_>>>()?;
    Ok(RecordBatch::try_new(schema, columns)?)
}

fn column(workload: &Workload, name: &str, rows: &[Row]) -> Result<ArrayRef> {
    Ok(match name {
        "key" => strings(rows, 16, |row| workload.key(row.id)),
        "version" | "rowversion" => {
            Arc::new(Int64Array::from_iter_values(rows.iter().map(|r| r.version)))
        }
        "part" => Arc::new(Int64Array::from_iter_values(
            rows.iter().map(|row| workload.partition(row.id) as i64),
        )),
        "amount" => Arc::new(Float64Array::from_iter_values(rows.iter().map(amount))),
        "updated_at" => Arc::new(
            TimestampMicrosecondArray::from_iter_values(rows.iter().map(updated_at))
                .with_timezone("UTC"),
        ),
        "payload" => strings(rows, 40, payload),
        other => bail!("no data is defined for column {other}"),
    })
}

fn strings(rows: &[Row], width: usize, value: impl Fn(&Row) -> String) -> ArrayRef {
    let mut builder = StringBuilder::with_capacity(rows.len(), rows.len() * width);
    for row in rows {
        builder.append_value(value(row));
    }
    Arc::new(builder.finish())
}

fn amount(row: &Row) -> f64 {
    (scramble(row.id.wrapping_add(row.version as u64)) % 10_000_000) as f64 / 100.0
}

fn updated_at(row: &Row) -> i64 {
    EPOCH + row.id as i64 * 1_000_000 + row.version
}

/// Forty characters that do not compress to nothing.
fn payload(row: &Row) -> String {
    let first = scramble(row.id ^ ((row.version as u64) << 48));
    let second = scramble(first);
    format!("{first:016x}{second:016x}{:08}", row.id % 100_000_000)
}

/// A bijection of the 64-bit numbers that leaves no visible order (the SplitMix64 finaliser).
pub(crate) fn scramble(n: u64) -> u64 {
    let n = n.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let n = (n ^ (n >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let n = (n ^ (n >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ (n >> 31)
}
