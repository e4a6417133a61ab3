//! Which way the check for duplicates goes in a real MERGE, and that all ways lead to one table.

use merge_tests::check::{Case, Ended, check};
use merge_tests::limit::within_limit;
use merge_tests::merge::{MergeOptions, merge};
use merge_tests::row::Column;
use merge_tests::row::Row;
use merge_tests::session::{Pool, TestSession};
use merge_tests::source::in_memory;
use merge_tests::spec::{Clause, Condition, MergeSpec, Term, set_all, source_is_newer};
use merge_tests::table::{Layout, TestTable};

use crate::plan::{STREAMING, plan_of};

fn rows(number: i64) -> Vec<Row> {
    (0..number).map(|id| Row::new(id, id)).collect()
}

fn upsert() -> MergeSpec {
    MergeSpec::on_id([
        Clause::MatchedUpdate(Some(source_is_newer()), set_all()),
        Clause::NotMatchedInsert(None, set_all()),
    ])
}

fn small_source() -> Case {
    Case::new(rows(1_000), rows(10), upsert())
}

/// No row moves to the partition of its file.
fn assert_no_hash_above_join(plan: &str) {
    let (above, _) = plan.split_once("JoinExec").expect("a join");
    assert!(!above.contains("Hash("), "{plan}");
}

/// Nothing is known of the size of a streamed source, so it is held and the target streams.
#[test]
fn a_streamed_upsert_is_checked_above_its_join() {
    let mut case = small_source();
    // More than DataFusion holds in all partitions together.
    case.target = vec![rows(140_000)];
    case.options.streaming = true;
    case.source_partitions = 3;
    case.session.target_partitions = 4;
    let plan = plan_of(&case);
    assert!(plan.contains("mode=Partitioned"), "{plan}");
    assert!(plan.contains(STREAMING), "{plan}");
    assert_no_hash_above_join(&plan);
}

/// A small source is held by all partitions together; a target row is still in one of them.
#[test]
fn so_is_one_with_a_small_source() {
    let plan = plan_of(&small_source());
    assert!(plan.contains("mode=CollectLeft"), "{plan}");
    assert!(plan.contains(STREAMING), "{plan}");
    assert_no_hash_above_join(&plan);
}

/// A target so small is held by all partitions together, next to a source of unknown size.
#[test]
fn a_tiny_target_of_a_streamed_upsert_needs_bitmaps() {
    let mut case = small_source();
    case.options.streaming = true;
    let plan = plan_of(&case);
    assert!(plan.contains("mode=CollectLeft"), "{plan}");
    let bitmap = "strategy=bitmap (the target is the build side of HashJoinExec)";
    assert!(plan.contains(bitmap), "{plan}");
}

/// The planner swaps the sides of the join: the matches of a target row scatter.
#[test]
fn a_source_larger_than_the_target_needs_bitmaps() {
    let case = Case::new(rows(10), rows(1_000), upsert());
    let plan = plan_of(&case);
    let bitmap = "strategy=bitmap (the target is the build side of HashJoinExec)";
    assert!(plan.contains(bitmap), "{plan}");
}

#[test]
fn a_range_needs_bitmaps() {
    let mut case = small_source();
    let above = |bound| Condition::Less(Term::Int(bound), Term::Source(Column::Id));
    let next = Term::Source(Column::Id).plus(Term::Int(1));
    case.spec.keys.clear();
    // One target row for each source row, by two inequalities.
    case.spec.extra = Some(
        Condition::Less(Term::Target(Column::Id), next)
            .and(Condition::Less(
                Term::Source(Column::Id),
                Term::Target(Column::Id).plus(Term::Int(1)),
            ))
            .and(above(-1)),
    );
    let plan = plan_of(&case);
    let bitmap = "strategy=bitmap (NestedLoopJoinExec does not keep the matches of a row together)";
    assert!(plan.contains(bitmap), "{plan}");
}

#[test]
fn a_partitioned_table_is_checked_above_its_join() {
    let mut case = small_source();
    case.layout.partitioned = true;
    case.target[0] = case.target[0]
        .iter()
        .map(|row| {
            row.clone()
                .with_part(&format!("p{}", row.id.unwrap_or(0) % 3))
        })
        .collect();
    let plan = plan_of(&case);
    assert!(plan.contains(STREAMING), "{plan}");
    assert_no_hash_above_join(&plan);
}

