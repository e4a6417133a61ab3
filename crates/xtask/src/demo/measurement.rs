//! What the worker reports, and several reports of one case as one.

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

/// One line of the worker, and one line of `--json`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Measurement {
    pub(super) workload: String,
    pub(super) mode: String,
    pub(super) build: String,
    pub(super) target_rows: u64,
    pub(super) source_rows: u64,
    /// Of the source in memory. It is there before the MERGE, whose join then holds a copy.
    pub(super) source_mb: f64,
    pub(super) seconds: f64,
    pub(super) peak_rss_growth_mb: Option<f64>,
    pub(super) rows_updated: u64,
    pub(super) rows_copied: u64,
    pub(super) rows_deferred: Option<u64>,
    pub(super) spilled_mb: Option<f64>,
    /// Of the table after the MERGE, the same for every order of its rows.
    pub(super) checksum: String,
}

impl Measurement {
    /// The repetitions of one case as one: medians of what varies from run to run. What the MERGE
    /// did must not vary.
    pub(super) fn median(runs: &[Self]) -> Result<Self> {
        let first = runs.first().context("nothing was measured")?;
        let name = format!("{} {} {}", first.workload, first.build, first.mode);
        let did = |run: &Self| (run.rows_updated, run.rows_copied, run.checksum.clone());
        ensure!(
            runs.iter().all(|run| did(run) == did(first)),
            "{name}: repeated runs did different things (rows updated, rows copied, checksum): {:?}",
            runs.iter().map(did).collect::<Vec<_>>()
        );
        let median_of = |field: fn(&Self) -> Option<f64>| {
            let values: Option<Vec<f64>> = runs.iter().map(field).collect();
            values.map(median)
        };
        Ok(Self {
            seconds: median(runs.iter().map(|run| run.seconds).collect()),
            peak_rss_growth_mb: median_of(|run| run.peak_rss_growth_mb),
            rows_deferred: median_of(|run| run.rows_deferred.map(|rows| rows as f64))
                .map(|rows| rows.round() as u64),
            spilled_mb: median_of(|run| run.spilled_mb),
            ..first.clone()
        })
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 {
        values[middle]
    } else {
        (values[middle - 1] + values[middle]) / 2.0
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(crate) fn measurement(build: &str, mode: &str, seconds: f64) -> Measurement {
        Measurement {
            workload: "mixed".to_string(),
            mode: mode.to_string(),
            build: build.to_string(),
            target_rows: 1_000_000,
            source_rows: 1_000_000,
            source_mb: 100.0,
            seconds,
            peak_rss_growth_mb: Some(seconds * 100.0),
            rows_updated: 10_000,
            rows_copied: 990_000,
            rows_deferred: (build == "fork").then_some(990_000),
            spilled_mb: (build == "fork").then_some(0.0),
            checksum: "c0ffee".to_string(),
        }
    }

    #[test]
    fn medians_of_odd_and_even_counts() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), 2.5);
    }

    #[test]
    fn unknown_values_stay_unknown() {
        let runs = [1.0, 3.0, 2.0].map(|seconds| measurement("baseline", "full", seconds));
        let median = Measurement::median(&runs).unwrap();
        assert_eq!(median.seconds, 2.0);
        assert_eq!(median.peak_rss_growth_mb, Some(200.0));
        assert_eq!(median.rows_deferred, None);
        assert_eq!(median.spilled_mb, None);
    }

    #[test]
    fn runs_that_differ_in_what_they_did_are_refused() {
        let mut runs = [1.0, 2.0].map(|seconds| measurement("fork", "full", seconds));
        runs[1].rows_copied -= 1;
        let error = Measurement::median(&runs).unwrap_err().to_string();
        assert!(error.contains("mixed fork full"), "{error}");
        assert!(error.contains("989999"), "{error}");
    }
}
