//! Tables in which deletion vectors hide rows: they match nothing, and are not written again.

use merge_tests::check::{Case, Ended, check};
use merge_tests::row::Row;
use merge_tests::spec::{Clause, MergeSpec, set_all, source_is_newer};

use crate::plan::{STREAMING, plan_of};

/// Two files of more than one batch, without rows at their ends and at the ends of a batch.
const DELETED: [i64; 8] = [0, 1, 8_191, 8_192, 9_999, 10_000, 18_192, 19_999];

/// Rows next to deleted ones.
const NEIGHBOURS: [i64; 6] = [2, 8_190, 8_193, 9_998, 10_001, 19_998];

fn case(source: Vec<Row>) -> Case {
    let rows = |ids: std::ops::Range<i64>| ids.map(|id| Row::new(id, 5)).collect::<Vec<_>>();
    let upsert = MergeSpec::on_id([
        Clause::MatchedUpdate(Some(source_is_newer()), set_all()),
        Clause::NotMatchedInsert(None, set_all()),
    ]);
    let mut case = Case::new(Vec::new(), source, upsert);
    case.target = vec![rows(0..10_000), rows(10_000..20_000)];
    case.layout.deleted = DELETED.to_vec();
    case.session.target_partitions = 2;
    case
}

/// The case by each way that checks for duplicates: by the stream, and by bitmaps.
fn both_ways(case: Case) -> [Case; 2] {
    let mut bitmaps = case.clone();
    bitmaps.session.hash_join = false;
    bitmaps.options.streaming = true;
    [case, bitmaps]
}

/// A hidden row is gone before the join: what the join promises of rows holds of those that are
/// left.
#[test]
fn the_check_streams_or_holds_bitmaps_as_for_other_tables() {
    let [streaming, bitmaps] = both_ways(case(vec![Row::new(2, 6)]));
    let plan = plan_of(&streaming);
    assert!(plan.contains(STREAMING), "{plan}");
    let plan = plan_of(&bitmaps);
    assert!(plan.contains("strategy=bitmap"), "{plan}");
}

#[tokio::test]
async fn deleted_rows_are_inserted_anew_and_their_neighbours_updated() {
    let newer = DELETED.iter().chain(&NEIGHBOURS);
    let mut source: Vec<_> = newer.map(|id| Row::new(*id, 6)).collect();
    source.extend((3..300).map(|id| Row::new(id, 4)));
    let mut ways = both_ways(case(source)).to_vec();
    let mut unique = ways[0].clone();
    unique.options.unique_source_keys = Some(vec!["id"]);
    ways.push(unique);
    for way in &ways {
        match check(way).await {
            Ended::Merged(metrics) => {
                assert_eq!(metrics.num_target_rows_inserted, DELETED.len());
                assert_eq!(metrics.num_target_rows_updated, NEIGHBOURS.len());
            }
            ended => panic!("{ended:?}"),
        }
    }
}

#[tokio::test]
async fn two_updates_of_a_neighbour_are_an_error() {
    for id in NEIGHBOURS {
        for way in both_ways(case(vec![Row::new(id, 6), Row::new(id, 7)])) {
            let ended = check(&way).await;
            assert!(matches!(ended, Ended::DuplicateMatch), "{id}: {ended:?}");
        }
    }
}

#[tokio::test]
async fn two_rows_for_a_deleted_one_are_both_inserted() {
    for id in DELETED {
        for way in both_ways(case(vec![Row::new(id, 6), Row::new(id, 7)])) {
            match check(&way).await {
                Ended::Merged(metrics) => assert_eq!(metrics.num_target_rows_inserted, 2),
                ended => panic!("{ended:?}"),
            }
        }
    }
}
