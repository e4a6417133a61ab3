//! The count guard of declared source keys.

use std::sync::Arc;

use datafusion::datasource::memory::MemorySourceConfig;
use datafusion::logical_expr::LogicalPlanBuilder;
use datafusion::physical_plan::ExecutionPlan;
use deltalake_merge::columns::MatchClass::{Action, Ignore};
use deltalake_merge::unique::{RowsRead, SourceKeyGuard, SourceKeyGuardExec};

use crate::matches::{FILE, Row, row, schema};
use crate::session::{Session, Settings, partition, with_time_limit};

fn guard(rows: &[Row], partitions: u16, rows_read: RowsRead) -> Arc<dyn ExecutionPlan> {
    let node = SourceKeyGuard {
        input: LogicalPlanBuilder::empty(false).build().unwrap(),
        // Rows without a file have no target side.
        target_column: FILE.to_owned(),
        keys: vec!["id".to_owned(), "day".to_owned()],
    };
    let batches = partition(rows, partitions, 7);
    let input = MemorySourceConfig::try_new_exec(&batches, schema(), None).unwrap();
    Arc::new(SourceKeyGuardExec::new(&node, input, rows_read))
}

fn joined(target_rows: u16, source_only: i64) -> Vec<Row> {
    let target = (0..target_rows).map(|i| row(i.into(), i % 5, i.into(), Action));
    let source = (0..source_only).map(|i| Row {
        file: None,
        ..row(1_000 + i, 0, 0, Ignore)
    });
    target.chain(source).collect()
}

#[test]
fn equal_counts_pass() {
    with_time_limit(async {
        let session = Session::new(&Settings::default());
        for partitions in 1..4 {
            let plan = guard(&joined(100, 30), partitions, |_| Some(100));
            let batches = session.run(&plan).await.unwrap();
            assert_eq!(
                batches.iter().map(|batch| batch.num_rows()).sum::<usize>(),
                130
            );
        }
    });
}

#[test]
fn a_false_promise_names_both_counts() {
    with_time_limit(async {
        let session = Session::new(&Settings::default());
        for partitions in 1..4 {
            let plan = guard(&joined(100, 30), partitions, |_| Some(97));
            let error = session.run(&plan).await.unwrap_err().to_string();
            for part in [
                "unique_source_keys (id, day)",
                "97 target rows",
                "100 left the join",
            ] {
                assert!(error.contains(part), "{error}");
            }
        }
    });
}

#[test]
fn a_plan_that_counts_nothing_is_an_error() {
    with_time_limit(async {
        let session = Session::new(&Settings::default());
        let plan = guard(&joined(10, 0), 1, |_| None);
        let error = session.run(&plan).await.unwrap_err().to_string();
        assert!(error.contains("does not count target rows"), "{error}");
    });
}
