//! Random tables, sources, clauses, sessions and memory, against the oracle.
//!
//! The seed is fixed, so that a run says the same everywhere. Each property also counts how its
//! cases ended: a test in which nothing is spilled, or nothing refused, tests nothing.

use std::cell::Cell;

use merge_tests::check::{Case, Ended, check};
use merge_tests::merge::MergeOptions;
use merge_tests::row::{Column, Row};
use merge_tests::session::{Disk, Pool, SessionSpec};
use merge_tests::spec::{
    Assignment, Clause, Condition, MergeSpec, Term, set, set_all, source_is_newer,
};
use merge_tests::table::Layout;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::{RngSeed, TestRunner};

fn id() -> impl Strategy<Value = Option<i64>> {
    option::weighted(0.9, 0..7_i64)
}

/// Values that a path can hold only when they are encoded, too.
fn part() -> impl Strategy<Value = Option<String>> {
    option::weighted(
        0.9,
        select(vec!["a", "b c", "50%/d"]).prop_map(str::to_owned),
    )
}

/// The scan of change data of deltalake-core 1.1.3 does not find files whose path is encoded.
fn plain_parts(rows: &mut [Row]) {
    for part in rows.iter_mut().filter_map(|row| row.part.as_mut()) {
        part.retain(char::is_alphabetic);
    }
}

fn row() -> impl Strategy<Value = Row> {
    let value = option::weighted(0.85, 0..6_i64);
    let note = option::weighted(0.7, select(vec!["", "x", "y"]).prop_map(str::to_owned));
    (id(), part(), value, note).prop_map(|(id, part, value, note)| Row {
        id,
        part,
        value,
        note,
    })
}

/// Rows of which, in half of the cases, no two have the same id, so that not all merges fail.
fn source_rows() -> impl Strategy<Value = Vec<Row>> {
    (vec(row(), 0..16), any::<bool>()).prop_map(|(mut rows, distinct)| {
        if distinct {
            let mut seen = Vec::new();
            rows.retain(|row| {
                let is_new = !seen.contains(&row.id);
                seen.push(row.id);
                is_new
            });
        }
        rows
    })
}

/// Integer columns of both sides, as far as the clause sees them.
fn number(source: bool, target: bool) -> impl Strategy<Value = Term> {
    let mut terms = vec![Term::Int(2), Term::Int(4)];
    for column in [Column::Id, Column::Value] {
        terms.extend(source.then_some(Term::Source(column)));
        terms.extend(target.then_some(Term::Target(column)));
    }
    select(terms)
}

fn text(source: bool, target: bool) -> impl Strategy<Value = Term> {
    let mut terms = vec![Term::Text("x"), Term::Text("")];
    for column in [Column::Part, Column::Note] {
        terms.extend(source.then_some(Term::Source(column)));
        terms.extend(target.then_some(Term::Target(column)));
    }
    select(terms)
}

/// Never constant: deltalake-core 1.1.3 fails to plan a merge whose predicate is.
fn condition(source: bool, target: bool) -> impl Strategy<Value = Condition> {
    let numbers = || comparable(number(source, target), number(source, target));
    let texts = || comparable(text(source, target), text(source, target));
    let column = text(source, target).prop_filter("a column", is_column);
    let simple = prop_oneof![
        4 => numbers().prop_map(|(left, right)| Condition::Less(left, right)),
        1 => numbers().prop_map(|(left, right)| Condition::NotEqual(left, right)),
        1 => texts().prop_map(|(left, right)| Condition::Equal(left, right)),
        1 => texts().prop_map(|(left, right)| Condition::NotEqual(left, right)),
        1 => column.prop_map(Condition::IsNull),
    ]
    .boxed();
    prop_oneof![
        4 => simple.clone(),
        1 => (simple.clone(), simple).prop_map(|(left, right)| left.and(right)),
    ]
}

fn comparable(
    left: impl Strategy<Value = Term>,
    right: impl Strategy<Value = Term>,
) -> impl Strategy<Value = (Term, Term)> {
    (left, right).prop_filter("two terms, one of which is a column", |(left, right)| {
        left != right && (is_column(left) || is_column(right))
    })
}

fn is_column(term: &Term) -> bool {
    matches!(term, Term::Source(_) | Term::Target(_))
}