#[test]
fn declared_keys_need_no_check_and_no_shuffle() {
    let mut case = small_source();
    case.options.unique_source_keys = Some(vec!["id"]);
    let plan = plan_of(&case);
    assert!(!plan.contains("MergeValidationExec"), "{plan}");
    assert!(plan.contains("SourceKeyGuardExec"), "{plan}");
    assert_no_hash_above_join(&plan);
}

/// The lines of the plan from its join down to the scan of the target.
fn below_join(plan: &str) -> &str {
    plan.split_once("JoinExec").expect("a join").1
}

/// Both sides are large, and the source is larger in bytes: the planner would hold the target. Of a
/// known size, the source is held by all partitions together, and no row of either side is copied to
/// the partition of its key. A limited pool keeps its shares.
#[test]
fn a_source_of_known_size_is_held_and_the_target_streams() {
    let mut case = small_source();
    case.target = vec![rows(140_000)];
    case.source = rows(140_000);
    case.session.target_partitions = 2;
    for unique in [None, Some(vec!["id"])] {
        case.options.unique_source_keys = unique;
        for pool in [Pool::Unbounded, Pool::Greedy(1 << 30)] {
            let unbounded = matches!(pool, Pool::Unbounded);
            case.session.pool = pool;
            let plan = plan_of(&case);
            let mode = match unbounded {
                true => "mode=CollectLeft",
                false => "mode=Partitioned",
            };
            assert!(plan.contains(mode), "{plan}");
            assert_eq!(below_join(&plan).contains("Hash("), !unbounded, "{plan}");
            let (source, target) = below_join(&plan)
                .split_once("merge_target_count")
                .expect("the target");
            assert!(source.contains("merge_source_count"), "{plan}");
            assert!(target.contains("DeltaScanExec"), "{plan}");
        }
    }
}

/// With a limit every repartitioning has one task.
#[test]
fn a_limited_pool_has_no_repartitioning_of_many_inputs() {
    for hash_join in [true, false] {
        let mut case = small_source();
        case.source = rows(1_000);
        case.options.streaming = true;
        case.source_partitions = 3;
        case.session.target_partitions = 4;
        case.session.hash_join = hash_join;
        case.session.pool = Pool::Fair(64 << 20);
        let plan = plan_of(&case);
        assert!(plan.contains("RepartitionExec"), "{plan}");
        for line in plan.lines().filter(|line| line.contains("RepartitionExec")) {
            assert!(line.contains("input_partitions=1"), "{plan}");
        }
    }
}

/// The writer's repartitioning has one task as well, and the barrier it asks is the one that ran.
#[tokio::test]
async fn a_partitioned_table_in_a_limited_pool() {
    let upsert = upsert().clauses;
    let insert = vec![Clause::NotMatchedInsert(None, set_all())];
    for (clauses, unique) in [(insert, false), (upsert.clone(), true), (upsert, false)] {
        for change_data in [false, true] {
            let part = |id: i64| Row::new(id, id).with_part(&format!("p{}", id % 4));
            let target = (0..100).map(part).collect();
            let source = (90..120).map(part).collect();
            let mut case = Case::new(target, source, MergeSpec::on_id(clauses.clone()));
            case.layout.partitioned = true;
            case.layout.change_data = change_data;
            case.session.target_partitions = 4;
            case.session.pool = Pool::Fair(64 << 20);
            case.options.unique_source_keys = unique.then(|| vec!["id"]);
            match check(&case).await {
                Ended::Merged(metrics) => assert_eq!(metrics.num_target_rows_inserted, 20),
                ended => panic!("{ended:?}"),
            }
        }
    }
}

/// A nested-loop join without room would start over, read a stream twice and lose rows.
#[tokio::test]
async fn a_range_in_a_small_pool_is_right_or_refused() {
    let spec = MergeSpec {
        keys: Vec::new(),
        extra: Some(
            Condition::Less(Term::Source(Column::Id), Term::Target(Column::Value)).and(
                Condition::Less(
                    Term::Target(Column::Value),
                    Term::Source(Column::Id).plus(Term::Int(2)),
                ),
            ),
        ),
        clauses: vec![
            Clause::MatchedUpdate(Some(source_is_newer()), set_all()),
            Clause::NotMatchedInsert(None, set_all()),
        ],
    };
    let wide = |id: i64| Row::new(id, 3 * id).with_note(&"wide ".repeat(20));
    let (mut merged, mut refused) = (0, 0);
    for kibibytes in [50, 100, 150, 200] {
        for streaming in [false, true] {
            for target_partitions in [1, 2, 4] {
                for pool in [Pool::Fair(kibibytes << 10), Pool::Greedy(kibibytes << 10)] {
                    let target = (0..400).map(wide).collect();
                    let source = (0..1_200).map(|id| wide(id).with_note("new")).collect();
                    let mut case = Case::new(target, source, spec.clone());
                    case.options.streaming = streaming;
                    case.session.pool = pool;
                    case.session.target_partitions = target_partitions;
                    case.session.batch_size = 64;
                    case.source_partitions = 3;
                    case.source_batch_rows = 50;
                    match check(&case).await {
                        Ended::Merged(_) => merged += 1,
                        Ended::OutOfMemory => refused += 1,
                        ended => panic!("{ended:?}"),
                    }
                }
            }
        }
    }
    assert!(
        merged > 5 && refused > 5,
        "{merged} merged, {refused} refused"
    );
}

