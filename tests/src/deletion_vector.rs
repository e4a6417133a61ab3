//! Deletes rows as a writer with deletion vectors does: the vectors are the Delta kernel's, the
//! commit is written by hand.

use std::fs::{self, File};
use std::path::Path;

use arrow::array::AsArray;
use arrow::datatypes::Int64Type;
use delta_kernel::actions::deletion_vector_writer::{
    KernelDeletionVector, StreamingDeletionVectorWriter,
};
use deltalake_core::parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use serde_json::{Value, json};
use url::Url;

use crate::row::Column;

/// Deletes the rows with these ids from a table without partitions, in one commit.
///
/// # Panics
/// When an id is not in the table exactly once.
pub(crate) fn delete(table: &Path, ids: &[i64]) {
    let log = table.join("_delta_log");
    let versions = fs::read_dir(&log).expect("a log").count();
    let commit = |version: usize| log.join(format!("{version:020}.json"));
    let features = json!(["deletionVectors"]);
    let mut actions = vec![json!({"protocol": {
        "minReaderVersion": 3, "minWriterVersion": 7,
        "readerFeatures": features, "writerFeatures": features,
    }})];
    let mut deleted = 0;
    for version in 0..versions {
        let text = fs::read_to_string(commit(version)).expect("a commit");
        for action in text.lines() {
            let mut action: Value = serde_json::from_str(action).expect("a JSON action");
            let Some(add) = action.get_mut("add") else {
                continue;
            };
            let path = add["path"].as_str().expect("a path").to_owned();
            let positions = positions(&table.join(&path), ids);
            if positions.is_empty() {
                continue;
            }
            deleted += positions.len();
            actions.push(json!({"remove": {
                "path": path, "dataChange": true, "deletionTimestamp": add["modificationTime"],
            }}));
            let vector = table.join(format!("deletion_vector_{version}.bin"));
            add["deletionVector"] = write(&vector, &positions);
            // Minima and maxima may be of rows that are deleted.
            let stats = add["stats"].as_str().expect("statistics");
            let mut stats: Value = serde_json::from_str(stats).expect("statistics");
            stats["tightBounds"] = json!(false);
            add["stats"] = json!(stats.to_string());
            actions.push(action);
        }
    }
    assert_eq!(deleted, ids.len(), "rows deleted of {ids:?}");
    let lines: Vec<_> = actions.iter().map(Value::to_string).collect();
    fs::write(commit(versions), lines.join("\n")).expect("a writable log");
}

/// Where in the file the rows with these ids are.
fn positions(file: &Path, ids: &[i64]) -> Vec<u64> {
    let file = File::open(file).expect("a data file");
    let reader = ParquetRecordBatchReaderBuilder::try_new(file).expect("a Parquet file");
    let mut all = Vec::new();
    for batch in reader.build().expect("a Parquet file") {
        let batch = batch.expect("readable rows");
        let column = batch.column_by_name(Column::Id.name()).expect("ids");
        all.extend(column.as_primitive::<Int64Type>().iter());
    }
    let is_deleted = |id: &Option<i64>| id.is_some_and(|id| ids.contains(&id));
    let deleted = (0..).zip(all).filter(|(_, id)| is_deleted(id));
    deleted.map(|(position, _)| position).collect()
}

/// Writes the vector to a file of its own; returns its description for the log.
fn write(file: &Path, positions: &[u64]) -> Value {
    let mut vector = KernelDeletionVector::new();
    vector.add_deleted_row_indexes(positions);
    let mut out = File::create(file).expect("a writable table");
    let mut writer = StreamingDeletionVectorWriter::new(&mut out);
    let written = writer.write_deletion_vector(vector).expect("a vector");
    writer.finalize().expect("a written vector");
    let url = Url::from_file_path(file).expect("an absolute path");
    json!({
        "storageType": "p",
        "pathOrInlineDv": url.as_str(),
        "offset": written.offset,
        "sizeInBytes": written.size_in_bytes,
        "cardinality": written.cardinality,
    })
}