fn assignments(source: bool, target: bool) -> impl Strategy<Value = Vec<Assignment>> {
    let numbers = prop_oneof![
        3 => number(source, target),
        1 => (number(source, target), number(source, target))
            .prop_map(|(left, right)| left.plus(right)),
    ];
    let note = option::of(text(source, target));
    let part = option::weighted(
        0.2,
        text(source, target).prop_filter("no empty part", |term| {
            !matches!(
                term,
                Term::Text("") | Term::Source(Column::Note) | Term::Target(Column::Note)
            )
        }),
    );
    (numbers, note, part).prop_map(|(value, note, part)| {
        let mut assignments = vec![set(Column::Value, value)];
        assignments.extend(note.map(|note| set(Column::Note, note)));
        assignments.extend(part.map(|part| set(Column::Part, part)));
        assignments
    })
}

fn clause() -> impl Strategy<Value = Clause> {
    let maybe = |source, target| option::weighted(0.8, condition(source, target));
    let insert = prop_oneof![3 => Just(set_all()), 1 => assignments(true, false)];
    prop_oneof![
        4 => (maybe(true, true), assignments(true, true))
            .prop_map(|(condition, assignments)| Clause::MatchedUpdate(condition, assignments)),
        2 => maybe(true, true).prop_map(Clause::MatchedDelete),
        3 => (maybe(true, false), insert)
            .prop_map(|(condition, assignments)| Clause::NotMatchedInsert(condition, assignments)),
        1 => (maybe(false, true), assignments(false, true))
            .prop_map(|(condition, assignments)| Clause::BySourceUpdate(condition, assignments)),
        1 => maybe(false, true).prop_map(Clause::BySourceDelete),
    ]
}

/// A condition for ON. The early filter of deltalake-core 1.1.3 takes `source.column IS NULL` there
/// for an aggregate, and cannot be planned.
fn on_condition() -> impl Strategy<Value = Condition> {
    condition(true, true).prop_filter("a source column that is NULL", |condition| {
        !asks_for_null_in_source(condition)
    })
}

fn asks_for_null_in_source(condition: &Condition) -> bool {
    match condition {
        Condition::IsNull(Term::Source(_)) => true,
        Condition::And(left, right) => {
            asks_for_null_in_source(left) || asks_for_null_in_source(right)
        }
        _ => false,
    }
}

fn spec() -> impl Strategy<Value = MergeSpec> {
    let keys = prop_oneof![
        6 => Just(vec![Column::Id]),
        2 => Just(vec![Column::Id, Column::Part]),
        1 => Just(vec![Column::Part]),
    ];
    let on = prop_oneof![
        8 => (keys, option::weighted(0.2, on_condition())),
        // Without an equality the join is none by hash.
        1 => on_condition().prop_map(|condition| (Vec::new(), Some(condition))),
    ];
    // *Update only what changed* leaves the most rows waiting, so half of the cases begin with it.
    let first = assignments(true, true)
        .prop_map(|assignments| Clause::MatchedUpdate(Some(source_is_newer()), assignments));
    let clauses = prop_oneof![
        vec(clause(), 1..5),
        (first, vec(clause(), 0..3)).prop_map(|(first, mut clauses)| {
            clauses.insert(0, first);
            clauses
        }),
    ];
    (on, clauses).prop_map(|((keys, extra), clauses)| MergeSpec {
        keys,
        extra,
        clauses,
    })
}

/// A case for a session and a memory limit that are given later.
fn case() -> impl Strategy<Value = Case> {
    let layout = (any::<bool>(), any::<bool>()).prop_map(|(partitioned, change_data)| Layout {
        partitioned,
        change_data,
        row_group_rows: None,
        deleted: Vec::new(),
    });
    let target = vec(vec(row(), 1..10), 1..5);
    let source = (source_rows(), 1..4_usize, select(vec![1, 3, 8192]));
    let session = (
        1..5_usize,
        select(vec![2, 7, 16, 8192]),
        prop::bool::weighted(0.7),
    );
    (layout, target, source, spec(), session, any::<bool>()).prop_map(
        |(layout, mut target, source, spec, session, streaming)| {
            let (target_partitions, batch_size, hash_join) = session;
            let (mut source, source_partitions, source_batch_rows) = source;
            if layout.partitioned && layout.change_data {
                target
                    .iter_mut()
                    .chain([&mut source])
                    .for_each(|rows| plain_parts(rows));
            }
            Case {
                layout,
                target,
                source,
                source_partitions,
                source_batch_rows,
                spec,
                session: SessionSpec {
                    target_partitions,
                    batch_size,
                    pool: Pool::Unbounded,
                    disk: Disk::Directory,
                    hash_join,
                },
                options: MergeOptions {
                    streaming,
                    ..MergeOptions::default()
                },
            }
        },
    )
}

