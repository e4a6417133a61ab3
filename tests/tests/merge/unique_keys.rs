//! Declared source keys: which predicates are enough, what they save, and a promise that is false.

use std::sync::Arc;

use arrow::array::{Float64Array, Int32Array, Int64Array, RecordBatch, StringArray};
use datafusion::arrow::datatypes::DataType;
use datafusion::functions::string::expr_fn::lower;
use datafusion::logical_expr::{Expr, Operator, binary_expr, cast, lit};
use datafusion::prelude::{DataFrame, SessionContext};
use deltalake_core::operations::merge::MergeMetrics;
use merge_tests::check::{Case, Ended, check};
use merge_tests::limit::within_limit;
use merge_tests::merge::{MergeOptions, merge_on, source, target};
use merge_tests::row::{Column, Row, sorted};
use merge_tests::session::{SessionSpec, TestSession};
use merge_tests::source::{End, in_memory, streamed};
use merge_tests::spec::{Clause, MergeSpec, Term, set, set_all, source_is_newer};
use merge_tests::table::{Layout, TestTable};

const OPTION: &str = "unique_source_keys";

fn target_rows() -> Vec<Row> {
    vec![
        Row::new(1, 10).with_note("one"),
        Row::new(2, 20).with_note("two"),
        Row::new(3, 30).with_part("b").with_note("three"),
    ]
}

fn source_rows() -> Vec<Row> {
    vec![
        Row::new(1, 11).with_note("one"),
        Row::new(3, 31).with_part("b").with_note("three"),
        Row::new(4, 41).with_note("four"),
    ]
}

fn update_value() -> Clause {
    Clause::MatchedUpdate(None, vec![set(Column::Value, Term::Source(Column::Value))])
}

fn id_equals() -> Expr {
    source("id").eq(target("id"))
}

fn frame(batch: RecordBatch) -> DataFrame {
    SessionContext::new().read_batch(batch).expect("a batch")
}

/// A table, and a merge with declared keys that updates its values.
struct Attempt {
    table: TestTable,
    result: Result<MergeMetrics, String>,
}

