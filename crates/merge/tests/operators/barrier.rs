//! The barrier against a plain oracle: rows of files in which nothing changes are dropped, and no
//! other row is lost, doubled or changed.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, AsArray, BooleanArray, Int64Array, RecordBatch, StringDictionaryBuilder,
    StringViewArray,
};
use arrow::datatypes::{DataType, Field, Int64Type, Schema, SchemaRef, UInt16Type};
use datafusion::common::{DataFusionError, exec_datafusion_err};
use datafusion::datasource::memory::MemorySourceConfig;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};
use deltalake_merge::barrier::MergeBarrierExec;
use deltalake_merge::columns::{TARGET_DELETE_COLUMN, TARGET_INSERT_COLUMN, TARGET_UPDATE_COLUMN};
use futures::{StreamExt, TryStreamExt, stream};
use proptest::prelude::*;

use crate::matches::path;
use crate::session::{Pool, Session, Settings, settings, totals, with_time_limit};

const FILE: &str = "file";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change {
    None,
    Insert,
    Update,
    Delete,
}

#[derive(Debug, Clone)]
struct Row {
    file: Option<u16>,
    change: Change,
}

fn schema() -> SchemaRef {
    let path = DataType::Dictionary(Box::new(DataType::UInt16), Box::new(DataType::Utf8));
    Arc::new(Schema::new(vec![
        Field::new("id", DataType::Int64, false),
        Field::new("text", DataType::Utf8View, true),
        Field::new(FILE, path, true),
        Field::new(TARGET_INSERT_COLUMN, DataType::Boolean, true),
        Field::new(TARGET_UPDATE_COLUMN, DataType::Boolean, true),
        Field::new(TARGET_DELETE_COLUMN, DataType::Boolean, true),
    ]))
}

fn text(id: i64) -> String {
    format!("{id:>width$}", width = id as usize % 60)
}

fn batch(rows: &[(i64, Row)]) -> RecordBatch {
    let mut files = StringDictionaryBuilder::<UInt16Type>::new();
    for (_, row) in rows {
        files.append_option(row.file.map(path));
    }
    let marked = |change| {
        let rows = rows.iter();
        Arc::new(BooleanArray::from_iter(
            rows.map(|(_, row)| (row.change != change).then_some(false)),
        ))
    };
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from_iter_values(rows.iter().map(|(id, _)| *id))),
        Arc::new(StringViewArray::from_iter_values(
            rows.iter().map(|(id, _)| text(*id)),
        )),
        Arc::new(files.finish()),
        marked(Change::Insert),
        marked(Change::Update),
        marked(Change::Delete),
    ];
    RecordBatch::try_new(schema(), columns).unwrap()
}

/// Deals `rows` out to partitions like cards, in batches.
fn deal(rows: &[Row], partitions: usize, batch_rows: usize) -> Vec<Vec<RecordBatch>> {
    let numbered: Vec<_> = (0..).zip(rows.iter().cloned()).collect();
    let mut dealt = vec![Vec::new(); partitions];
    for (number, rows) in numbered.chunks(batch_rows).enumerate() {
        dealt[number * 7 % partitions].push(batch(rows));
    }
    dealt
}

fn barrier_on(session: &Session, input: Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
    let file = Arc::new(Column::new_with_schema(FILE, &schema()).unwrap());
    session.finish(Arc::new(MergeBarrierExec::new(
        input,
        Arc::new(FILE.to_owned()),
        file,
    )))
}

fn barrier(session: &Session, batches: &[Vec<RecordBatch>]) -> Arc<dyn ExecutionPlan> {
    let input = MemorySourceConfig::try_new_exec(batches, schema(), None).unwrap();
    barrier_on(session, input)
}

fn changed_files(plan: &Arc<dyn ExecutionPlan>) -> Result<BTreeSet<String>, DataFusionError> {
    let barrier = plan.downcast_ref::<MergeBarrierExec>().unwrap();
    Ok(barrier.changed_files()?.into_iter().collect())
}

/// The ids that must pass, and the files that must be open.
fn oracle(rows: &[Row]) -> (Vec<i64>, BTreeSet<u16>) {
    let changed = rows.iter().filter(|row| row.change != Change::None);
    let open: BTreeSet<u16> = changed.filter_map(|row| row.file).collect();
    let pass = (0..).zip(rows).filter(|(_, row)| match row.file {
        Some(file) => open.contains(&file),
        None => row.change == Change::Insert,
    });
    (pass.map(|(id, _)| id).collect(), open)
}

