//! The duplicate check above real joins: which strategy is chosen, and that it is sound.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, AsArray, Int32Array, Int64Array, RecordBatch, StringDictionaryBuilder, UInt64Array,
};
use arrow::datatypes::{DataType, Field, Int64Type, Schema, SchemaRef, UInt16Type, UInt64Type};
use datafusion::datasource::MemTable;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::ensure_requirements::EnsureRequirements;
use datafusion::physical_plan::{ExecutionPlan, displayable};
use datafusion::prelude::{SessionConfig, SessionContext};
use deltalake_merge::MergeOptions;
use deltalake_merge::columns::{MATCH_CLASS_COLUMN, MatchClass};
use deltalake_merge::physical_plan::finish;
use deltalake_merge::validation::MergeValidationExec;
use proptest::prelude::*;

use crate::matches::{Expected, FILE, ORDINAL, Row, assert_passed, oracle, path};
use crate::session::with_time_limit;

#[derive(Debug, Clone)]
struct SourceRow {
    key: i64,
    filter: i64,
    class: MatchClass,
}

#[derive(Debug, Clone)]
struct TargetRow {
    key: i64,
    filter: i64,
}

#[derive(Debug, Clone, Copy)]
struct Planner {
    partitions: usize,
    batch_size: usize,
    hash_join: bool,
    /// A small side is held by all partitions together.
    collect_left: bool,
    filtered: bool,
    target_first: bool,
}

fn source_batch(rows: &[(i64, SourceRow)]) -> RecordBatch {
    let schema = Schema::new(vec![
        Field::new("id", DataType::Int64, true),
        Field::new("sk", DataType::Int64, true),
        Field::new("sf", DataType::Int64, true),
        Field::new(MATCH_CLASS_COLUMN, DataType::Int32, true),
    ]);
    let int = |value: fn(&(i64, SourceRow)) -> i64| {
        Arc::new(Int64Array::from_iter_values(rows.iter().map(value))) as ArrayRef
    };
    let classes = rows.iter().map(|(_, row)| row.class as i32);
    let columns = vec![
        int(|row| row.0),
        int(|row| row.1.key),
        int(|row| row.1.filter),
        Arc::new(Int32Array::from_iter_values(classes)),
    ];
    RecordBatch::try_new(Arc::new(schema), columns).unwrap()
}

fn file_of(ordinal: usize) -> u16 {
    (ordinal / 7 % 3) as u16
}

fn target_batch(rows: &[(usize, TargetRow)]) -> RecordBatch {
    let schema = Schema::new(vec![
        Field::new("tk", DataType::Int64, true),
        Field::new("tf", DataType::Int64, true),
        Field::new(
            FILE,
            DataType::Dictionary(Box::new(DataType::UInt16), Box::new(DataType::Utf8)),
            true,
        ),
        Field::new(ORDINAL, DataType::UInt64, true),
    ]);
    let mut files = StringDictionaryBuilder::<UInt16Type>::new();
    for (ordinal, _) in rows {
        files.append_value(path(file_of(*ordinal)));
    }
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from_iter_values(rows.iter().map(|r| r.1.key))),
        Arc::new(Int64Array::from_iter_values(
            rows.iter().map(|r| r.1.filter),
        )),
        Arc::new(files.finish()),
        Arc::new(UInt64Array::from_iter_values(
            rows.iter().map(|r| r.0 as u64),
        )),
    ];
    RecordBatch::try_new(Arc::new(schema), columns).unwrap()
}

fn table<T: Clone>(
    rows: impl IntoIterator<Item = T>,
    batch: fn(&[T]) -> RecordBatch,
    batch_rows: usize,
    partitions: usize,
) -> Arc<MemTable> {
    let rows: Vec<_> = rows.into_iter().collect();
    let schema: SchemaRef = batch(&[]).schema();
    let mut dealt = vec![Vec::new(); partitions];
    for (number, rows) in rows.chunks(batch_rows).enumerate() {
        dealt[number % partitions].push(batch(rows));
    }
    Arc::new(MemTable::try_new(schema, dealt).unwrap())
}

