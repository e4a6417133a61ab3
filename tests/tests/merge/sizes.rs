//! Sizes at which the check for duplicates once went wrong: around a batch of 8,192 rows, several
//! row groups, many files, and a large merge of a table with itself.
//!
//! All data has a closed form, `value = 3 * id`, and what must come out has one too.

use merge_tests::check::DUPLICATE_MATCH;
use merge_tests::limit::within_limit;
use merge_tests::merge::{MergeOptions, merge};
use merge_tests::row::{Column, Row, sorted};
use merge_tests::session::{SessionSpec, TestSession};
use merge_tests::source::{End, in_memory, streamed};
use merge_tests::spec::{Clause, MergeSpec, Term, set, source_is_newer};
use merge_tests::table::{Layout, TestTable};

use deltalake_core::DeltaTableError;
use deltalake_core::operations::merge::MergeMetrics;

/// Coprime to every size used here, so that it only changes the order of the ids.
const SCRAMBLE: i64 = 7_919;

fn target(rows: i64) -> Vec<Row> {
    (0..rows)
        .map(|position| position * SCRAMBLE % rows)
        .map(|id| Row::new(id, 3 * id))
        .collect()
}

/// A source row for each target row, newer where `is_newer` says so.
fn source(rows: i64, is_newer: impl Fn(i64) -> bool) -> Vec<Row> {
    (0..rows)
        .map(|id| Row::new(id, if is_newer(id) { 3 * id + 1 } else { 3 * id - 1 }))
        .collect()
}

fn update_newer() -> MergeSpec {
    MergeSpec::on_id([Clause::MatchedUpdate(
        Some(source_is_newer()),
        vec![set(Column::Value, Term::Source(Column::Value))],
    )])
}

/// Which way the check for duplicates goes.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Check {
    /// Directly above a hash join, if the target is its probe side.
    AboveJoin,
    /// By bitmaps, since the sort-merge join streams the source.
    Bitmap,
}

async fn run(
    table: &TestTable,
    source: &[Row],
    (target_partitions, check): (usize, Check),
    options: &MergeOptions,
) -> Result<MergeMetrics, DeltaTableError> {
    let session = TestSession::new(&SessionSpec {
        target_partitions,
        hash_join: check == Check::AboveJoin,
        ..SessionSpec::default()
    });
    let source = if options.streaming {
        streamed(source, &[End::Complete, End::Complete], 8192)
    } else {
        in_memory(source, 2, 8192)
    };
    let merge = merge(
        table.open().await,
        source,
        &session,
        &update_newer(),
        options,
    )
    .expect("a valid merge");
    let result = within_limit("the merge", merge).await;
    session.assert_released().await;
    result.map(|(_, metrics)| metrics)
}

/// Merges a source row into each row of the table, of which those are newer that `is_newer` says,
/// and compares counts and content.
async fn merge_all(
    layout: Layout,
    appends: Vec<Vec<Row>>,
    check: Check,
    options: MergeOptions,
    is_newer: impl Fn(i64) -> bool,
) -> MergeMetrics {
    let target = appends.concat();
    let rows = target.len() as i64;
    let table = TestTable::create(&layout, &appends).await;
    let metrics = match run(&table, &source(rows, &is_newer), (4, check), &options).await {
        Ok(metrics) => metrics,
        Err(error) => panic!("{rows} rows in {} appends: {error}", appends.len()),
    };
    let expected: Vec<Row> = target
        .iter()
        .map(|row| {
            let mut row = row.clone();
            if row.id.is_some_and(&is_newer) {
                row.value = row.value.map(|value| value + 1);
            }
            row
        })
        .collect();
    let updated = (0..rows).filter(|&id| is_newer(id)).count();
    assert_eq!(metrics.num_target_rows_updated, updated, "{metrics:#?}");
    assert_eq!(metrics.num_target_rows_inserted, 0, "{metrics:#?}");
    assert_eq!(metrics.num_target_rows_deleted, 0, "{metrics:#?}");
    // Bitmaps are for the rows of files that are written again.
    let checked = match check {
        Check::AboveJoin => rows as usize,
        Check::Bitmap => metrics.num_output_rows,
    };
    assert_eq!(metrics.num_rows_checked, checked, "{metrics:#?}");
    let found = sorted(&table.rows().await);
    let expected = sorted(&expected);
    let differing = expected
        .iter()
        .zip(&found)
        .find(|(left, right)| left != right);
    assert_eq!(
        differing, None,
        "the first row that differs, expected and found"
    );
    assert_eq!(expected.len(), found.len(), "rows in the table");
    metrics
}

fn is_always_newer(_id: i64) -> bool {
    true
}