/// The ids in `batches`, sorted; each row must have come through whole.
fn ids(batches: &[RecordBatch], rows: &[Row]) -> Vec<i64> {
    let mut ids = Vec::new();
    for batch in batches {
        assert_eq!(batch.schema(), schema());
        let of_batch = batch.column(0).as_primitive::<Int64Type>().values();
        let expected: Vec<_> = of_batch
            .iter()
            .map(|id| (*id, rows[*id as usize].clone()))
            .collect();
        let expected = self::batch(&expected);
        for column in [1, 3, 4, 5] {
            assert_eq!(batch.column(column), expected.column(column));
        }
        let files = |batch: &RecordBatch| {
            let column = arrow::compute::cast(batch.column(2), &DataType::Utf8).unwrap();
            column.as_string::<i32>().clone()
        };
        assert_eq!(files(batch), files(&expected));
        ids.extend(of_batch);
    }
    ids.sort_unstable();
    ids
}

fn rows() -> impl Strategy<Value = Vec<Row>> {
    let change = |quiet: u32| {
        prop_oneof![
            quiet => Just(Change::None),
            1 => Just(Change::Update),
            1 => Just(Change::Delete),
        ]
    };
    let row = move |files: u16, quiet: u32| {
        prop_oneof![
            20 => (0..files, change(quiet)).prop_map(|(file, change)| Row { file: Some(file), change }),
            1 => Just(Row { file: None, change: Change::Insert }),
            1 => Just(Row { file: None, change: Change::None }),
        ]
    };
    prop_oneof![
        prop::collection::vec(row(5, 200), 0..800),
        prop::collection::vec(row(300, 30), 0..800),
        prop::collection::vec(row(3, 2), 0..200),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 200,
        failure_persistence: None,
        rng_seed: proptest::test_runner::RngSeed::Fixed(4422),
        ..ProptestConfig::default()
    })]

    #[test]
    fn agrees_with_the_oracle(
        rows in rows(),
        settings in settings(),
        partitions in 1_usize..5,
        batch_rows in prop_oneof![1_usize..50, Just(1_000)],
    ) {
        with_time_limit(async {
            let session = Session::new(&settings);
            let plan = barrier(&session, &deal(&rows, partitions, batch_rows));
            let batches = session.run(&plan).await.unwrap();
            let (expected, open) = oracle(&rows);
            assert_eq!(ids(&batches, &rows), expected);
            assert_eq!(
                changed_files(&plan).unwrap(),
                open.into_iter().map(path).collect()
            );
            assert!(batches.iter().all(|batch| batch.num_rows() <= settings.batch_size));
            let totals = totals(&plan);
            let must_spill = settings.limit == Some(0);
            if must_spill && totals.rows_deferred > 0 {
                assert!(totals.spill_files > 0 && totals.spilled_bytes > 0);
            }
            if matches!(settings.pool, Pool::Unbounded) && settings.limit.is_none() {
                assert_eq!(totals.spill_files, 0);
            }
            drop(plan);
            session.assert_released();
        });
    }
}

fn of_file(file: u16, change: Change, number: usize) -> Vec<Row> {
    vec![
        Row {
            file: Some(file),
            change
        };
        number
    ]
}

#[test]
fn a_batch_of_open_files_passes_as_it_is() {
    let changed = batch(&[(0, of_file(1, Change::Update, 1).remove(0))]);
    let quiet: Vec<_> = (1..).zip(of_file(1, Change::None, 10)).collect();
    let quiet = batch(&quiet);
    let session = Session::new(&Settings::default());
    let passed = with_time_limit(async {
        let plan = barrier(&session, &[vec![changed, quiet.clone()]]);
        session.run(&plan).await.unwrap()
    });
    assert_eq!(passed.len(), 2);
    let same = |column: usize| {
        let (a, b) = (passed[1].column(column), quiet.column(column));
        a.to_data().ptr_eq(&b.to_data())
    };
    assert!((0..quiet.num_columns()).all(same), "columns were copied");
}

