//! MERGEs without a clause for matched rows.
//!
//! A target row that several source rows match leaves the join several times. Nothing acts on
//! it, but when another row of its file is changed, the file is written again: the row must be in
//! it once. No duplicate is ever an error here, since nothing is done to a matched row.

use merge_tests::check::{Case, Ended, check};
use merge_tests::row::{Column, Row, sorted};
use merge_tests::spec::{Clause, Condition, MergeSpec, Term, set, set_all};
use merge_tests::table::Layout;
use merge_tests::{oracle, oracle::Outcome};

async fn run(target: Vec<Row>, source: Vec<Row>, clauses: Vec<Clause>, expected: Vec<Row>) {
    let mut case = Case::new(target, source, MergeSpec::on_id(clauses));
    case.layout = Layout {
        change_data: true,
        ..Layout::default()
    };
    match oracle::merge(&case.target, &case.source, &case.spec) {
        Outcome::Merged(merged) => assert_eq!(sorted(&merged.rows), sorted(&expected), "{case:#?}"),
        Outcome::DuplicateMatch => panic!("the oracle refuses {case:#?}"),
    }
    for streaming in [false, true] {
        case.options.streaming = streaming;
        case.source.reverse();
        let ended = check(&case).await;
        assert!(matches!(ended, Ended::Merged(_)), "{ended:?}\n{case:#?}");
    }
}

#[tokio::test]
async fn a_row_that_several_source_rows_match_stays_once_when_another_is_deleted() {
    run(
        vec![Row::new(1, 10), Row::new(2, 20)],
        vec![Row::new(1, 11), Row::new(1, 12)],
        vec![Clause::BySourceDelete(None)],
        vec![Row::new(1, 10)],
    )
    .await;
}

#[tokio::test]
async fn a_row_that_several_source_rows_match_stays_once_when_another_is_updated() {
    run(
        vec![Row::new(1, 10), Row::new(2, 20), Row::new(3, 30)],
        vec![Row::new(1, 11), Row::new(1, 12), Row::new(1, 13)],
        vec![Clause::BySourceUpdate(
            Some(Condition::Less(Term::Target(Column::Value), Term::Int(30))),
            vec![set(Column::Value, Term::Int(0))],
        )],
        vec![Row::new(1, 10), Row::new(2, 0), Row::new(3, 30)],
    )
    .await;
}

#[tokio::test]
async fn a_row_that_several_source_rows_match_stays_once_when_others_are_inserted() {
    run(
        vec![Row::new(1, 10), Row::new(2, 20)],
        vec![Row::new(1, 11), Row::new(1, 12), Row::new(3, 30)],
        vec![
            Clause::NotMatchedInsert(None, set_all()),
            Clause::BySourceDelete(None),
        ],
        vec![Row::new(1, 10), Row::new(3, 30)],
    )
    .await;
}

#[tokio::test]
async fn an_insert_alone_leaves_matched_rows_as_they_are() {
    run(
        vec![Row::new(1, 10), Row::new(2, 20)],
        vec![
            Row::new(1, 11),
            Row::new(1, 12),
            Row::new(3, 30),
            Row::new(3, 31),
        ],
        vec![Clause::NotMatchedInsert(None, set_all())],
        vec![
            Row::new(1, 10),
            Row::new(2, 20),
            Row::new(3, 30),
            Row::new(3, 31),
        ],
    )
    .await;
}

#[tokio::test]
async fn the_first_clause_by_source_that_holds_counts() {
    run(
        vec![
            Row::new(1, 10),
            Row::new(2, 20),
            Row::new(3, 30),
            Row::new(None, 40),
        ],
        vec![Row::new(1, 11), Row::new(None, 1)],
        vec![
            Clause::BySourceUpdate(
                Some(Condition::Less(Term::Target(Column::Value), Term::Int(30))),
                vec![set(
                    Column::Value,
                    Term::Target(Column::Value).plus(Term::Int(1)),
                )],
            ),
            Clause::BySourceDelete(Some(Condition::IsNull(Term::Target(Column::Id)))),
        ],
        vec![Row::new(1, 10), Row::new(2, 21), Row::new(3, 30)],
    )
    .await;
}
