//! Sessions whose memory, disk and parallelism a test decides.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::memory_pool::{
    FairSpillPool, GreedyMemoryPool, MemoryPool, UnboundedMemoryPool,
};
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::prelude::{SessionConfig, SessionContext};
use tempfile::TempDir;

use crate::table::files_below;

/// The memory of a session.
#[derive(Debug, Clone, Copy)]
pub enum Pool {
    Unbounded,
    Greedy(usize),
    Fair(usize),
}

/// Where a session may spill.
#[derive(Debug, Clone, Copy)]
pub enum Disk {
    /// A directory of its own, without a limit.
    Directory,
    /// A directory of its own, this many bytes at most.
    Quota(u64),
    Disabled,
}

#[derive(Debug, Clone, Copy)]
pub struct SessionSpec {
    pub target_partitions: usize,
    pub batch_size: usize,
    pub pool: Pool,
    pub disk: Disk,
    /// Without hash joins the check for duplicates has to use bitmaps: the sort-merge join of a
    /// MERGE streams the source. In one partition DataFusion takes a hash join all the same.
    pub hash_join: bool,
}

impl Default for SessionSpec {
    fn default() -> Self {
        Self {
            target_partitions: 2,
            batch_size: 8192,
            pool: Pool::Unbounded,
            disk: Disk::Directory,
            hash_join: true,
        }
    }
}

/// A session with a spill directory that nobody else writes to.
pub struct TestSession {
    pub context: SessionContext,
    directory: TempDir,
}

impl TestSession {
    pub fn new(spec: &SessionSpec) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let here = DiskManagerMode::Directories(vec![directory.path().to_owned()]);
        let disk = match spec.disk {
            Disk::Directory => DiskManagerBuilder::default().with_mode(here),
            Disk::Quota(bytes) => DiskManagerBuilder::default()
                .with_mode(here)
                .with_max_temp_directory_size(bytes),
            Disk::Disabled => DiskManagerBuilder::default().with_mode(DiskManagerMode::Disabled),
        };
        let pool: Arc<dyn MemoryPool> = match spec.pool {
            Pool::Unbounded => Arc::new(UnboundedMemoryPool::default()),
            Pool::Greedy(bytes) => Arc::new(GreedyMemoryPool::new(bytes)),
            Pool::Fair(bytes) => Arc::new(FairSpillPool::new(bytes)),
        };
        let runtime = RuntimeEnvBuilder::new()
            .with_disk_manager_builder(disk)
            .with_memory_pool(pool)
            .build_arc()
            .expect("a writable temporary directory");
        let mut config = SessionConfig::new()
            .with_target_partitions(spec.target_partitions)
            .with_batch_size(spec.batch_size);
        config.options_mut().optimizer.prefer_hash_join = spec.hash_join;
        Self {
            context: SessionContext::new_with_config_rt(config, runtime),
            directory,
        }
    }

    /// The directory in which spill files are created.
    pub fn spill_directory(&self) -> PathBuf {
        let directories = self.context.runtime_env().disk_manager.temp_dir_paths();
        directories
            .first()
            .expect("a session that may spill")
            .clone()
    }

    /// Files that lie in the spill directory now.
    pub fn spill_files(&self) -> Vec<PathBuf> {
        files_below(self.directory.path())
    }

    /// Bytes that operators hold in the session's pool now.
    pub fn reserved(&self) -> usize {
        self.context.runtime_env().memory_pool.reserved()
    }

    /// Waits until the tasks of the last plan are gone, which may outlive its future for a moment.
    ///
    /// # Panics
    /// When files or reservations stay.
    pub async fn assert_released(&self) {
        let deadline = Instant::now() + Duration::from_secs(20);
        while !self.spill_files().is_empty() || self.reserved() > 0 {
            assert!(
                Instant::now() < deadline,
                "after the merge {} bytes stay reserved and these files stay: {:?}",
                self.reserved(),
                self.spill_files()
            );
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}