/// A file opens in one partition when the other has read all of its rows.
#[test]
fn what_one_partition_learns_the_others_know() {
    let mut rows = of_file(1, Change::None, 50);
    rows.extend(of_file(1, Change::Delete, 1));
    let numbered: Vec<_> = (0..).zip(rows.iter().cloned()).collect();
    let partitions = [vec![batch(&numbered[..50])], vec![batch(&numbered[50..])]];
    for limit in [None, Some(0)] {
        let session = Session::new(&Settings {
            limit,
            ..Settings::default()
        });
        with_time_limit(async {
            let plan = barrier(&session, &partitions);
            let batches = session.run(&plan).await.unwrap();
            assert_eq!(ids(&batches, &rows).len(), 51);
            assert_eq!(totals(&plan).spill_files, usize::from(limit.is_some()));
        });
        session.assert_released();
    }
}

/// One batch of everything, as a join hands over what it has left.
#[test]
fn a_giant_batch_is_sliced() {
    let mut rows = of_file(1, Change::None, 100_000);
    rows.extend(of_file(1, Change::Update, 1));
    let session = Session::new(&Settings {
        batch_size: 1_000,
        limit: Some(100_000),
        ..Settings::default()
    });
    with_time_limit(async {
        let plan = barrier(&session, &deal(&rows, 1, rows.len()));
        let batches = session.run(&plan).await.unwrap();
        assert!(batches.iter().all(|batch| batch.num_rows() <= 1_000));
        assert_eq!(ids(&batches, &rows).len(), rows.len());
        let totals = totals(&plan);
        assert!(totals.spill_files > 0);
        assert!(totals.peak_memory_bytes < 1_000_000, "{totals:?}");
    });
    session.assert_released();
}

/// Source rows that no clause inserts take no memory, however many there are.
#[test]
fn source_rows_that_are_not_inserted_are_dropped_at_once() {
    let rows = vec![
        Row {
            file: None,
            change: Change::None
        };
        50_000
    ];
    let session = Session::new(&Settings::default());
    with_time_limit(async {
        let plan = barrier(&session, &deal(&rows, 2, 1_000));
        assert!(session.run(&plan).await.unwrap().is_empty());
        let totals = totals(&plan);
        assert_eq!((totals.rows_deferred, totals.peak_memory_bytes), (0, 0));
    });
}

/// Partitions of any streams.
#[derive(Debug)]
struct Partition(fn(Arc<TaskContext>) -> SendableRecordBatchStream, SchemaRef);

impl PartitionStream for Partition {
    fn schema(&self) -> &SchemaRef {
        &self.1
    }

    fn execute(&self, context: Arc<TaskContext>) -> SendableRecordBatchStream {
        (self.0)(context)
    }
}

fn barrier_on_streams(
    session: &Session,
    streams: &[fn(Arc<TaskContext>) -> SendableRecordBatchStream],
) -> Arc<dyn ExecutionPlan> {
    let partitions = streams
        .iter()
        .map(|stream| Arc::new(Partition(*stream, schema())) as _);
    let input =
        StreamingTableExec::try_new(schema(), partitions.collect(), None, [], false, None).unwrap();
    barrier_on(session, Arc::new(input))
}

fn adapt(
    batches: impl futures::Stream<Item = datafusion::common::Result<RecordBatch>> + Send + 'static,
) -> SendableRecordBatchStream {
    Box::pin(RecordBatchStreamAdapter::new(schema(), batches))
}

/// 200 rows of a file that stays closed.
fn quiet_rows() -> RecordBatch {
    let rows: Vec<_> = (0..).zip(of_file(9, Change::None, 200)).collect();
    batch(&rows)
}

fn ends(_: Arc<TaskContext>) -> SendableRecordBatchStream {
    adapt(stream::iter([Ok(quiet_rows())]))
}

fn fails(_: Arc<TaskContext>) -> SendableRecordBatchStream {
    let error = Err(exec_datafusion_err!("the join has failed"));
    adapt(stream::iter([Ok(quiet_rows()), error]))
}

fn never_ends(_: Arc<TaskContext>) -> SendableRecordBatchStream {
    adapt(stream::iter([Ok(quiet_rows())]).chain(stream::pending()))
}

