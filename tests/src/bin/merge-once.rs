//! Runs one MERGE in a process of its own, so that one that hangs can be killed.
//!
//! ```text
//! merge-once POOL BYTES PARTITIONS SOURCE_PARTITIONS TARGET_ROWS SOURCE_ROWS CHANGED_EVERY KIND
//! ```
//!
//! POOL is `fair` or `greedy`, KIND is `upsert`, `change-data` or `partitioned`. The source has the
//! first SOURCE_ROWS keys of the target, in another order, and every CHANGED_EVERYth is newer. It
//! prints one word, `merged` or `refused`, and the bytes that were on disk at once; a refusal goes
//! on with its text. Anything else is a panic.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::Int64Type;
use datafusion::catalog::MemTable;
use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::memory_pool::{FairSpillPool, GreedyMemoryPool, MemoryPool};
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::prelude::{SessionConfig, SessionContext};
use deltalake_core::kernel::{DataType, PrimitiveType};
use deltalake_core::{DeltaTable, TableProperty};
use merge_tests::merge::{source, target};
use url::Url;

const COLUMNS: [&str; 6] = ["key", "part", "version", "amount", "name", "note"];

struct Arguments {
    fair: bool,
    bytes: usize,
    partitions: usize,
    source_partitions: usize,
    target_rows: i64,
    source_rows: i64,
    changed_every: i64,
    kind: String,
}

impl Arguments {
    fn parse() -> Option<Self> {
        let mut arguments = std::env::args().skip(1);
        let fair = arguments.next()? == "fair";
        let mut number = || arguments.next()?.parse::<i64>().ok();
        Some(Self {
            fair,
            bytes: number()? as usize,
            partitions: number()? as usize,
            source_partitions: number()? as usize,
            target_rows: number()?,
            source_rows: number()?,
            changed_every: number()?,
            kind: arguments.next()?,
        })
    }
}

/// The `number`th key: a string, so that hashing and comparing it is the work it is for users.
fn key(number: i64) -> String {
    format!("key-{:012}", number * 7_919 % 1_000_003)
}

/// Rows `numbers`, with their version plus `newer`.
fn batch(numbers: &[i64], newer: impl Fn(i64) -> i64) -> RecordBatch {
    let text = |value: &dyn Fn(i64) -> String| -> ArrayRef {
        Arc::new(StringArray::from_iter_values(
            numbers.iter().map(|n| value(*n)),
        ))
    };
    let int = |value: &dyn Fn(i64) -> i64| -> ArrayRef {
        Arc::new(Int64Array::from_iter_values(
            numbers.iter().map(|n| value(*n)),
        ))
    };
    let columns = [
        text(&key),
        text(&|n| format!("p{}", n % 5)),
        int(&|n| 1 + newer(n)),
        int(&|n| n * 3),
        text(&|n| format!("name {}", n % 1_000)),
        text(&|n| format!("note of row {n}")),
    ];
    let nullable = COLUMNS
        .into_iter()
        .zip(columns)
        .map(|(name, column)| (name, column, true));
    RecordBatch::try_from_iter_with_nullable(nullable).unwrap()
}

/// Numbers below `rows` in another order.
fn shuffled(rows: i64) -> impl Iterator<Item = i64> {
    let step = (rows / 2..).find(|step| gcd(*step, rows) == 1).unwrap_or(1);
    (0..rows).map(move |n| n * step % rows.max(1))
}

fn gcd(a: i64, b: i64) -> i64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

async fn create(directory: &std::path::Path, arguments: &Arguments) -> DeltaTable {
    let mut create = DeltaTable::try_from_url(Url::from_directory_path(directory).unwrap())
        .await
        .unwrap()
        .create();
    for name in COLUMNS {
        let kind = match name {
            "version" | "amount" => PrimitiveType::Long,
            _ => PrimitiveType::String,
        };
        create = create.with_column(name, DataType::Primitive(kind), true, None);
    }
    match arguments.kind.as_str() {
        "upsert" => {}
        "change-data" => {
            create = create
                .with_configuration_property(TableProperty::EnableChangeDataFeed, Some("true"));
        }
        "partitioned" => create = create.with_partition_columns(["part"]),
        kind => panic!("no kind {kind}"),
    }
    let numbers: Vec<_> = (0..arguments.target_rows).collect();
    let batches = numbers.chunks(100_000).map(|numbers| batch(numbers, |_| 0));
    create.await.unwrap().write(batches).await.unwrap()
}

