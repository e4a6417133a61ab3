//! The semantics table, row by row: what several matches of one target row come to.
//!
//! Each test runs in memory and streamed row by row, for both orders of the source rows, with the
//! change data feed. What is expected is written out, so that the oracle is tested along with the
//! core.

use merge_tests::check::{Case, Ended, check};
use merge_tests::row::{Column, Row, sorted};
use merge_tests::spec::{Clause, Condition, MergeSpec, Term, set, set_all, source_is_newer};
use merge_tests::table::Layout;
use merge_tests::{oracle, oracle::Outcome};

/// Three rows in one file, of which the source of every test matches the first.
fn target() -> Vec<Row> {
    vec![Row::new(1, 10), Row::new(2, 20), Row::new(3, 30)]
}

fn update_value(condition: impl Into<Option<Condition>>) -> Clause {
    Clause::MatchedUpdate(
        condition.into(),
        vec![set(Column::Value, Term::Source(Column::Value))],
    )
}

fn delete(condition: impl Into<Option<Condition>>) -> Clause {
    Clause::MatchedDelete(condition.into())
}

fn insert_all() -> Clause {
    Clause::NotMatchedInsert(None, set_all())
}

fn source_value_is(value: i64) -> Condition {
    Condition::Equal(Term::Source(Column::Value), Term::Int(value))
}

/// What the rows, and the counts of inserted, updated and deleted rows, must be.
type Expected = (Vec<Row>, [usize; 3]);

async fn run(target: Vec<Row>, source: Vec<Row>, clauses: Vec<Clause>, expected: Option<Expected>) {
    let mut case = Case::new(target, source, MergeSpec::on_id(clauses));
    case.layout = Layout {
        change_data: true,
        ..Layout::default()
    };
    assert_oracle(&case, &expected);
    for streaming in [false, true] {
        case.options.streaming = streaming;
        case.source_batch_rows = if streaming { 1 } else { 8192 };
        for _order in 0..2 {
            case.source.reverse();
            let ended = check(&case).await;
            let refused = matches!(ended, Ended::DuplicateMatch);
            assert_eq!(refused, expected.is_none(), "{ended:?}\n{case:#?}");
        }
    }
}

fn assert_oracle(case: &Case, expected: &Option<Expected>) {
    match (
        oracle::merge(&case.target, &case.source, &case.spec),
        expected,
    ) {
        (Outcome::DuplicateMatch, None) => {}
        (Outcome::Merged(merged), Some((rows, counts))) => {
            assert_eq!(sorted(&merged.rows), sorted(rows), "{case:#?}");
            let found = [merged.inserted, merged.updated, merged.deleted];
            assert_eq!(&found, counts, "{case:#?}");
        }
        (outcome, expected) => panic!("{outcome:#?} instead of {expected:#?}\n{case:#?}"),
    }
}

async fn is_refused(source: Vec<Row>, clauses: Vec<Clause>) {
    run(target(), source, clauses, None).await;
}

async fn gives(source: Vec<Row>, clauses: Vec<Clause>, rows: Vec<Row>, counts: [usize; 3]) {
    run(target(), source, clauses, Some((rows, counts))).await;
}

#[tokio::test]
async fn two_updates_are_an_error() {
    is_refused(
        vec![Row::new(1, 11), Row::new(1, 12)],
        vec![update_value(None)],
    )
    .await;
}

#[tokio::test]
async fn two_equal_updates_are_an_error() {
    is_refused(
        vec![Row::new(1, 11), Row::new(1, 11)],
        vec![update_value(None)],
    )
    .await;
}

#[tokio::test]
async fn two_conditional_deletes_are_an_error() {
    is_refused(
        vec![Row::new(1, 11), Row::new(1, 12)],
        vec![delete(source_is_newer())],
    )
    .await;
}

#[tokio::test]
async fn a_delete_whose_condition_is_always_true_is_an_action() {
    is_refused(
        vec![Row::new(1, 11), Row::new(1, 12)],
        vec![delete(Condition::Always)],
    )
    .await;
}

#[tokio::test]
async fn an_update_and_a_conditional_delete_are_an_error() {
    is_refused(
        vec![Row::new(1, 11), Row::new(1, 12)],
        vec![delete(source_value_is(11)), update_value(None)],
    )
    .await;
}

#[tokio::test]
async fn two_updates_by_different_clauses_are_an_error() {
    is_refused(
        vec![Row::new(1, 11), Row::new(1, 12)],
        vec![update_value(source_value_is(11)), update_value(None)],
    )
    .await;
}

#[tokio::test]
async fn an_update_and_an_unconditional_delete_are_an_error() {
    is_refused(
        vec![Row::new(1, 11), Row::new(1, 12)],
        vec![update_value(source_value_is(11)), delete(None)],
    )
    .await;
}

#[tokio::test]
async fn a_conditional_and_an_unconditional_delete_are_an_error() {
    is_refused(
        vec![Row::new(1, 11), Row::new(1, 12)],
        vec![delete(source_value_is(11)), delete(None)],
    )
    .await;
}

#[tokio::test]
async fn two_actions_among_no_ops_are_an_error() {
    is_refused(
        vec![
            Row::new(1, 1),
            Row::new(1, 11),
            Row::new(1, 2),
            Row::new(1, 12),
            Row::new(1, 3),
        ],
        vec![update_value(source_is_newer())],
    )
    .await;
}