async fn around_a_batch(rows: i64) {
    for (streaming, check) in [
        (false, Check::AboveJoin),
        (false, Check::Bitmap),
        (true, Check::AboveJoin),
        (true, Check::Bitmap),
    ] {
        let options = MergeOptions {
            streaming,
            ..MergeOptions::default()
        };
        let (layout, appends) = (Layout::default(), vec![target(rows)]);
        merge_all(
            layout.clone(),
            appends.clone(),
            check,
            options,
            is_always_newer,
        )
        .await;

        let options = MergeOptions {
            streaming,
            deferred_rows_memory_limit: Some(0),
            ..MergeOptions::default()
        };
        let few = |id| id % 100 == 0;
        let metrics = merge_all(layout, appends, check, options, few).await;
        assert!(
            check == Check::AboveJoin || metrics.num_spill_files > 0,
            "{metrics:#?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_of_one_row_less_than_a_batch() {
    around_a_batch(8_191).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_of_one_batch() {
    around_a_batch(8_192).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_of_one_row_more_than_a_batch() {
    around_a_batch(8_193).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn several_row_groups() {
    let layout = Layout {
        row_group_rows: Some(1_000),
        ..Layout::default()
    };
    for is_newer in [is_always_newer, |id| id % 7 == 0] {
        for check in [Check::AboveJoin, Check::Bitmap] {
            let (appends, options) = (vec![target(10_001)], MergeOptions::default());
            merge_all(layout.clone(), appends, check, options, is_newer).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_hundred_files() {
    let appends: Vec<_> = target(10_000).chunks(50).map(<[Row]>::to_vec).collect();
    assert_eq!(appends.len(), 200);
    for check in [Check::AboveJoin, Check::Bitmap] {
        let (appends, options) = (appends.clone(), MergeOptions::default());
        merge_all(Layout::default(), appends, check, options, is_always_newer).await;
    }
}

/// The files of one write, so that only the merge sees many.
#[tokio::test(flavor = "multi_thread")]
async fn two_hundred_partitions_of_which_some_stay_closed() {
    let layout = Layout {
        partitioned: true,
        ..Layout::default()
    };
    let part = |row: Row| {
        let part = format!("p{}", row.id.unwrap_or_default() % 200);
        row.with_part(&part)
    };
    let rows: Vec<_> = target(10_000).into_iter().map(part).collect();
    let options = MergeOptions {
        deferred_rows_memory_limit: Some(16 * 1024),
        ..MergeOptions::default()
    };
    // A fifth of the rows in a tenth of the files.
    let is_newer = |id| id % 200 < 20 && id / 200 % 5 == 0;
    for check in [Check::AboveJoin, Check::Bitmap] {
        let (appends, options) = (vec![rows.clone()], options.clone());
        let metrics = merge_all(layout.clone(), appends, check, options, is_newer).await;
        assert_eq!(metrics.num_target_files_removed, 20, "{metrics:#?}");
        assert!(metrics.num_spill_files > 0, "{metrics:#?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_thousand_rows_all_updated() {
    let options = MergeOptions::default();
    merge_all(
        Layout::default(),
        vec![target(100_000)],
        Check::AboveJoin,
        options,
        is_always_newer,
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_thousand_rows_of_which_few_are_newer() {
    let options = MergeOptions {
        deferred_rows_memory_limit: Some(512 * 1024),
        ..MergeOptions::default()
    };
    let (layout, appends) = (Layout::default(), vec![target(100_000)]);
    let few = |id| id % 100 == 0;
    let metrics = merge_all(layout, appends, Check::Bitmap, options, few).await;
    assert!(metrics.num_rows_deferred > 0, "{metrics:#?}");
    assert!(metrics.num_spill_files > 0, "{metrics:#?}");
}

/// The one real duplicate is found, and named by a row of the file. Which one cannot be told here:
/// neither does the writer keep the order of the rows, nor does the scan number them by it.
#[tokio::test(flavor = "multi_thread")]
async fn a_duplicate_is_named_by_an_ordinal_of_the_file() {
    for row_group_rows in [None, Some(1_000)] {
        let layout = Layout {
            row_group_rows,
            ..Layout::default()
        };
        for ordinal in [0, 8_190, 8_191, 8_192] {
            let rows = target(8_193);
            let table = TestTable::create(&layout, std::slice::from_ref(&rows)).await;
            let mut source = source(8_193, is_always_newer);
            source.push(Row {
                value: Some(i64::MAX),
                ..rows[ordinal].clone()
            });
            let how = (1, Check::AboveJoin);
            let error = run(&table, &source, how, &MergeOptions::default())
                .await
                .expect_err("a duplicate match")
                .to_string();
            assert!(error.contains(DUPLICATE_MATCH), "{error}");
            let named = error.split("row ordinal in file: ").nth(1);
            let named: usize = named
                .and_then(|rest| rest.split(')').next()?.parse().ok())
                .unwrap_or_else(|| panic!("no ordinal is in: {error}"));
            assert!((1..=8_193).contains(&named), "{error}");
            assert_eq!(sorted(&table.rows().await), sorted(&rows));
        }
    }
}