#[test]
fn an_error_in_one_partition_ends_the_others_and_refuses_the_commit() {
    let session = Session::new(&Settings::default());
    with_time_limit(async {
        let plan = barrier_on_streams(&session, &[ends, fails, ends]);
        let run = |partition| {
            let stream = plan
                .execute(partition, Arc::clone(&session.context))
                .unwrap();
            stream.try_collect::<Vec<_>>()
        };
        let (first, second, third) = futures::join!(run(0), run(1), run(2));
        assert!(first.unwrap().is_empty() && third.unwrap().is_empty());
        let error = second.unwrap_err().to_string();
        assert!(error.contains("the join has failed"), "{error}");
        let error = changed_files(&plan).unwrap_err().to_string();
        assert!(error.contains("nothing was committed"), "{error}");
        drop(plan);
        session.assert_released();
    });
}

#[test]
fn a_partition_that_is_dropped_ends_the_others() {
    let session = Session::new(&Settings::default());
    with_time_limit(async {
        let plan = barrier_on_streams(&session, &[ends, never_ends]);
        let stream = |partition| {
            plan.execute(partition, Arc::clone(&session.context))
                .unwrap()
        };
        let (waiting, mut dropped) = (stream(0), stream(1));
        let waiting = tokio::spawn(waiting.try_collect::<Vec<_>>());
        assert!(futures::poll!(dropped.next()).is_pending());
        drop(dropped);
        assert!(waiting.await.unwrap().unwrap().is_empty());
        assert!(changed_files(&plan).is_err());
        drop(plan);
        session.assert_released();
    });
}

#[test]
fn dropping_all_partitions_leaves_nothing() {
    let session = Session::new(&Settings {
        limit: Some(0),
        ..Settings::default()
    });
    with_time_limit(async {
        let plan = barrier_on_streams(&session, &[ends, never_ends]);
        let mut streams: Vec<_> = (0..2)
            .map(|partition| {
                plan.execute(partition, Arc::clone(&session.context))
                    .unwrap()
            })
            .collect();
        for stream in &mut streams {
            assert!(futures::poll!(stream.next()).is_pending());
        }
        assert_eq!(totals(&plan).spill_files, 2);
        drop(streams);
        assert!(changed_files(&plan).is_err());
        drop(plan);
        session.assert_released();
    });
}

/// Ends by cutting short every spill file there is.
fn ends_and_damages_spill_files(context: Arc<TaskContext>) -> SendableRecordBatchStream {
    let damage = stream::once(async move {
        let mut damaged = 0;
        for directory in context.runtime_env().disk_manager.temp_dir_paths() {
            for entry in std::fs::read_dir(directory).unwrap() {
                let file = std::fs::File::options()
                    .write(true)
                    .open(entry.unwrap().path());
                file.unwrap().set_len(10).unwrap();
                damaged += 1;
            }
        }
        assert!(damaged > 0, "nothing was spilled");
        let opened = (0..).zip(of_file(7, Change::Update, 1));
        Ok(batch(&opened.collect::<Vec<_>>()))
    });
    adapt(stream::iter([Ok(quiet_rows())]).chain(damage))
}

fn opens_the_quiet_file(_: Arc<TaskContext>) -> SendableRecordBatchStream {
    let opened = (0..).zip(of_file(9, Change::Update, 1));
    adapt(stream::iter([Ok(batch(&opened.collect::<Vec<_>>()))]))
}

#[test]
fn a_run_of_closed_files_is_never_read_back() {
    let session = Session::new(&Settings {
        limit: Some(0),
        ..Settings::default()
    });
    with_time_limit(async {
        let plan = barrier_on_streams(&session, &[ends_and_damages_spill_files]);
        let passed = session.run(&plan).await.unwrap();
        assert_eq!(passed.iter().map(RecordBatch::num_rows).sum::<usize>(), 1);

        // The files are read when one is open: the damage is noticed.
        let plan = barrier_on_streams(
            &session,
            &[ends_and_damages_spill_files, opens_the_quiet_file],
        );
        let run = |partition| {
            let stream = plan
                .execute(partition, Arc::clone(&session.context))
                .unwrap();
            stream.try_collect::<Vec<_>>()
        };
        let (first, _) = futures::join!(run(0), run(1));
        let error = first.unwrap_err().to_string();
        assert!(error.contains("could not read its spill file"), "{error}");
    });
}
