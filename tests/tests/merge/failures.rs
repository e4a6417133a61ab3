//! Bad input, and nothing lost: a merge that fails or is dropped says why, leaves the table as it
//! was, and leaves no temporary file and no reserved memory behind.

use std::fs;
use std::future::IntoFuture as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::task::Poll;

use deltalake_core::operations::merge::MergeBuilder;
use merge_tests::limit::within_limit;
use merge_tests::merge::{MergeOptions, merge};
use merge_tests::row::{Column, Row, sorted};
use merge_tests::session::{Disk, Pool, SessionSpec, TestSession};
use merge_tests::source::{End, in_memory, streamed};
use merge_tests::spec::{Clause, MergeSpec, Term, set, source_is_newer};
use merge_tests::table::{Layout, TestTable};
use tokio::sync::Notify;

const OPTION: &str = "deferred_rows_memory_limit";
const ROWS: i64 = 20_000;

/// A table whose rows all match the one row of the source, which is older than all of them but
/// one. The join needs hardly any memory, while all other rows must be deferred.
struct Fixture {
    table: TestTable,
    before: Vec<Row>,
    files: Vec<PathBuf>,
}

impl Fixture {
    async fn create() -> Self {
        Self::with_layout(&Layout::default()).await
    }

    async fn with_layout(layout: &Layout) -> Self {
        let row = |value| Row::new(1, value).with_note("a note that makes the row a little wider");
        let first = (0..ROWS / 2).map(row).collect();
        let second = (ROWS / 2..ROWS).map(row).collect();
        let table = TestTable::create(layout, &[first, second]).await;
        let before = sorted(&table.rows().await);
        let files = table.data_files();
        Self {
            table,
            before,
            files,
        }
    }

    fn source() -> Vec<Row> {
        vec![Row::new(1, 1)]
    }

    fn spec() -> MergeSpec {
        MergeSpec::on_id([Clause::MatchedUpdate(
            Some(source_is_newer()),
            vec![set(Column::Value, Term::Source(Column::Value))],
        )])
    }

    async fn merge(&self, session: &TestSession, limit: Option<usize>) -> MergeBuilder {
        let options = MergeOptions {
            deferred_rows_memory_limit: limit,
            ..MergeOptions::default()
        };
        let source = in_memory(&Self::source(), 1, 8192);
        merge(
            self.table.open().await,
            source,
            session,
            &Self::spec(),
            &options,
        )
        .expect("a valid merge")
    }

    /// The merge fails, its message names all of these, and nothing is lost.
    async fn fails(self, session: TestSession, limit: Option<usize>, names: &[&str]) {
        let merge = self.merge(&session, limit).await;
        let error = match within_limit("the merge", merge).await {
            Ok((_, metrics)) => panic!("the merge must fail: {metrics:#?}"),
            Err(error) => error.to_string(),
        };
        for name in names {
            assert!(error.contains(name), "{name:?} is not in: {error}");
        }
        session.assert_released().await;
        self.assert_nothing_lost().await;
    }

    /// The table is as it was, no file was added, and the same merge does what it must when nothing
    /// is in its way.
    async fn assert_nothing_lost(self) {
        assert_eq!(self.table.version().await, 2);
        assert_eq!(self.table.data_files(), self.files);
        assert!(
            sorted(&self.table.rows().await) == self.before,
            "other rows than before"
        );
        let session = TestSession::new(&SessionSpec::default());
        let merge = self.merge(&session, None).await;
        let (_, metrics) = within_limit("the merge", merge).await.expect("a merge");
        assert_eq!(metrics.num_target_rows_updated, 1, "{metrics:#?}");
        assert_eq!(self.table.version().await, 3);
        session.assert_released().await;
    }
}