/// The check above a full join of both.
async fn plan(
    source: &[SourceRow],
    target: &[TargetRow],
    planner: Planner,
) -> (SessionContext, Arc<dyn ExecutionPlan>) {
    let mut config = SessionConfig::new()
        .with_target_partitions(planner.partitions)
        .with_batch_size(planner.batch_size);
    let optimizer = &mut config.options_mut().optimizer;
    optimizer.prefer_hash_join = planner.hash_join;
    if !planner.collect_left {
        optimizer.hash_join_single_partition_threshold = 0;
        optimizer.hash_join_single_partition_threshold_rows = 0;
    }
    let context = SessionContext::new_with_config(config);
    let source = (0..).zip(source.iter().cloned());
    let source = table(source, source_batch, 10, planner.partitions);
    let target = table(target.iter().cloned().enumerate(), target_batch, 16, 1);
    context.register_table("s", source).unwrap();
    context.register_table("t", target).unwrap();
    let on = match planner.filtered {
        true => "sk = tk and sf <= tf",
        false => "sk = tk",
    };
    let sides = match planner.target_first {
        true => "t full join s",
        false => "s full join t",
    };
    let sql = format!(
        "select id, {FILE}, {ORDINAL}, {MATCH_CLASS_COLUMN}, concat(id, '-', {ORDINAL}) as text \
         from {sides} on {on}"
    );
    let joined = context.sql(&sql).await.unwrap();
    let joined = joined.create_physical_plan().await.unwrap();
    let file = Column::new_with_schema(FILE, &joined.schema()).unwrap();
    let check = MergeValidationExec::new(
        joined,
        Arc::new(file),
        Arc::new(FILE.to_owned()),
        Arc::new(ORDINAL.to_owned()),
    );
    // As it does for a plan that the check is part of from the start.
    let rule = EnsureRequirements::new();
    let check = rule.optimize(Arc::new(check), context.state().config_options());
    let plan = finish(
        check.unwrap(),
        &MergeOptions::default(),
        &context.task_ctx(),
    )
    .unwrap();
    (context, plan)
}

fn explain(plan: &Arc<dyn ExecutionPlan>) -> String {
    displayable(plan.as_ref()).indent(false).to_string()
}

/// The joined rows by nested loops. The id of a row is made of the two it was joined from.
fn join(source: &[SourceRow], target: &[TargetRow], filtered: bool) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut matched = BTreeSet::new();
    for (ordinal, target) in target.iter().enumerate() {
        let before = rows.len();
        for (id, source) in source.iter().enumerate() {
            if source.key == target.key && (!filtered || source.filter <= target.filter) {
                matched.insert(id);
                rows.push(Row {
                    id: joined_id(Some(id), Some(ordinal)),
                    file: Some(file_of(ordinal)),
                    ordinal: Some(ordinal as u64),
                    class: source.class,
                });
            }
        }
        if rows.len() == before {
            rows.push(Row {
                id: joined_id(None, Some(ordinal)),
                file: Some(file_of(ordinal)),
                ordinal: Some(ordinal as u64),
                class: MatchClass::Ignore,
            });
        }
    }
    let alone = (0..source.len()).filter(|id| !matched.contains(id));
    rows.extend(alone.map(|id| Row {
        id: joined_id(Some(id), None),
        file: None,
        ordinal: None,
        class: MatchClass::Ignore,
    }));
    rows
}

fn joined_id(source: Option<usize>, target: Option<usize>) -> i64 {
    let part = |id: Option<usize>| id.map_or(0, |id| id as i64 + 1);
    part(source) * 1_000_000 + part(target)
}

fn ids(batches: &[RecordBatch]) -> Vec<i64> {
    let mut ids = Vec::new();
    for batch in batches {
        let source = batch.column(0).as_primitive::<Int64Type>();
        let target = batch.column(2).as_primitive::<UInt64Type>();
        ids.extend(source.iter().zip(target).map(|(source, target)| {
            joined_id(source.map(|id| id as usize), target.map(|id| id as usize))
        }));
    }
    ids
}

fn class() -> impl Strategy<Value = MatchClass> {
    prop_oneof![
        30 => Just(MatchClass::Noop),
        2 => Just(MatchClass::UnconditionalDelete),
        2 => Just(MatchClass::Action),
    ]
}

fn case() -> impl Strategy<Value = (Vec<SourceRow>, Vec<TargetRow>)> {
    let sizes = prop_oneof![
        // The smaller side is built, the target streams.
        (0_usize..60, 60_usize..400, 40_i64..200),
        // The other way round.
        (60_usize..200, 0_usize..60, 40_i64..200),
        // Many matches of a row, across batches.
        (0_usize..120, 120_usize..150, 1_i64..4),
    ];
    sizes.prop_flat_map(|(sources, targets, keys)| {
        let source = (0..keys, 0_i64..4, class());
        let source = source.prop_map(|(key, filter, class)| SourceRow { key, filter, class });
        let target = (0..keys, 0_i64..4).prop_map(|(key, filter)| TargetRow { key, filter });
        (
            prop::collection::vec(source, sources),
            prop::collection::vec(target, targets),
        )
    })
}

fn planner() -> impl Strategy<Value = Planner> {
    let batch_size = prop_oneof![1_usize..40, Just(8192)];
    let flags = (any::<bool>(), any::<bool>(), any::<bool>());
    (1_usize..5, batch_size, 0_u8..4, flags).prop_map(
        |(partitions, batch_size, join, (collect_left, filtered, target_first))| Planner {
            partitions,
            batch_size,
            hash_join: join > 0,
            collect_left,
            filtered,
            target_first,
        },
    )
}

