//! A session with the memory and the disk a test wants, and what is left of both afterwards.

use std::future::Future;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::RecordBatch;
use datafusion::common::Result;
use datafusion::datasource::memory::MemorySourceConfig;
use datafusion::execution::TaskContext;
use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::memory_pool::{FairSpillPool, GreedyMemoryPool, MemoryPool};
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_plan::{ExecutionPlan, execute_stream_partitioned};
use datafusion::prelude::{SessionConfig, SessionContext};
use deltalake_merge::physical_plan::finish;
use deltalake_merge::validation::MergeValidationExec;
use deltalake_merge::{MergeOptions, MergeTotals};
use futures::TryStreamExt;
use proptest::prelude::*;
use tempfile::TempDir;

use crate::matches::{self, FILE, ORDINAL, Row};

#[derive(Debug, Clone, Copy)]
pub enum Pool {
    Unbounded,
    Greedy(usize),
    Fair(usize),
}

#[derive(Debug, Clone)]
pub struct Settings {
    pub pool: Pool,
    pub limit: Option<usize>,
    pub batch_size: usize,
    pub max_disk: Option<u64>,
    pub disk: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            pool: Pool::Unbounded,
            limit: None,
            batch_size: 8192,
            max_disk: None,
            disk: true,
        }
    }
}

/// Any memory, down to where not one row fits, any limit and any batch size.
pub fn settings() -> impl Strategy<Value = Settings> {
    let pool = prop_oneof![
        Just(Pool::Unbounded),
        (256_usize..100_000).prop_map(Pool::Greedy),
        (256_usize..100_000).prop_map(Pool::Fair),
    ];
    let limit = prop_oneof![Just(None), Just(Some(0)), (1_usize..200_000).prop_map(Some),];
    let batch_size = prop_oneof![Just(8192), 1_usize..100];
    (pool, limit, batch_size).prop_map(|(pool, limit, batch_size)| Settings {
        pool,
        limit,
        batch_size,
        ..Settings::default()
    })
}

pub struct Session {
    pub context: Arc<TaskContext>,
    limit: Option<usize>,
    spill: TempDir,
}

impl Session {
    pub fn new(settings: &Settings) -> Self {
        let spill = TempDir::new().unwrap();
        let mode = match settings.disk {
            true => DiskManagerMode::Directories(vec![spill.path().to_owned()]),
            false => DiskManagerMode::Disabled,
        };
        let mut disk = DiskManagerBuilder::default().with_mode(mode);
        if let Some(bytes) = settings.max_disk {
            disk = disk.with_max_temp_directory_size(bytes);
        }
        let mut runtime = RuntimeEnvBuilder::new().with_disk_manager_builder(disk);
        let pool: Option<Arc<dyn MemoryPool>> = match settings.pool {
            Pool::Unbounded => None,
            Pool::Greedy(bytes) => Some(Arc::new(GreedyMemoryPool::new(bytes))),
            Pool::Fair(bytes) => Some(Arc::new(FairSpillPool::new(bytes))),
        };
        if let Some(pool) = pool {
            runtime = runtime.with_memory_pool(pool);
        }
        let config = SessionConfig::new().with_batch_size(settings.batch_size);
        let session =
            SessionContext::new_with_config_rt(config, Arc::new(runtime.build().unwrap()));
        Self {
            context: session.task_ctx(),
            limit: settings.limit,
            spill,
        }
    }

    /// The directory that the session's own spill directory is in.
    pub fn spill_dir(&self) -> &Path {
        self.spill.path()
    }

    /// The check on top of `batches`, a vector for each partition.
    pub fn validation(&self, batches: &[Vec<RecordBatch>]) -> Arc<dyn ExecutionPlan> {
        let input = MemorySourceConfig::try_new_exec(batches, matches::schema(), None).unwrap();
        self.validation_of(input)
    }

    pub fn validation_of(&self, input: Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
        let file = Arc::new(Column::new_with_schema(FILE, &matches::schema()).unwrap());
        let (file_column, ordinal) = (FILE.to_owned(), ORDINAL.to_owned());
        let exec = MergeValidationExec::new(input, file, file_column.into(), ordinal.into());
        self.finish(Arc::new(exec))
    }

    /// `plan` as MERGE would run it in this session.
    pub fn finish(&self, plan: Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
        let options = MergeOptions {
            deferred_rows_memory_limit: self.limit,
            ..MergeOptions::default()
        };
        finish(plan, &options, &self.context).unwrap()
    }

    /// Runs all partitions of `plan` at once.
    pub async fn run(&self, plan: &Arc<dyn ExecutionPlan>) -> Result<Vec<RecordBatch>> {
        let streams = execute_stream_partitioned(Arc::clone(plan), Arc::clone(&self.context))?;
        let partitions = streams
            .into_iter()
            .map(|stream| stream.try_collect::<Vec<_>>());
        let partitions = futures::future::try_join_all(partitions).await?;
        Ok(partitions.into_iter().flatten().collect())
    }

    /// No reservation and no spill file is left.
    pub fn assert_released(&self) {
        assert_eq!(
            self.context.memory_pool().reserved(),
            0,
            "memory is still reserved"
        );
        let disk = &self.context.runtime_env().disk_manager;
        assert_eq!(disk.used_disk_space(), 0, "disk space is still counted");
        for directory in disk.temp_dir_paths() {
            let left = std::fs::read_dir(&directory).map_or(0, |entries| entries.count());
            assert_eq!(left, 0, "files are left in {}", directory.display());
        }
    }
}

/// Splits rows into partitions by file, as the hash by file does, and those into batches.
pub fn partition(rows: &[Row], partitions: u16, batch_rows: usize) -> Vec<Vec<RecordBatch>> {
    let partitions = (0..partitions).map(|partition| {
        let rows: Vec<_> = rows
            .iter()
            .filter(|row| row.file.unwrap_or(0) % partitions == partition)
            .cloned()
            .collect();
        rows.chunks(batch_rows.max(1)).map(matches::batch).collect()
    });
    partitions.collect()
}

pub fn totals(plan: &Arc<dyn ExecutionPlan>) -> MergeTotals {
    MergeTotals::of(plan)
}

/// Runs `test` to its end, or fails when that takes too long.
pub fn with_time_limit<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_time()
        .build()
        .unwrap();
    runtime.block_on(async {
        let limit = Duration::from_secs(60);
        tokio::time::timeout(limit, test)
            .await
            .expect("the test hangs")
    })
}