/// How the cases of a property ended.
#[derive(Debug, Default)]
struct Tally {
    merged: Cell<u32>,
    deferred: Cell<u32>,
    spilled: Cell<u32>,
    duplicates: Cell<u32>,
    out_of_memory: Cell<u32>,
}

impl Tally {
    fn add(&self, ended: &Ended) {
        let add = |count: &Cell<u32>| count.set(count.get() + 1);
        match ended {
            Ended::Merged(metrics) => {
                add(&self.merged);
                if metrics.num_rows_deferred > 0 {
                    add(&self.deferred);
                }
                if metrics.num_spill_files > 0 {
                    add(&self.spilled);
                }
            }
            Ended::DuplicateMatch => add(&self.duplicates),
            Ended::OutOfMemory => add(&self.out_of_memory),
        }
    }
}

/// Checks random cases and tells how they ended.
fn check_all(seed: u64, cases: u32, strategy: impl Strategy<Value = Case>) -> Tally {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    let config = ProptestConfig {
        cases,
        rng_seed: RngSeed::Fixed(seed),
        failure_persistence: None,
        max_shrink_iters: 300,
        ..ProptestConfig::default()
    };
    let tally = Tally::default();
    let result = TestRunner::new(config).run(&strategy, |case| {
        tally.add(&runtime.block_on(check(&case)));
        Ok(())
    });
    if let Err(failure) = result {
        panic!("{failure}");
    }
    tally
}

#[test]
fn with_all_the_memory_it_wants() {
    let tally = check_all(1, 250, case());
    assert!(tally.merged.get() > 80, "{tally:?}");
    assert!(tally.deferred.get() > 25, "{tally:?}");
    assert!(tally.duplicates.get() > 30, "{tally:?}");
    assert_eq!(tally.spilled.get(), 0, "{tally:?}");
    assert_eq!(tally.out_of_memory.get(), 0, "{tally:?}");
}

#[test]
fn with_a_limit_for_deferred_rows() {
    let limited = (case(), select(vec![0, 0, 1024, 4096])).prop_map(|(mut case, bytes)| {
        case.options.deferred_rows_memory_limit = Some(bytes);
        case
    });
    let tally = check_all(2, 200, limited);
    assert!(tally.spilled.get() > 15, "{tally:?}");
    assert!(tally.duplicates.get() > 20, "{tally:?}");
    assert_eq!(tally.out_of_memory.get(), 0, "{tally:?}");
}

/// Pools in which the rest of the plan runs now and then.
#[test]
fn with_a_tiny_pool() {
    let pools = (any::<bool>(), select(vec![1, 2, 4, 8, 16, 32, 64])).prop_map(|(fair, kib)| {
        if fair {
            Pool::Fair(kib * 1024)
        } else {
            Pool::Greedy(kib * 1024)
        }
    });
    let tiny = (case(), pools).prop_map(|(mut case, pool)| {
        case.session.pool = pool;
        case
    });
    let tally = check_all(3, 150, tiny);
    assert!(tally.merged.get() > 30, "{tally:?}");
    assert!(tally.spilled.get() > 8, "{tally:?}");
    assert!(tally.out_of_memory.get() > 20, "{tally:?}");
}

/// Every source key once, which is what the promise means.
#[test]
fn with_declared_source_keys() {
    let declared = case().prop_map(|mut case| {
        let mut seen = Vec::new();
        case.source.retain(|row| {
            let is_new = row.id.is_none() || !seen.contains(&row.id);
            seen.push(row.id);
            is_new
        });
        if !case.spec.keys.contains(&Column::Id) {
            case.spec.keys.push(Column::Id);
        }
        case.options.unique_source_keys = Some(vec![Column::Id.name()]);
        case
    });
    let tally = check_all(4, 100, declared);
    assert_eq!(tally.merged.get(), 100, "{tally:?}");
}