impl Attempt {
    async fn run(on: Expr, keys: &[&'static str], source: DataFrame) -> Self {
        Self::run_on(
            &Layout::default(),
            &[target_rows()],
            on,
            keys,
            source,
            false,
        )
        .await
    }

    async fn run_on(
        layout: &Layout,
        appends: &[Vec<Row>],
        on: Expr,
        keys: &[&'static str],
        source: DataFrame,
        streaming: bool,
    ) -> Self {
        let table = TestTable::create(layout, appends).await;
        let version = table.version().await;
        let files = table.data_files();
        let session = TestSession::new(&SessionSpec {
            target_partitions: 4,
            ..SessionSpec::default()
        });
        let options = MergeOptions {
            streaming,
            unique_source_keys: Some(keys.to_vec()),
            ..MergeOptions::default()
        };
        let opened = table.open().await;
        let result = match merge_on(on, &[update_value()], opened, source, &session, &options) {
            Ok(merge) => within_limit("the merge", merge).await,
            Err(error) => Err(error),
        };
        session.assert_released().await;
        if let Err(error) = &result {
            assert_eq!(table.version().await, version, "version after: {error}");
            assert_eq!(
                sorted(&table.rows().await),
                sorted(&appends.concat()),
                "{error}"
            );
            assert_eq!(table.data_files(), files, "data files after: {error}");
        }
        Self {
            table,
            result: result
                .map(|(_, metrics)| metrics)
                .map_err(|error| error.to_string()),
        }
    }

    /// Nothing was checked, and these are the values by id.
    async fn gives(self, values: &[(i64, i64)]) {
        let metrics = self.result.expect("a predicate that is enough");
        assert_eq!(metrics.num_rows_checked, 0, "{metrics:#?}");
        let rows = sorted(&self.table.rows().await);
        let found: Vec<_> = rows
            .iter()
            .map(|row| (row.id.unwrap(), row.value.unwrap()))
            .collect();
        assert_eq!(found, values);
    }

    /// The error names the option, and all of these.
    fn assert_refused(self, names: &[&str]) {
        let error = self.result.expect_err("a predicate that is not enough");
        for name in names.iter().chain([&OPTION]) {
            assert!(error.contains(name), "{name:?} is not in: {error}");
        }
    }
}

async fn accepts(on: Expr, keys: &[&'static str]) {
    let attempt = Attempt::run(on, keys, in_memory(&source_rows(), 1, 8192)).await;
    attempt.gives(&[(1, 11), (2, 20), (3, 31)]).await;
}

async fn refuses(on: Expr, keys: &[&'static str], names: &[&str]) {
    let attempt = Attempt::run(on, keys, in_memory(&source_rows(), 1, 8192)).await;
    attempt.assert_refused(names);
}

#[tokio::test]
async fn a_key_equal_to_a_column_is_enough() {
    accepts(id_equals(), &["id"]).await;
}

#[tokio::test]
async fn the_sides_may_be_swapped() {
    accepts(target("id").eq(source("id")), &["id"]).await;
}

#[tokio::test]
async fn a_composite_key_is_enough_in_any_order() {
    let on = || id_equals().and(source("part").eq(target("part")));
    accepts(on(), &["id", "part"]).await;
    accepts(on(), &["part", "id"]).await;
}

#[tokio::test]
async fn further_conjuncts_do_no_harm() {
    let on = target("value").gt(lit(5_i64)).and(id_equals()).and(
        source("value")
            .gt(target("value"))
            .or(source("note").is_null()),
    );
    accepts(on, &["id"]).await;
}

#[tokio::test]
async fn an_equality_of_another_column_does_no_harm() {
    accepts(
        id_equals().and(lower(source("note")).eq(target("note"))),
        &["id"],
    )
    .await;
}

#[tokio::test]
async fn an_expression_over_the_target_is_enough() {
    let on = source("id").eq(target("id") + lit(1_i64));
    let attempt = Attempt::run(on, &["id"], in_memory(&source_rows(), 1, 8192)).await;
    attempt.gives(&[(1, 10), (2, 31), (3, 41)]).await;
}

#[tokio::test]
async fn a_narrower_source_column_is_widened() {
    let batch = RecordBatch::try_from_iter([
        ("id", Arc::new(Int32Array::from(vec![1, 3, 4])) as _),
        ("value", Arc::new(Int64Array::from(vec![11, 31, 41])) as _),
    ])
    .unwrap();
    let attempt = Attempt::run(id_equals(), &["id"], frame(batch)).await;
    attempt.gives(&[(1, 11), (2, 20), (3, 31)]).await;
}

#[tokio::test]
async fn files_that_cannot_match_are_skipped_and_not_missed() {
    let appends: Vec<_> = (0..8)
        .map(|file| (0..10).map(|row| Row::new(file * 10 + row, 0)).collect())
        .collect();
    for streaming in [false, true] {
        let rows = [Row::new(35, 1), Row::new(99, 1)];
        let source = match streaming {
            false => in_memory(&rows, 1, 8192),
            true => streamed(&rows, &[End::Complete], 8192),
        };
        let layout = Layout::default();
        let attempt =
            Attempt::run_on(&layout, &appends, id_equals(), &["id"], source, streaming).await;
        let metrics = attempt.result.expect("a predicate that is enough");
        assert_eq!(metrics.num_target_rows_updated, 1, "{metrics:#?}");
        assert_eq!(metrics.num_target_rows_copied, 9, "{metrics:#?}");
        eprintln!("UNIQUE streaming={streaming} {metrics:#?}");
    }
}

#[tokio::test]
async fn an_unknown_key_is_refused() {
    refuses(id_equals(), &["nope"], &["nope"]).await;
    refuses(id_equals(), &["id", "nope"], &["nope"]).await;
}

#[tokio::test]
async fn no_key_at_all_is_refused() {
    refuses(id_equals(), &[], &[]).await;
}

#[tokio::test]
async fn a_key_that_is_not_equated_is_refused() {
    refuses(id_equals(), &["part"], &["part"]).await;
    refuses(id_equals(), &["id", "part"], &["part"]).await;
}

#[tokio::test]
async fn a_key_inside_an_or_is_refused() {
    let on = id_equals().or(source("note").eq(target("note")));
    refuses(on, &["id"], &["id"]).await;
}

#[tokio::test]
async fn a_key_inside_a_not_is_refused() {
    let on = !source("id")
        .not_eq(target("id"))
        .and(target("id").gt(lit(1_i64)));
    refuses(on, &["id"], &["id"]).await;
}

#[tokio::test]
async fn a_narrowing_cast_of_the_key_is_refused() {
    let on = cast(source("id"), DataType::Int32).eq(cast(target("id"), DataType::Int32));
    refuses(on, &["id"], &["id"]).await;
    refuses(
        cast(source("id"), DataType::Int32).eq(target("id")),
        &["id"],
        &["id"],
    )
    .await;
}

#[tokio::test]
async fn a_function_of_the_key_is_refused() {
    refuses(
        lower(source("note")).eq(target("note")),
        &["note"],
        &["note"],
    )
    .await;
}

#[tokio::test]
async fn arithmetic_on_the_key_is_refused() {
    let on = (source("id") / lit(2_i64)).eq(target("id"));
    refuses(on, &["id"], &["id"]).await;
}

#[tokio::test]
async fn a_range_is_refused() {
    refuses(source("id").gt_eq(target("id")), &["id"], &["id"]).await;
    let between = source("id").between(target("id"), target("value"));
    refuses(between, &["id"], &["id"]).await;
}

/// NULL matches NULL there, so that several NULL keys would be several matches.
#[tokio::test]
async fn is_not_distinct_from_is_refused() {
    let on = binary_expr(source("id"), Operator::IsNotDistinctFrom, target("id"));
    refuses(on, &["id"], &["id"]).await;
}

#[tokio::test]
async fn a_key_equated_with_the_source_too_is_refused() {
    let on = source("id").eq(target("id") + source("value"));
    refuses(on, &["id"], &["id"]).await;
    let on = source("id")
        .eq(source("value"))
        .and(target("id").gt(lit(0_i64)));
    refuses(on, &["id"], &["id"]).await;
}

/// Two integers beyond 2^53 are one float.
#[tokio::test]
async fn an_integer_key_compared_as_a_float_is_refused() {
    let on = source("id").eq(cast(target("id"), DataType::Float64));
    refuses(on, &["id"], &["id"]).await;
}

/// `'1'` and `'01'` are one integer.
#[tokio::test]
async fn a_text_key_compared_as_an_integer_is_refused() {
    let batch = RecordBatch::try_from_iter([
        ("id", Arc::new(StringArray::from(vec!["1", "01"])) as _),
        ("value", Arc::new(Int64Array::from(vec![11, 12])) as _),
    ])
    .unwrap();
    let on = cast(source("id"), DataType::Int64).eq(target("id"));
    Attempt::run(on, &["id"], frame(batch))
        .await
        .assert_refused(&["id"]);
}

/// Three rows in the target, and one more leaves the join.
async fn breaks_the_promise(source: DataFrame, streaming: bool, layout: &Layout) {
    let target = vec![vec![Row::new(1, 10), Row::new(2, 20), Row::new(3, 30)]];
    let attempt = Attempt::run_on(layout, &target, id_equals(), &["id"], source, streaming).await;
    let error = attempt
        .result
        .as_ref()
        .expect_err("a false promise")
        .clone();
    let numbers: Vec<&str> = error
        .split(|letter: char| !letter.is_ascii_digit())
        .collect();
    assert!(
        numbers.contains(&"3") && numbers.contains(&"4"),
        "no counts in: {error}"
    );
    attempt.assert_refused(&[]);
}

#[tokio::test]
async fn a_false_promise_is_an_error_with_both_counts() {
    let rows = [Row::new(1, 11), Row::new(1, 12), Row::new(3, 31)];
    for change_data in [false, true] {
        for partitioned in [false, true] {
            let layout = Layout {
                partitioned,
                change_data,
                ..Layout::default()
            };
            breaks_the_promise(in_memory(&rows, 2, 1), false, &layout).await;
            let ends = [End::Complete, End::Complete];
            breaks_the_promise(streamed(&rows, &ends, 1), true, &layout).await;
        }
    }
}

#[tokio::test]
async fn zeros_of_both_signs_are_one_key() {
    let batch = RecordBatch::try_from_iter([
        ("id", Arc::new(Float64Array::from(vec![0.0, -0.0])) as _),
        ("value", Arc::new(Int64Array::from(vec![11, 12])) as _),
    ])
    .unwrap();
    let on = source("id").eq(cast(target("id") - lit(1_i64), DataType::Float64));
    Attempt::run(on, &["id"], frame(batch))
        .await
        .assert_refused(&[]);
}

/// Two no-ops would leave the row in the table twice.
#[tokio::test]
async fn a_false_promise_about_no_ops_is_an_error() {
    let spec = MergeSpec::on_id([
        Clause::MatchedUpdate(Some(source_is_newer()), set_all()),
        Clause::NotMatchedInsert(None, set_all()),
    ]);
    let source = [Row::new(1, 1), Row::new(1, 2), Row::new(2, 21)];
    let table = TestTable::create(&Layout::default(), &[target_rows()]).await;
    let session = TestSession::new(&SessionSpec::default());
    let options = MergeOptions {
        unique_source_keys: Some(vec!["id"]),
        ..MergeOptions::default()
    };
    let files = table.data_files();
    let source = in_memory(&source, 1, 8192);
    let merge = merge_on(
        id_equals(),
        &spec.clauses,
        table.open().await,
        source,
        &session,
        &options,
    )
    .expect("a valid merge");
    let error = within_limit("the merge", merge)
        .await
        .expect_err("a false promise")
        .to_string();
    assert!(error.contains(OPTION), "{error}");
    assert_eq!(
        sorted(&table.rows().await),
        sorted(&target_rows()),
        "{error}"
    );
    assert_eq!(table.data_files(), files, "{error}");
}

/// The promise is about rows of the target: no target row leaves the join twice here.
#[tokio::test]
async fn repeated_keys_that_match_nothing_do_no_harm() {
    let spec = MergeSpec::on_id([update_value(), Clause::NotMatchedInsert(None, set_all())]);
    let source = vec![
        Row::new(1, 11),
        Row::new(7, 70),
        Row::new(7, 71),
        Row::new(None, 1),
        Row::new(None, 2),
    ];
    let mut case = Case::new(target_rows(), source, spec);
    case.options.unique_source_keys = Some(vec!["id"]);
    let ended = check(&case).await;
    assert!(matches!(ended, Ended::Merged(_)), "{ended:?}");
}
