//! Delta tables in temporary directories, made from rows and read back as rows.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch, StringArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Int64Type, Schema, SchemaRef};
use datafusion::datasource::TableProvider;
use datafusion::prelude::SessionContext;
use deltalake_core::delta_datafusion::DeltaCdfTableProvider;
use deltalake_core::kernel::Version;
use deltalake_core::kernel::{DataType as DeltaType, PrimitiveType};
use deltalake_core::parquet::file::properties::WriterProperties;
use deltalake_core::protocol::SaveMode;
use deltalake_core::{DeltaTable, TableProperty};
use serde_json::Value;
use tempfile::TempDir;
use url::Url;

use crate::deletion_vector;
use crate::oracle::Change;
use crate::row::{Column, Row};

/// How a table is laid out.
#[derive(Debug, Clone, Default)]
pub struct Layout {
    /// Partitioned by `part`.
    pub partitioned: bool,
    /// With the change data feed.
    pub change_data: bool,
    /// Rows per row group, when not the writer's default.
    pub row_group_rows: Option<usize>,
    /// Ids of appended rows that deletion vectors have deleted since. Not for a partitioned table.
    pub deleted: Vec<i64>,
}

impl Layout {
    fn keeps(&self, row: &Row) -> bool {
        row.id.is_none_or(|id| !self.deleted.contains(&id))
    }
}

/// A Delta table in a directory of its own.
pub struct TestTable {
    directory: TempDir,
}

impl TestTable {
    /// A table with one commit for each element of `appends`.
    pub async fn create(layout: &Layout, appends: &[Vec<Row>]) -> Self {
        let this = Self {
            directory: tempfile::tempdir().expect("a temporary directory"),
        };
        let mut table = this.create_empty(layout).await;
        for rows in appends {
            let mut write = table
                .write([batch_of(rows)])
                .with_save_mode(SaveMode::Append);
            if let Some(rows) = layout.row_group_rows {
                let properties = WriterProperties::builder()
                    .set_max_row_group_row_count(Some(rows))
                    .build();
                write = write.with_writer_properties(properties);
            }
            table = write.await.expect("an append");
        }
        let files = table.get_file_uris().expect("a loaded table").count();
        assert_eq!(
            files,
            files_of(layout, appends).len(),
            "an append must write one file, or one for each partition value"
        );
        if !layout.deleted.is_empty() {
            deletion_vector::delete(this.path(), &layout.deleted);
        }
        this
    }

    async fn create_empty(&self, layout: &Layout) -> DeltaTable {
        let long = || DeltaType::Primitive(PrimitiveType::Long);
        let string = || DeltaType::Primitive(PrimitiveType::String);
        let mut create = DeltaTable::try_from_url(self.url())
            .await
            .expect("an empty directory")
            .create()
            .with_column(Column::Id.name(), long(), true, None)
            .with_column(Column::Part.name(), string(), true, None)
            .with_column(Column::Value.name(), long(), true, None)
            .with_column(Column::Note.name(), string(), true, None);
        if layout.partitioned {
            create = create.with_partition_columns([Column::Part.name()]);
        }
        if layout.change_data {
            create = create
                .with_configuration_property(TableProperty::EnableChangeDataFeed, Some("true"));
        }
        create.await.expect("a new table")
    }

    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    fn url(&self) -> Url {
        Url::from_directory_path(self.path()).expect("an absolute path")
    }

    /// The newest version, read from disk.
    pub async fn open(&self) -> DeltaTable {
        DeltaTable::try_from_url(self.url())
            .await
            .expect("a readable table")
    }

    pub async fn version(&self) -> Version {
        self.open().await.version().expect("a loaded table")
    }

    /// All rows of the newest version.
    pub async fn rows(&self) -> Vec<Row> {
        let provider = self
            .open()
            .await
            .table_provider()
            .await
            .expect("a readable table");
        rows_of(&read(provider).await)
    }

    /// The change data of one version.
    pub async fn changes(&self, version: Version) -> Vec<Change> {
        let feed = self
            .open()
            .await
            .scan_cdf()
            .with_starting_version(version)
            .with_ending_version(version);
        let provider = DeltaCdfTableProvider::try_new(feed).expect("a change data feed");
        let batches = read(Arc::new(provider)).await;
        let kinds = batches
            .iter()
            .flat_map(|batch| texts(batch, "_change_type"))
            .map(change_kind);
        kinds.zip(rows_of(&batches)).collect()
    }

