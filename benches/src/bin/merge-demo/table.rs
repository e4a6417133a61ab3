//! The target: a real local Delta table, written by deltalake-core itself.

use std::path::Path;

use anyhow::{Context, Result, anyhow, ensure};
use deltalake_core::DeltaTable;
use deltalake_core::protocol::SaveMode;
use url::Url;

use crate::data;
use crate::workload::Workload;

pub(crate) async fn open(dir: &Path) -> Result<DeltaTable> {
    let path = std::path::absolute(dir)?;
    let url = Url::from_directory_path(&path)
        .map_err(|()| anyhow!("{} is no usable table location", path.display()))?;
    DeltaTable::try_from_url(url)
        .await
        .with_context(|| format!("the table in {} does not open", dir.display()))
}

/// Writes the target of a workload: one append per file, or one of all partitions.
pub(crate) async fn prepare(workload: &Workload, dir: &Path) -> Result<()> {
    std::fs::create_dir_all(dir)
        .with_context(|| format!("the table directory {} cannot be made", dir.display()))?;
    let mut table = open(dir).await?;
    let appends = match workload.is_partitioned() {
        true => 1,
        false => workload.target_files,
    };
    let rows = workload.target_rows / appends;
    for append in 0..appends {
        let batches = data::target(workload, append * rows..(append + 1) * rows)?;
        let mut write = table.write(batches).with_save_mode(SaveMode::Append);
        if workload.is_partitioned() {
            write = write.with_partition_columns(["part"]);
        }
        if workload.has_change_data() && append == 0 {
            write = write.with_configuration([("delta.enableChangeDataFeed", Some("true"))]);
        }
        table = write.await.context("writing the target failed")?;
    }
    let files = table.get_file_uris()?.count() as u64;
    ensure!(
        files == workload.target_files,
        "{} should have {} data files, the writer made {files}",
        workload.name,
        workload.target_files
    );
    eprintln!(
        "{}: {} rows in {files} data files",
        workload.name, workload.target_rows
    );
    Ok(())
}