#[test]
fn agrees_with_nested_loops() {
    let config = ProptestConfig {
        cases: 300,
        failure_persistence: None,
        rng_seed: proptest::test_runner::RngSeed::Fixed(24),
        ..ProptestConfig::default()
    };
    let mut runner = proptest::test_runner::TestRunner::new(config);
    let counts = RefCell::new([0; 5]);
    let result = runner.run(&(case(), planner()), |((source, target), planner)| {
        with_time_limit(async {
            let (context, plan) = plan(&source, &target, planner).await;
            let explained = explain(&plan);
            let rows = join(&source, &target, planner.filtered);
            let expected = oracle(&rows);
            let result = datafusion::physical_plan::collect(plan, context.task_ctx()).await;
            let mut counts = counts.borrow_mut();
            counts[usize::from(!explained.contains("strategy=streaming"))] += 1;
            counts[4] += usize::from(explained.contains("the streamed side of SortMergeJoinExec"));
            match (result, expected) {
                (Ok(batches), Expected::OneOfEach(expected)) => {
                    assert_passed(&ids(&batches), &expected);
                    counts[2] += 1;
                }
                (Err(error), Expected::Duplicate) => {
                    let error = error.to_string();
                    assert!(error.contains("multiple source rows"), "{error}");
                    counts[3] += 1;
                }
                (result, expected) => {
                    panic!("{result:?} where {expected:?} is right\n{explained}")
                }
            }
        });
        Ok(())
    });
    result.unwrap();
    let [streaming, bitmap, passed, duplicate, sorted] = counts.into_inner();
    let ran = format!(
        "{streaming} streaming ({sorted} above a sort-merge join), {bitmap} bitmap, {passed} passed, \
         {duplicate} duplicate"
    );
    assert!(
        streaming > 60 && bitmap > 30 && passed > 60 && duplicate > 60,
        "{ran}"
    );
    assert!(sorted > 20, "{ran}");
}

fn noops(number: i64) -> Vec<SourceRow> {
    let row = |key| SourceRow {
        key,
        filter: 0,
        class: MatchClass::Noop,
    };
    (0..number).map(row).collect()
}

fn targets(number: i64) -> Vec<TargetRow> {
    (0..number)
        .map(|key| TargetRow { key, filter: 0 })
        .collect()
}

const PLANNER: Planner = Planner {
    partitions: 4,
    batch_size: 64,
    hash_join: true,
    collect_left: false,
    filtered: false,
    target_first: false,
};

/// The planner compares bytes, and this source is wider than the target.
#[test]
fn a_wide_source_of_no_more_rows_does_not_make_the_join_hold_the_target() {
    let planner = Planner {
        target_first: true,
        ..PLANNER
    };
    with_time_limit(async {
        let (context, plan) = plan(&noops(500), &targets(500), planner).await;
        let explained = explain(&plan);
        assert!(explained.contains("streaming"), "{explained}");
        let batches = datafusion::physical_plan::collect(plan, context.task_ctx()).await;
        let Expected::OneOfEach(expected) = oracle(&join(&noops(500), &targets(500), false)) else {
            panic!("the rows hold a duplicate");
        };
        assert_passed(&ids(&batches.unwrap()), &expected);
    });
}

#[test]
fn strategies_say_why() {
    let cases = [
        (
            (10, 1_000),
            PLANNER,
            "streaming (the target is the probe side of HashJoinExec)",
        ),
        (
            (10, 1_000),
            Planner {
                collect_left: true,
                ..PLANNER
            },
            "streaming (the target is the probe side of HashJoinExec)",
        ),
        (
            (1_000, 10),
            PLANNER,
            "bitmap (the target is the build side of HashJoinExec)",
        ),
        (
            (10, 1_000),
            Planner {
                hash_join: false,
                ..PLANNER
            },
            "bitmap (the target is the buffered side of SortMergeJoinExec)",
        ),
        (
            (10, 1_000),
            Planner {
                hash_join: false,
                target_first: true,
                ..PLANNER
            },
            "streaming (the target is the streamed side of SortMergeJoinExec)",
        ),
    ];
    for ((sources, target), planner, expected) in cases {
        with_time_limit(async {
            let (_, plan) = plan(&noops(sources), &targets(target), planner).await;
            let explained = explain(&plan);
            assert!(explained.contains(expected), "{expected}\n{explained}");
            let (above, _) = explained.split_once("JoinExec").unwrap();
            let by_file = above.contains("RepartitionExec");
            assert!(!by_file || expected.contains("bitmap"), "{explained}");
        });
    }
}
