//! Nested-loop joins in small pools: right, or refused with what helps, and never wrong.

use std::sync::Arc;

use arrow::array::{AsArray, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::Int64Type;
use datafusion::common::Result;
use datafusion::datasource::MemTable;
use datafusion::execution::memory_pool::FairSpillPool;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::physical_plan::collect;
use datafusion::prelude::{SessionConfig, SessionContext};
use deltalake_merge::MergeOptions;
use deltalake_merge::physical_plan::finish;

use crate::session::with_time_limit;

type Pair = (Option<i64>, Option<i64>);

/// `rows` numbers in a column `key`, with a hundred bytes each beside them.
fn table(rows: i64, key: &str) -> Arc<MemTable> {
    let batch = |ids: &[i64]| {
        let wide = ids.iter().map(|id| format!("{id:100}"));
        RecordBatch::try_from_iter_with_nullable([
            (key, Arc::new(Int64Array::from(ids.to_vec())) as _, true),
            (
                "wide",
                Arc::new(StringArray::from_iter_values(wide)) as _,
                true,
            ),
        ])
        .unwrap()
    };
    let ids: Vec<_> = (0..rows).collect();
    let batches: Vec<_> = ids.chunks(64).map(batch).collect();
    Arc::new(MemTable::try_new(batches[0].schema(), vec![batches]).unwrap())
}

fn joins(a: i64, b: i64) -> bool {
    a < 3 * b && 3 * b < a + 2
}

fn expected(left: i64, right: i64) -> Vec<Pair> {
    let mut pairs: Vec<Pair> = Vec::new();
    for a in 0..left {
        let before = pairs.len();
        let matches = (0..right).filter(|b| joins(a, *b));
        pairs.extend(matches.map(|b| (Some(a), Some(b))));
        if pairs.len() == before {
            pairs.push((Some(a), None));
        }
    }
    let alone = (0..right).filter(|b| !(0..left).any(|a| joins(a, *b)));
    pairs.extend(alone.map(|b| (None, Some(b))));
    pairs.sort_unstable();
    pairs
}

async fn join(left: i64, right: i64, partitions: usize, pool: usize) -> Result<Vec<Pair>> {
    let config = SessionConfig::new()
        .with_target_partitions(partitions)
        .with_batch_size(64);
    let runtime = RuntimeEnvBuilder::new()
        .with_memory_pool(Arc::new(FairSpillPool::new(pool)))
        .build_arc()?;
    let context = SessionContext::new_with_config_rt(config, runtime);
    context.register_table("l", table(left, "a"))?;
    context.register_table("r", table(right, "b"))?;
    let sql = "select a, b, l.wide, r.wide from l full join r on a < 3 * b and 3 * b < a + 2";
    let plan = context.sql(sql).await?.create_physical_plan().await?;
    let plan = finish(plan, &MergeOptions::default(), &context.task_ctx())?;
    let mut pairs = Vec::new();
    for batch in collect(plan, context.task_ctx()).await? {
        let [a, b] = [0, 1].map(|column| batch.column(column).as_primitive::<Int64Type>());
        pairs.extend(a.iter().zip(b));
    }
    pairs.sort_unstable();
    Ok(pairs)
}

#[test]
fn what_does_not_fit_is_refused() {
    let (mut joined, mut refused) = (0, 0);
    for (left, right) in [(1_200, 400), (400, 1_200), (100, 1_000), (1_000, 100)] {
        let expected = expected(left, right);
        for kibibytes in [20, 50, 100, 200, 400] {
            for partitions in [1, 2, 4] {
                let pool = kibibytes << 10;
                match with_time_limit(join(left, right, partitions, pool)) {
                    Ok(pairs) => {
                        let same = pairs == expected;
                        assert!(same, "{left} by {right} rows, {kibibytes} KiB are wrong");
                        joined += 1;
                    }
                    Err(error) => {
                        let error = error.to_string();
                        let clear = ["Resources exhausted", "max_spill_size"];
                        assert!(clear.iter().any(|part| error.contains(part)), "{error}");
                        refused += 1;
                    }
                }
            }
        }
    }
    assert!(
        joined > 15 && refused > 8,
        "{joined} joined, {refused} refused"
    );
}
