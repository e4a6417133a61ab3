//! The duplicate check in the situations that have gone wrong before.

use arrow::array::RecordBatch;
use datafusion::physical_plan::display::DisplayableExecutionPlan;
use deltalake_merge::columns::MatchClass::{Action, Ignore, Noop};

use crate::matches::{Expected, Row, assert_passed, batch, ids, oracle, row};
use crate::session::{Pool, Session, Settings, partition, totals, with_time_limit};

/// Runs `rows` in batches of `batch_rows`, checks against the oracle and returns what came out.
fn check(rows: &[Row], batch_rows: usize, settings: &Settings) -> (Session, Vec<RecordBatch>) {
    let session = Session::new(settings);
    let batches = with_time_limit(async {
        let plan = session.validation(&partition(rows, 1, batch_rows));
        session.run(&plan).await.unwrap()
    });
    let Expected::OneOfEach(expected) = oracle(rows) else {
        panic!("the rows hold a duplicate");
    };
    assert_passed(&ids(&batches, rows), &expected);
    session.assert_released();
    (session, batches)
}

#[test]
fn deferred_rows_leave_in_full_batches() {
    let rows: Vec<_> = (0..30_000)
        .map(|i| row(i, 0, i as u64, if i % 100 == 0 { Action } else { Noop }))
        .collect();
    for limit in [None, Some(0), Some(500_000)] {
        let settings = Settings {
            limit,
            ..Settings::default()
        };
        let (_, batches) = check(&rows, 1_000, &settings);
        // 300 actions make one batch; 29,700 deferred rows need four of 8,192 rows at least.
        let at_most = if limit.is_none() { 5 } else { 40 };
        assert!(
            batches.len() <= at_most,
            "{} batches with limit {limit:?}",
            batches.len()
        );
    }
}

#[test]
fn batches_without_a_match_pass_as_they_are() {
    let unmatched = batch(&[row(0, 0, 0, Ignore), row(1, 0, 1, Ignore)]);
    let session = Session::new(&Settings::default());
    let passed = with_time_limit(async {
        let plan = session.validation(&[vec![unmatched.clone()]]);
        session.run(&plan).await.unwrap()
    });
    assert_eq!(passed.len(), 1);
    let same = |column: usize| {
        let (a, b) = (passed[0].column(column), unmatched.column(column));
        a.to_data().ptr_eq(&b.to_data())
    };
    assert!(
        (0..passed[0].num_columns()).all(same),
        "columns were copied"
    );
}

/// 64 files take turns, so that every batch wants a state that is on disk. The ordinals are far
/// apart: each file has a dozen containers, more than the pool grants to all files.
#[test]
fn match_state_goes_to_disk_and_comes_back() {
    const FILES: u16 = 64;
    let action = |id: i64, file: u16, ordinal: u64| row(id, file, ordinal, Action);
    let rows: Vec<_> = (0..FILES as i64 * 200)
        .map(|i| {
            let (turn, file) = (i / FILES as i64, (i % FILES as i64) as u16);
            action(i, file, (turn as u64 % 12) * 70_000 + turn as u64)
        })
        .collect();
    for pool in [Pool::Greedy(60_000), Pool::Fair(60_000)] {
        let settings = Settings {
            pool,
            ..Settings::default()
        };
        let session = Session::new(&settings);
        let mut duplicated = rows.clone();
        duplicated.push(action(1_000_000, 3, rows[3].ordinal.unwrap()));
        with_time_limit(async {
            let plan = session.validation(&partition(&rows, 1, 500));
            let batches = session.run(&plan).await.unwrap();
            assert_eq!(ids(&batches, &rows).len(), rows.len());
            let totals = totals(&plan);
            assert_eq!(totals.rows_deferred, 0);
            assert!(totals.spilled_bytes > 0, "no state went to disk");

            let plan = session.validation(&partition(&duplicated, 1, 500));
            let error = session.run(&plan).await.unwrap_err().to_string();
            assert!(
                error.contains("file-00003.parquet, row ordinal in file: 0"),
                "{error}"
            );
        });
        session.assert_released();
    }
}

/// A row that was deferred, went to disk, and was acted on later, when its file's state had been
/// on disk too.
#[test]
fn superseded_rows_do_not_come_back_from_disk() {
    let mut rows: Vec<_> = (0..4_000_u16)
        .map(|i| row(i.into(), i % 40, u64::from(i / 40) * 70_000, Noop))
        .collect();
    for i in 0..400_u16 {
        rows.push(row(
            10_000 + i64::from(i),
            i % 40,
            u64::from(i / 40) * 70_000,
            Action,
        ));
    }
    let settings = Settings {
        pool: Pool::Greedy(40_000),
        ..Settings::default()
    };
    let (_, batches) = check(&rows, 100, &settings);
    assert_eq!(ids(&batches, &rows).len(), 4_000);
}

#[test]
fn explain_analyze_shows_what_it_cost() {
    let rows: Vec<_> = (0..1_000).map(|i| row(i, 0, i as u64, Noop)).collect();
    let session = Session::new(&Settings {
        limit: Some(0),
        ..Settings::default()
    });
    let text = with_time_limit(async {
        let plan = session.validation(&partition(&rows, 1, 100));
        session.run(&plan).await.unwrap();
        let totals = totals(&plan);
        assert_eq!((totals.rows_checked, totals.rows_deferred), (1_000, 1_000));
        assert!(totals.peak_memory_bytes > 0);
        DisplayableExecutionPlan::with_metrics(plan.as_ref())
            .indent(true)
            .to_string()
    });
    assert!(text.contains("deferred_rows_memory_limit=0"), "{text}");
    for metric in [
        "rows_checked",
        "rows_deferred",
        "spill_count",
        "spilled_bytes",
        "peak_memory",
    ] {
        assert!(text.contains(metric), "{metric} is missing in {text}");
    }
}