/// Partition values whose path is encoded, merged twice.
#[tokio::test]
async fn encoded_partition_values_are_not_doubled() {
    let row = |id, part: &str| Row::new(id, 1).with_part(part);
    let values = ["a b", "a/b", "a%b"];
    let target: Vec<_> = (0..).zip(values).map(|(id, part)| row(id, part)).collect();
    let source: Vec<_> = target
        .iter()
        .map(|row| Row {
            value: Some(2),
            ..row.clone()
        })
        .collect();
    let layout = Layout {
        partitioned: true,
        ..Layout::default()
    };
    let table = TestTable::create(&layout, &[target]).await;
    let session = TestSession::new(&Default::default());
    for round in 0..2 {
        let source: Vec<_> = source
            .iter()
            .map(|row| Row {
                value: Some(2 + round),
                ..row.clone()
            })
            .collect();
        let options = MergeOptions::default();
        let frame = in_memory(&source, 1, 8192);
        let merge = merge(table.open().await, frame, &session, &upsert(), &options);
        let (_, metrics) = within_limit("the merge", merge.expect("a valid merge"))
            .await
            .expect("a merge");
        assert_eq!(metrics.num_target_rows_updated, 3, "{metrics:#?}");
        let mut rows = table.rows().await;
        rows.sort();
        assert_eq!(rows, source);
    }
}

/// The same merges by each way: table, metrics and change data are compared with the oracle each
/// time, and the numbers with each other.
#[tokio::test]
async fn all_strategies_agree() {
    let mut ran = [0; 3];
    for seed in 0..24_i64 {
        let target = (0..200)
            .map(|id| Row::new(id, (id * 7 + seed) % 11).with_part(&format!("p{}", id % 3)))
            .collect::<Vec<_>>();
        let source: Vec<_> = (0..150)
            .map(|n| n * 3 + seed % 5)
            .map(|id| Row::new(id, (id * 5 + seed) % 13).with_part(&format!("p{}", id % 3)))
            .collect();
        let mut clauses = vec![Clause::MatchedUpdate(Some(source_is_newer()), set_all())];
        if seed % 2 == 0 {
            clauses.push(Clause::NotMatchedInsert(None, set_all()));
        }
        if seed % 3 == 0 {
            clauses.push(Clause::MatchedDelete(None));
        }
        if seed % 5 == 0 {
            clauses.push(Clause::BySourceDelete(Some(Condition::Less(
                Term::Target(Column::Value),
                Term::Int(4),
            ))));
        }
        let appends: Vec<_> = target.chunks(70).map(<[Row]>::to_vec).collect();
        let mut counts = Vec::new();
        for (way, (hash_join, unique)) in [(true, false), (false, false), (true, true)]
            .into_iter()
            .enumerate()
        {
            let mut case = Case::new(
                Vec::new(),
                source.clone(),
                MergeSpec::on_id(clauses.clone()),
            );
            case.target = appends.clone();
            case.layout.change_data = seed % 4 < 2;
            case.layout.partitioned = seed % 7 == 3;
            case.options.streaming = seed % 4 == 1;
            case.options.unique_source_keys = unique.then(|| vec!["id"]);
            case.session.hash_join = hash_join;
            case.session.target_partitions = 1 + seed as usize % 4;
            case.session.batch_size = 16;
            match check(&case).await {
                Ended::Merged(metrics) => {
                    ran[way] += 1;
                    counts.push((
                        metrics.num_target_rows_inserted,
                        metrics.num_target_rows_updated,
                        metrics.num_target_rows_deleted,
                        metrics.num_target_rows_copied,
                    ));
                }
                ended => panic!("{ended:?}"),
            }
        }
        assert!(counts.iter().all(|count| *count == counts[0]), "{counts:?}");
    }
    assert_eq!(ran, [24; 3]);
}