#[tokio::test]
async fn several_unconditional_deletes_delete_once() {
    gives(
        vec![Row::new(1, 11), Row::new(1, 12), Row::new(1, 13)],
        vec![delete(None)],
        vec![Row::new(2, 20), Row::new(3, 30)],
        [0, 0, 1],
    )
    .await;
}

#[tokio::test]
async fn one_action_among_no_ops_is_done_once() {
    gives(
        vec![
            Row::new(1, 1),
            Row::new(1, 2),
            Row::new(1, 11),
            Row::new(1, 3),
        ],
        vec![update_value(source_is_newer())],
        vec![Row::new(1, 11), Row::new(2, 20), Row::new(3, 30)],
        [0, 1, 0],
    )
    .await;
}

#[tokio::test]
async fn one_conditional_delete_among_no_ops_is_done_once() {
    gives(
        vec![Row::new(1, 1), Row::new(1, 11), Row::new(1, 2)],
        vec![delete(source_is_newer())],
        vec![Row::new(2, 20), Row::new(3, 30)],
        [0, 0, 1],
    )
    .await;
}

#[tokio::test]
async fn a_row_with_only_no_ops_stays_once_in_a_file_that_is_rewritten() {
    gives(
        vec![Row::new(1, 1), Row::new(2, 21), Row::new(1, 2)],
        vec![update_value(source_is_newer())],
        vec![Row::new(1, 10), Row::new(2, 21), Row::new(3, 30)],
        [0, 1, 0],
    )
    .await;
}

#[tokio::test]
async fn only_no_ops_change_nothing() {
    gives(
        vec![Row::new(1, 1), Row::new(1, 2), Row::new(2, 1)],
        vec![update_value(source_is_newer())],
        target(),
        [0, 0, 0],
    )
    .await;
}

#[tokio::test]
async fn a_condition_that_is_null_is_a_no_op() {
    gives(
        vec![Row::new(1, None), Row::new(1, 11)],
        vec![update_value(source_is_newer())],
        vec![Row::new(1, 11), Row::new(2, 20), Row::new(3, 30)],
        [0, 1, 0],
    )
    .await;
}

#[tokio::test]
async fn only_the_first_clause_that_holds_counts() {
    gives(
        vec![Row::new(1, 11)],
        vec![update_value(source_is_newer()), delete(None)],
        vec![Row::new(1, 11), Row::new(2, 20), Row::new(3, 30)],
        [0, 1, 0],
    )
    .await;
}

#[tokio::test]
async fn unmatched_rows_of_the_source_are_inserted_as_often_as_they_come() {
    gives(
        vec![
            Row::new(4, 40),
            Row::new(1, 11),
            Row::new(4, 40),
            Row::new(4, 41),
        ],
        vec![update_value(None), insert_all()],
        vec![
            Row::new(1, 11),
            Row::new(2, 20),
            Row::new(3, 30),
            Row::new(4, 40),
            Row::new(4, 40),
            Row::new(4, 41),
        ],
        [3, 1, 0],
    )
    .await;
}

#[tokio::test]
async fn an_insert_takes_the_first_clause_that_holds_and_leaves_the_other_columns_null() {
    gives(
        vec![Row::new(4, 40), Row::new(5, 50), Row::new(6, None)],
        vec![
            Clause::NotMatchedInsert(
                Some(source_value_is(40)),
                vec![set(Column::Id, Term::Source(Column::Id))],
            ),
            Clause::NotMatchedInsert(
                Some(Condition::Less(Term::Int(0), Term::Source(Column::Value))),
                set_all(),
            ),
        ],
        vec![
            Row::new(1, 10),
            Row::new(2, 20),
            Row::new(3, 30),
            Row {
                id: Some(4),
                ..Row::default()
            },
            Row::new(5, 50),
        ],
        [2, 0, 0],
    )
    .await;
}

#[tokio::test]
async fn null_keys_match_nothing() {
    run(
        vec![Row::new(None, 10), Row::new(2, 20)],
        vec![Row::new(None, 11), Row::new(None, 12), Row::new(2, 21)],
        vec![update_value(None), insert_all()],
        Some((
            vec![
                Row::new(None, 10),
                Row::new(None, 11),
                Row::new(None, 12),
                Row::new(2, 21),
            ],
            [2, 1, 0],
        )),
    )
    .await;
}

#[tokio::test]
async fn equal_rows_of_the_target_are_each_updated_by_one_source_row() {
    run(
        vec![
            Row::new(1, 10),
            Row::new(1, 10),
            Row::new(1, 10),
            Row::new(2, 20),
        ],
        vec![Row::new(1, 11), Row::new(1, 1)],
        vec![update_value(source_is_newer())],
        Some((
            vec![
                Row::new(1, 11),
                Row::new(1, 11),
                Row::new(1, 11),
                Row::new(2, 20),
            ],
            [0, 3, 0],
        )),
    )
    .await;
}

#[tokio::test]
async fn many_matches_of_one_row_are_settled_as_two_are() {
    let mut source: Vec<Row> = (0..3_000).map(|value| Row::new(1, -value)).collect();
    source.insert(1_500, Row::new(1, 11));
    gives(
        source,
        vec![update_value(source_is_newer())],
        vec![Row::new(1, 11), Row::new(2, 20), Row::new(3, 30)],
        [0, 1, 0],
    )
    .await;
}