    /// Every file below the table's directory but the log, in order.
    pub fn data_files(&self) -> Vec<PathBuf> {
        let mut files = files_below(self.path());
        files.retain(|file| !file.starts_with(self.path().join("_delta_log")));
        files.sort();
        files
    }

    /// `operationMetrics` of a commit, as it stands in the log.
    pub fn operation_metrics(&self, version: Version) -> Value {
        let commit = self.path().join(format!("_delta_log/{version:020}.json"));
        let commit = fs::read_to_string(commit).expect("a commit file");
        commit
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).expect("a JSON action"))
            .find_map(|action| action.get("commitInfo")?.get("operationMetrics").cloned())
            .expect("a commitInfo with operationMetrics")
    }
}

/// The rows of each data file of a table of this layout.
pub fn files_of(layout: &Layout, appends: &[Vec<Row>]) -> Vec<Vec<Row>> {
    let mut files = Vec::new();
    for rows in appends {
        if !layout.partitioned {
            let rows = rows.iter().filter(|row| layout.keeps(row));
            files.push(rows.cloned().collect());
            continue;
        }
        let mut parts: Vec<_> = rows.iter().map(|row| &row.part).collect();
        parts.sort();
        parts.dedup();
        for part in parts {
            files.push(
                rows.iter()
                    .filter(|row| row.part == *part)
                    .cloned()
                    .collect(),
            );
        }
    }
    files
}

/// Every regular file below a directory.
pub fn files_below(directory: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let Ok(entries) = fs::read_dir(directory) else {
        return files;
    };
    for entry in entries.flatten() {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => files.extend(files_below(&entry.path())),
            _ => files.push(entry.path()),
        }
    }
    files
}

pub fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new(Column::Id.name(), DataType::Int64, true),
        Field::new(Column::Part.name(), DataType::Utf8, true),
        Field::new(Column::Value.name(), DataType::Int64, true),
        Field::new(Column::Note.name(), DataType::Utf8, true),
    ]))
}

pub fn batch_of(rows: &[Row]) -> RecordBatch {
    let columns: Vec<ArrayRef> = vec![
        Arc::new(rows.iter().map(|row| row.id).collect::<Int64Array>()),
        Arc::new(
            rows.iter()
                .map(|row| row.part.as_deref())
                .collect::<StringArray>(),
        ),
        Arc::new(rows.iter().map(|row| row.value).collect::<Int64Array>()),
        Arc::new(
            rows.iter()
                .map(|row| row.note.as_deref())
                .collect::<StringArray>(),
        ),
    ];
    RecordBatch::try_new(schema(), columns).expect("columns of the schema's types")
}

async fn read(provider: Arc<dyn TableProvider>) -> Vec<RecordBatch> {
    SessionContext::new()
        .read_table(provider)
        .expect("a table provider")
        .collect()
        .await
        .expect("readable data files")
}

fn rows_of(batches: &[RecordBatch]) -> Vec<Row> {
    let mut rows = Vec::new();
    for batch in batches {
        let ids = ints(batch, Column::Id.name());
        let parts = texts(batch, Column::Part.name());
        let values = ints(batch, Column::Value.name());
        let notes = texts(batch, Column::Note.name());
        for (((id, part), value), note) in ids.into_iter().zip(parts).zip(values).zip(notes) {
            rows.push(Row {
                id,
                part,
                value,
                note,
            });
        }
    }
    rows
}

/// A column in the one type that this module reads, whatever the scan encodes it as.
fn column(batch: &RecordBatch, name: &str, data_type: &DataType) -> ArrayRef {
    let column = batch.column_by_name(name).expect("a column of the table");
    cast(column, data_type).expect("a column of the table's type")
}

fn ints(batch: &RecordBatch, name: &str) -> Vec<Option<i64>> {
    let column = column(batch, name, &DataType::Int64);
    column.as_primitive::<Int64Type>().iter().collect()
}

fn texts(batch: &RecordBatch, name: &str) -> Vec<Option<String>> {
    let column = column(batch, name, &DataType::Utf8);
    let texts = column.as_string::<i32>().iter();
    texts.map(|text| text.map(str::to_owned)).collect()
}

fn change_kind(kind: Option<String>) -> &'static str {
    match kind.as_deref() {
        Some("insert") => "insert",
        Some("delete") => "delete",
        Some("update_preimage") => "update_preimage",
        Some("update_postimage") => "update_postimage",
        other => panic!("unknown change type {other:?}"),
    }
}
