//! Updates only what changed, in a table in a temporary directory.

use std::error::Error;
use std::sync::Arc;

use arrow::array::{Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema};
use datafusion::prelude::{SessionContext, col};
use deltalake_core::DeltaTable;
use url::Url;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    let url = Url::from_directory_path(directory.path()).map_err(|()| "not a directory")?;
    let table = DeltaTable::try_from_url(url).await?;
    let table = table.write([rows(&[1, 2, 3], 1)?]).await?;

    let source = SessionContext::new().read_batch(rows(&[2, 3, 4], 2)?)?;
    let (_, metrics) = table
        .merge(source, col("target.id").eq(col("source.id")))
        .with_source_alias("source")
        .with_target_alias("target")
        .with_deferred_rows_memory_limit(64 * 1024 * 1024)
        .when_matched_update(|update| {
            update
                .predicate(col("source.version").gt(col("target.version")))
                .update("version", col("source.version"))
        })?
        .when_not_matched_insert(|insert| {
            insert
                .set("id", col("source.id"))
                .set("version", col("source.version"))
        })?
        .await?;
    println!("{metrics:#?}");
    Ok(())
}

fn rows(ids: &[i64], version: i64) -> Result<RecordBatch, Box<dyn Error>> {
    let schema = Schema::new(vec![
        Field::new("id", DataType::Int64, false),
        Field::new("version", DataType::Int64, false),
    ]);
    let versions = vec![version; ids.len()];
    let (ids, versions) = (Int64Array::from(ids.to_vec()), Int64Array::from(versions));
    let batch = RecordBatch::try_new(Arc::new(schema), vec![Arc::new(ids), Arc::new(versions)]);
    Ok(batch?)
}
