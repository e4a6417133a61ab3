//! When it goes wrong: a clear error, the end of the stream, nothing left behind.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion::common::exec_err;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};
use deltalake_merge::columns::MatchClass::{Action, Noop};
use futures::StreamExt;

use crate::matches::{Row, batch, row, schema};
use crate::session::{Session, Settings, partition, with_time_limit};

fn deferred_rows(count: i64) -> Vec<Row> {
    (0..count).map(|i| row(i, 0, i as u64, Noop)).collect()
}

/// Polls the only partition to its first error, which must be the last item of the stream.
async fn first_error(session: &Session, rows: &[Row]) -> String {
    let plan = session.validation(&partition(rows, 1, 1_000));
    let mut stream = plan.execute(0, Arc::clone(&session.context)).unwrap();
    let error = loop {
        match stream.next().await.expect("an error before the end") {
            Ok(_) => {}
            Err(error) => break error.to_string(),
        }
    };
    assert!(
        stream.next().await.is_none(),
        "a stream goes on after its error"
    );
    session.assert_released();
    error
}

fn assert_says(error: &str, parts: &[&str]) {
    for part in parts {
        assert!(error.contains(part), "{error:?} does not say {part:?}");
    }
}

#[test]
fn a_duplicate_ends_the_stream() {
    with_time_limit(async {
        let session = Session::new(&Settings::default());
        let rows = [
            row(0, 1, 5, Noop),
            row(1, 1, 5, Action),
            row(2, 1, 5, Action),
        ];
        let error = first_error(&session, &rows).await;
        let text = "MERGE matched a target row with multiple source rows that satisfy duplicate \
                    relevant WHEN MATCHED clauses (file: part=1/file-00001.parquet, row ordinal \
                    in file: 5)";
        assert_says(&error, &[text]);
    });
}

#[test]
fn disabled_disk_is_named() {
    with_time_limit(async {
        let session = Session::new(&Settings {
            limit: Some(0),
            disk: false,
            ..Settings::default()
        });
        let error = first_error(&session, &deferred_rows(10)).await;
        assert_says(
            &error,
            &["DiskManager is disabled", "deferred_rows_memory_limit"],
        );
    });
}

#[test]
fn full_quota_is_named() {
    with_time_limit(async {
        let session = Session::new(&Settings {
            limit: Some(0),
            max_disk: Some(10_000),
            ..Settings::default()
        });
        let error = first_error(&session, &deferred_rows(5_000)).await;
        assert_says(
            &error,
            &["max_temp_directory_size", "deferred_rows_memory_limit"],
        );
    });
}

#[test]
fn missing_directory_is_named() {
    with_time_limit(async {
        let session = Session::new(&Settings {
            limit: Some(0),
            ..Settings::default()
        });
        std::fs::remove_dir_all(session.spill_dir()).unwrap();
        let error = first_error(&session, &deferred_rows(10)).await;
        assert_says(
            &error,
            &["No such file or directory", "deferred_rows_memory_limit"],
        );
    });
}

/// Gives one batch, then fails.
#[derive(Debug)]
struct Failing(SchemaRef);

impl PartitionStream for Failing {
    fn schema(&self) -> &SchemaRef {
        &self.0
    }

    fn execute(&self, _: Arc<TaskContext>) -> SendableRecordBatchStream {
        let batches = [
            Ok(batch(&deferred_rows(500))),
            exec_err!("the source broke"),
        ];
        let batches = futures::stream::iter(batches);
        Box::pin(RecordBatchStreamAdapter::new(schema(), batches))
    }
}

#[test]
fn an_error_of_the_input_is_passed_on() {
    with_time_limit(async {
        let session = Session::new(&Settings {
            limit: Some(0),
            ..Settings::default()
        });
        let partition = Arc::new(Failing(schema()));
        let input =
            StreamingTableExec::try_new(schema(), vec![partition], None, [], false, None).unwrap();
        let plan = session.validation_of(Arc::new(input));
        let mut stream = plan.execute(0, Arc::clone(&session.context)).unwrap();
        let error = stream.next().await.unwrap().unwrap_err().to_string();
        assert_says(&error, &["the source broke"]);
        assert!(stream.next().await.is_none());
        session.assert_released();
    });
}

#[test]
fn a_dropped_stream_leaves_nothing() {
    with_time_limit(async {
        let session = Session::new(&Settings {
            limit: Some(0),
            batch_size: 100,
            ..Settings::default()
        });
        let plan = session.validation(&partition(&deferred_rows(5_000), 1, 100));
        let mut stream = plan.execute(0, Arc::clone(&session.context)).unwrap();
        stream.next().await.unwrap().unwrap();
        let disk = &session.context.runtime_env().disk_manager;
        assert!(
            disk.used_disk_space() > 0,
            "nothing was on disk when it was dropped"
        );
        drop(stream);
        session.assert_released();
    });
}

/// A spill file that is cut short under its reader must not become a table with fewer rows.
#[test]
fn a_truncated_spill_file_is_an_error() {
    with_time_limit(async {
        let session = Session::new(&Settings {
            limit: Some(0),
            batch_size: 100,
            ..Settings::default()
        });
        let plan = session.validation(&partition(&deferred_rows(20_000), 1, 100));
        let mut stream = plan.execute(0, Arc::clone(&session.context)).unwrap();
        stream.next().await.unwrap().unwrap();
        for directory in session.context.runtime_env().disk_manager.temp_dir_paths() {
            for file in std::fs::read_dir(directory).unwrap() {
                let file = std::fs::File::options()
                    .write(true)
                    .open(file.unwrap().path());
                file.unwrap().set_len(1_000).unwrap();
            }
        }
        let result = stream
            .map(|batch| batch.map(|_| ()))
            .collect::<Vec<_>>()
            .await;
        let error = result
            .into_iter()
            .find_map(Result::err)
            .expect("rows are missing");
        assert_says(&error.to_string(), &["could not read its spill file"]);
        session.assert_released();
    });
}