fn session(arguments: &Arguments, spill: &std::path::Path) -> SessionContext {
    let disk = DiskManagerMode::Directories(vec![spill.to_owned()]);
    let pool: Arc<dyn MemoryPool> = match arguments.fair {
        true => Arc::new(FairSpillPool::new(arguments.bytes)),
        false => Arc::new(GreedyMemoryPool::new(arguments.bytes)),
    };
    let runtime = RuntimeEnvBuilder::new()
        .with_disk_manager_builder(DiskManagerBuilder::default().with_mode(disk))
        .with_memory_pool(pool)
        .build_arc()
        .unwrap();
    let config = SessionConfig::new().with_target_partitions(arguments.partitions);
    SessionContext::new_with_config_rt(config, runtime)
}

/// Rows, distinct keys and the sum of the versions.
async fn summary(table: &DeltaTable) -> [i64; 3] {
    let context = SessionContext::new();
    let provider = table.table_provider().await.unwrap();
    context.register_table("t", provider).unwrap();
    let sql = "select count(*), count(distinct key), sum(version) from t";
    let batches = context.sql(sql).await.unwrap().collect().await.unwrap();
    [0, 1, 2].map(|column| {
        batches[0]
            .column(column)
            .as_primitive::<Int64Type>()
            .value(0)
    })
}

#[tokio::main(worker_threads = 2)]
async fn main() {
    let arguments = Arguments::parse().expect("the arguments that the source file names");
    let (table, spill) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let created = create(table.path(), &arguments).await;
    let context = session(&arguments, spill.path());

    let every = arguments.changed_every;
    let newer = |n: i64| i64::from(n % every == 0);
    let numbers: Vec<_> = shuffled(arguments.source_rows).collect();
    let mut partitions = vec![Vec::new(); arguments.source_partitions];
    for (index, numbers) in numbers.chunks(4_000).enumerate() {
        partitions[index % arguments.source_partitions].push(batch(numbers, newer));
    }
    let rows = MemTable::try_new(batch(&[], newer).schema(), partitions).unwrap();
    let rows = context.read_table(Arc::new(rows)).unwrap();

    let peak = Arc::new(AtomicU64::new(0));
    let watch = {
        let (disk, peak) = (
            Arc::clone(&context.runtime_env().disk_manager),
            Arc::clone(&peak),
        );
        tokio::spawn(async move {
            loop {
                peak.fetch_max(disk.used_disk_space(), Ordering::Relaxed);
                tokio::time::sleep(Duration::from_micros(500)).await;
            }
        })
    };
    let set_all = |name: &str| (name.to_owned(), source(name));
    let result = created
        .merge(rows, source("key").eq(target("key")))
        .with_source_alias("source")
        .with_target_alias("target")
        .with_session_state(Arc::new(context.state()))
        .when_matched_update(|mut update| {
            for (name, value) in COLUMNS.map(set_all) {
                update = update.update(name, value);
            }
            update.predicate(source("version").gt(target("version")))
        })
        .unwrap()
        .when_not_matched_insert(|mut insert| {
            for (name, value) in COLUMNS.map(set_all) {
                insert = insert.set(name, value);
            }
            insert
        })
        .unwrap()
        .await;
    watch.abort();
    let peak = peak.load(Ordering::Relaxed);

    let (target_rows, source_rows) = (arguments.target_rows, arguments.source_rows);
    let rows = target_rows.max(source_rows);
    match result {
        Ok((merged, _)) => {
            let changed = (0..source_rows).filter(|n| n % every == 0).count() as i64;
            assert_eq!(summary(&merged).await, [rows, rows, rows + changed]);
            println!("merged {peak}");
        }
        Err(error) => println!("refused {peak} {error}"),
    }
}
