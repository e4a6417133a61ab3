//! One measured MERGE.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use arrow::record_batch::RecordBatch;
use datafusion::prelude::SessionContext;
use deltalake_core::operations::merge::MergeMetrics;
use serde_json::json;

use crate::checksum::{self, Content};
use crate::memory::PeakMemory;
use crate::mode::{self, BUILD, Mode};
use crate::workload::Workload;
use crate::{data, table};

pub(crate) struct Report {
    source_bytes: usize,
    elapsed: Duration,
    peak_growth: Option<u64>,
    metrics: MergeMetrics,
    content: Content,
}

/// Runs the MERGE of a workload on the table in `dir`.
///
/// The source is in memory and the table is open before the clock starts, as they are for a user
/// who hands over an Arrow table. No session is given: what is measured is the default one.
pub(crate) async fn run(workload: &Workload, mode: Mode, dir: &Path) -> Result<Report> {
    let source = data::source(workload)?;
    let source_bytes = source.iter().map(RecordBatch::get_array_memory_size).sum();
    let source = SessionContext::new().read_batches(source)?;
    let table = table::open(dir).await?;
    let merge = table
        .merge(source, workload.on())
        .with_source_alias("source")
        .with_target_alias("target");
    let merge = mode.apply(workload.clauses(merge)?);

    let memory = PeakMemory::start();
    let start = Instant::now();
    let (table, metrics) = merge
        .await
        .with_context(|| format!("the merge of {} failed", workload.name))?;
    let elapsed = start.elapsed();
    let peak_growth = memory.growth();

    let content = checksum::verify(workload, &table).await?;
    Ok(Report {
        source_bytes,
        elapsed,
        peak_growth,
        metrics,
        content,
    })
}

impl Report {
    pub(crate) fn to_json(&self, workload: &Workload, mode: Mode) -> serde_json::Value {
        let deferred = mode::deferred(&self.metrics);
        json!({
            "workload": workload.name,
            "mode": mode.name(),
            "build": BUILD,
            "target_rows": workload.target_rows,
            "source_rows": self.metrics.num_source_rows,
            "source_mb": megabytes(self.source_bytes as u64),
            "seconds": self.elapsed.as_secs_f64(),
            "peak_rss_growth_mb": self.peak_growth.map(megabytes),
            "rows_updated": self.metrics.num_target_rows_updated,
            "rows_copied": self.metrics.num_target_rows_copied,
            "rows_deferred": deferred.as_ref().map(|deferred| deferred.rows),
            "spilled_mb": deferred.map(|deferred| megabytes(deferred.spilled_bytes as u64)),
            "checksum": format!("{:016x}", self.content.checksum),
        })
    }
}

/// One MB is a million bytes throughout.
fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}
