//! What a merge tells of itself, to its caller and in the commit.

use merge_tests::check::{Case, Ended, check};
use merge_tests::limit::within_limit;
use merge_tests::merge::{MergeOptions, merge};
use merge_tests::row::{Column, Row};
use merge_tests::session::TestSession;
use merge_tests::source::in_memory;
use merge_tests::spec::{Clause, MergeSpec, Term, set, source_is_newer};
use merge_tests::table::{Layout, TestTable};

use deltalake_core::operations::merge::MergeMetrics;

const ROWS: i64 = 2_000;

fn rows(value: impl Fn(i64) -> i64) -> Vec<Row> {
    (0..ROWS).map(|id| Row::new(id, value(id))).collect()
}

/// One row in a hundred is newer.
fn case(deferred_rows_memory_limit: Option<usize>) -> Case {
    let spec = MergeSpec::on_id([Clause::MatchedUpdate(
        Some(source_is_newer()),
        vec![set(Column::Value, Term::Source(Column::Value))],
    )]);
    let source = rows(|id| if id % 100 == 0 { 2 } else { 0 });
    let mut case = Case::new(rows(|_| 1), source, spec);
    case.session.batch_size = 128;
    case.session.hash_join = false;
    case.options.deferred_rows_memory_limit = deferred_rows_memory_limit;
    case
}

async fn metrics(case: &Case) -> MergeMetrics {
    match check(case).await {
        Ended::Merged(metrics) => metrics,
        ended => panic!("{ended:?}"),
    }
}

#[tokio::test]
async fn enough_memory_spills_nothing() {
    let metrics = metrics(&case(None)).await;
    assert_eq!(metrics.num_rows_checked, ROWS as usize, "{metrics:#?}");
    assert_eq!(
        metrics.num_rows_deferred,
        (ROWS - ROWS / 100) as usize,
        "{metrics:#?}"
    );
    assert_eq!(metrics.num_spill_files, 0, "{metrics:#?}");
    assert_eq!(metrics.spilled_bytes, 0, "{metrics:#?}");
    assert!(metrics.peak_memory_bytes > 0, "{metrics:#?}");
}

/// Where the join streams the target, one match is all that is remembered.
#[tokio::test]
async fn streaming_defers_nothing() {
    let mut case = case(Some(0));
    case.session.hash_join = true;
    case.session.target_partitions = 1;
    // Every other row changes, so that the barrier holds nothing back.
    let set_value = set(Column::Value, Term::Int(9));
    case.spec
        .clauses
        .push(Clause::BySourceUpdate(None, vec![set_value]));
    // The smaller side is held, the other one streams.
    case.source.truncate(20);
    let metrics = metrics(&case).await;
    assert_eq!(metrics.num_rows_checked, 20, "{metrics:#?}");
    assert_eq!(metrics.num_rows_deferred, 0, "{metrics:#?}");
    assert_eq!(metrics.num_spill_files, 0, "{metrics:#?}");
}

#[tokio::test]
async fn a_limit_spills_and_lowers_the_peak() {
    let unlimited = metrics(&case(None)).await;
    let limited = metrics(&case(Some(16 * 1024))).await;
    assert!(limited.num_spill_files > 0, "{limited:#?}");
    assert!(limited.spilled_bytes > 0, "{limited:#?}");
    assert!(
        limited.peak_memory_bytes < unlimited.peak_memory_bytes,
        "{limited:#?}\n{unlimited:#?}"
    );
}

#[tokio::test]
async fn declared_keys_check_nothing() {
    let mut case = case(Some(0));
    case.options.unique_source_keys = Some(vec!["id"]);
    let metrics = metrics(&case).await;
    assert_eq!(metrics.num_rows_checked, 0, "{metrics:#?}");
}

#[tokio::test]
async fn the_commit_holds_the_same_numbers() {
    let case = case(Some(0));
    let table = TestTable::create(&Layout::default(), &case.target).await;
    let session = TestSession::new(&case.session);
    let options = MergeOptions {
        deferred_rows_memory_limit: Some(0),
        ..MergeOptions::default()
    };
    let source = in_memory(&case.source, 1, 8192);
    let merge =
        merge(table.open().await, source, &session, &case.spec, &options).expect("a valid merge");
    let (_, metrics) = within_limit("the merge", merge).await.expect("a merge");
    assert!(metrics.num_spill_files > 0, "{metrics:#?}");

    let committed = table.operation_metrics(table.version().await);
    for (name, expected) in [
        ("num_target_rows_updated", metrics.num_target_rows_updated),
        ("num_target_rows_copied", metrics.num_target_rows_copied),
        ("num_rows_checked", metrics.num_rows_checked),
        ("num_rows_deferred", metrics.num_rows_deferred),
        ("num_spill_files", metrics.num_spill_files),
        ("spilled_bytes", metrics.spilled_bytes),
        ("peak_memory_bytes", metrics.peak_memory_bytes),
    ] {
        let number = committed.get(name).and_then(|number| number.as_u64());
        assert_eq!(number, Some(expected as u64), "{name} in {committed:#}");
    }
}