fn session(pool: Pool, disk: Disk) -> TestSession {
    TestSession::new(&SessionSpec {
        target_partitions: 1,
        batch_size: 64,
        pool,
        disk,
        ..SessionSpec::default()
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn the_spill_directory_is_gone() {
    let session = session(Pool::Unbounded, Disk::Directory);
    fs::remove_dir_all(session.spill_directory()).unwrap();
    let fixture = Fixture::create().await;
    fixture
        .fails(session, Some(0), &[OPTION, "No such file or directory"])
        .await;
}

/// As a directory without permission to write, but for every user: nothing can be created in it.
#[tokio::test(flavor = "multi_thread")]
async fn the_spill_directory_cannot_be_written() {
    let session = session(Pool::Unbounded, Disk::Directory);
    let directory = session.spill_directory();
    fs::remove_dir_all(&directory).unwrap();
    std::os::unix::fs::symlink("/dev/null", &directory).unwrap();
    let fixture = Fixture::create().await;
    let merge = fixture.merge(&session, Some(0)).await;
    let error = within_limit("the merge", merge)
        .await
        .expect_err("a failed merge")
        .to_string();
    assert!(error.contains(OPTION), "{error}");
    assert!(error.contains("Not a directory"), "{error}");
    fs::remove_file(&directory).unwrap();
    session.assert_released().await;
    fixture.assert_nothing_lost().await;
}

/// Permissions do not stop the superuser, for whom the test above stands in.
#[tokio::test(flavor = "multi_thread")]
async fn the_spill_directory_is_read_only() {
    use std::os::unix::fs::PermissionsExt as _;

    let session = session(Pool::Unbounded, Disk::Directory);
    let directory = session.spill_directory();
    fs::set_permissions(&directory, fs::Permissions::from_mode(0o555)).unwrap();
    let probe = directory.join("probe");
    if fs::write(&probe, "").is_ok() {
        fs::remove_file(probe).unwrap();
        return;
    }
    let fixture = Fixture::create().await;
    fixture
        .fails(session, Some(0), &[OPTION, "Permission denied"])
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_quota_of_the_disk_is_reached() {
    let session = session(Pool::Unbounded, Disk::Quota(16 * 1024));
    let fixture = Fixture::create().await;
    fixture.fails(session, Some(0), &[OPTION, "16.0 KB"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn spilling_is_disabled() {
    let session = session(Pool::Unbounded, Disk::Disabled);
    let fixture = Fixture::create().await;
    fixture
        .fails(session, Some(0), &[OPTION, "DiskManager is disabled"])
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn spilling_is_disabled_and_the_pool_is_full() {
    let session = session(Pool::Greedy(256 * 1024), Disk::Disabled);
    let fixture = Fixture::create().await;
    fixture
        .fails(session, None, &[OPTION, "DiskManager is disabled"])
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn spilling_is_disabled_and_not_needed() {
    let session = session(Pool::Unbounded, Disk::Disabled);
    let fixture = Fixture::create().await;
    let merge = fixture.merge(&session, None).await;
    let (_, metrics) = within_limit("the merge", merge).await.expect("a merge");
    assert_eq!(metrics.num_target_rows_updated, 1, "{metrics:#?}");
    assert_eq!(metrics.num_spill_files, 0, "{metrics:#?}");
}

/// The same pool, in which the merge succeeds once it may spill.
#[tokio::test(flavor = "multi_thread")]
async fn a_full_pool_spills() {
    for pool in [Pool::Greedy(256 * 1024), Pool::Fair(256 * 1024)] {
        let session = session(pool, Disk::Directory);
        let fixture = Fixture::create().await;
        let merge = fixture.merge(&session, None).await;
        let (_, metrics) = within_limit("the merge", merge).await.expect("a merge");
        assert_eq!(metrics.num_target_rows_updated, 1, "{metrics:#?}");
        assert!(metrics.num_spill_files > 0, "{metrics:#?}");
        assert!(metrics.peak_memory_bytes <= 256 * 1024, "{metrics:#?}");
        session.assert_released().await;
        let mut expected = fixture.before.clone();
        expected
            .iter_mut()
            .filter(|row| row.value == Some(0))
            .for_each(|row| row.value = Some(1));
        assert!(
            sorted(&fixture.table.rows().await) == sorted(&expected),
            "other rows"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_partition_of_the_source_fails() {
    for target_partitions in [1, 4] {
        let session = TestSession::new(&SessionSpec {
            target_partitions,
            batch_size: 64,
            ..SessionSpec::default()
        });
        let fixture = Fixture::create().await;
        let rows: Vec<_> = (1..1_000).map(|id| Row::new(id, -1)).collect();
        let ends = [End::Complete, End::Error("the wire was cut"), End::Complete];
        let options = MergeOptions {
            streaming: true,
            deferred_rows_memory_limit: Some(0),
            ..MergeOptions::default()
        };
        let source = streamed(&rows, &ends, 64);
        let table = fixture.table.open().await;
        let merge =
            merge(table, source, &session, &Fixture::spec(), &options).expect("a valid merge");
        let error = within_limit("the merge", merge)
            .await
            .expect_err("a cut wire")
            .to_string();
        assert!(error.contains("the wire was cut"), "{error}");
        session.assert_released().await;
        fixture.assert_nothing_lost().await;
    }
}

/// How tables differ for their writers.
fn layouts() -> impl Iterator<Item = Layout> {
    let both = [false, true];
    both.into_iter().flat_map(move |partitioned| {
        both.map(|change_data| Layout {
            partitioned,
            change_data,
            ..Layout::default()
        })
    })
}

/// The first file was read and its rows went to the writers when the second is missed.
#[tokio::test(flavor = "multi_thread")]
async fn a_file_of_the_table_is_missing() {
    for layout in layouts() {
        let session = session(Pool::Unbounded, Disk::Directory);
        let fixture = Fixture::with_layout(&layout).await;
        let file = fixture.table.data_files().pop().expect("a data file");
        let aside = file.with_extension("aside");
        fs::rename(&file, &aside).unwrap();
        let spec = MergeSpec::on_id([Clause::MatchedUpdate(
            None,
            vec![set(Column::Value, Term::Source(Column::Value))],
        )]);
        let source = in_memory(&Fixture::source(), 1, 8192);
        let table = fixture.table.open().await;
        let options = MergeOptions::default();
        let merge = merge(table, source, &session, &spec, &options).expect("a valid merge");
        let error = within_limit("the merge", merge)
            .await
            .expect_err("a missing file")
            .to_string();
        let name = file.file_name().unwrap().to_string_lossy();
        assert!(error.contains(&*name), "{name} is not in: {error}");
        fs::rename(aside, file).unwrap();
        session.assert_released().await;
        fixture.assert_nothing_lost().await;
    }
}
#[tokio::test(flavor = "multi_thread")]
async fn the_merge_is_aborted_while_its_source_stalls() {
    for layout in layouts() {
        let session = TestSession::new(&SessionSpec {
            target_partitions: 4,
            batch_size: 64,
            ..SessionSpec::default()
        });
        let fixture = Fixture::with_layout(&layout).await;
        let reached = Arc::new(Notify::new());
        let rows: Vec<_> = (1..1_000).map(|id| Row::new(id, -1)).collect();
        let ends = [End::Complete, End::Stall(Arc::clone(&reached))];
        let options = MergeOptions {
            streaming: true,
            deferred_rows_memory_limit: Some(0),
            ..MergeOptions::default()
        };
        let source = streamed(&rows, &ends, 64);
        let table = fixture.table.open().await;
        let merge =
            merge(table, source, &session, &Fixture::spec(), &options).expect("a valid merge");
        let task = tokio::spawn(merge.into_future());
        within_limit("the source", reached.notified()).await;
        task.abort();
        let error = within_limit("the abort", task)
            .await
            .expect_err("an aborted merge");
        assert!(error.is_cancelled(), "{error}");
        session.assert_released().await;
        fixture.assert_nothing_lost().await;
    }
}

/// One thread drives the merge a step at a time, until its first bytes are on disk. There are too
/// many batches for a single step to write them all and read them back.
#[test]
fn the_merge_is_dropped_while_it_spills() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .event_interval(1)
        .build()
        .expect("a runtime");
    runtime.block_on(within_limit("the merge", async {
        let session = TestSession::new(&SessionSpec {
            batch_size: 64,
            ..SessionSpec::default()
        });
        let fixture = Fixture::create().await;
        let mut merge = fixture.merge(&session, Some(0)).await.into_future();
        let disk = Arc::clone(&session.context.runtime_env().disk_manager);
        while disk.used_disk_space() == 0 {
            if let Poll::Ready(result) = futures::poll!(&mut merge) {
                panic!("the merge ended and had not spilled: {result:?}");
            }
            tokio::task::yield_now().await;
        }
        assert!(!session.spill_files().is_empty());
        drop(merge);
        session.assert_released().await;
        fixture.assert_nothing_lost().await;
    }));
}
