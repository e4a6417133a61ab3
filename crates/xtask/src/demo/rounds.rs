//! The order in which everything is measured.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use tempfile::TempDir;

use super::measurement::Measurement;
use super::options::Options;
use super::worker::Worker;

pub(super) struct Rounds<'a> {
    workers: &'a [Worker],
    runs: usize,
    /// Holds the tables, beside what is built: a disk with room, where `/tmp` may be memory.
    dir: TempDir,
    started: usize,
    total: usize,
}

impl<'a> Rounds<'a> {
    pub(super) fn new(options: &Options, workers: &'a [Worker], target_dir: &Path) -> Result<Self> {
        let cases = options.workloads.iter().flat_map(|workload| {
            let modes = workers.iter().map(|worker| worker.modes(workload).len());
            modes.collect::<Vec<_>>()
        });
        let cases: usize = cases.sum();
        Ok(Self {
            workers,
            runs: options.runs,
            dir: tempfile::Builder::new()
                .prefix("merge-demo-tables-")
                .tempdir_in(target_dir)?,
            started: 0,
            total: options.runs * cases,
        })
    }

    /// Measures a workload in every mode of every build.
    pub(super) fn measure(&mut self, workload: &str) -> Result<Vec<Measurement>> {
        let dir = self.dir.path().join(workload);
        eprintln!("{workload}: writing the target table");
        let writer = self.workers.last().context("there is no worker")?;
        writer.prepare(workload, &dir.join("table"))?;

        let workers = self.workers;
        let cases: Vec<(&Worker, &str)> = workers
            .iter()
            .flat_map(|worker| {
                worker
                    .modes(workload)
                    .iter()
                    .map(move |mode| (worker, *mode))
            })
            .collect();
        let mut measured = vec![Vec::new(); cases.len()];
        for round in 0..self.runs {
            // Each round starts with another case: none is always the one that finds all cold.
            for turn in 0..cases.len() {
                let case = (round + turn) % cases.len();
                measured[case].push(self.measure_once(workload, cases[case], &dir)?);
            }
        }
        fs::remove_dir_all(&dir)?;
        measured
            .iter()
            .map(|runs| Measurement::median(runs))
            .collect()
    }

    /// One process on a copy of the table in `dir`.
    ///
    /// The copy stays until the workload is through, and is on disk before the process starts: for a
    /// minute after files were deleted ext4 looks long for the inode of a new one, and what one
    /// process has left to be written would slow the next.
    fn measure_once(
        &mut self,
        workload: &str,
        (worker, mode): (&Worker, &str),
        dir: &Path,
    ) -> Result<Measurement> {
        self.started += 1;
        let progress = format!("[{:>3}/{}]", self.started, self.total);
        eprint!("{progress} {workload}, {} {mode}: ", worker.build);

        let copy = dir.join(format!("copy-{}", self.started));
        copy_dir(&dir.join("table"), &copy)?;
        #[cfg(unix)]
        rustix::fs::sync();
        let measured = worker.measure(workload, mode, &copy)?;

        let growth = measured.peak_rss_growth_mb;
        let growth = growth.map_or(String::new(), |mb| format!(", {mb:.0} MB"));
        eprintln!("{:.2} s{growth}", measured.seconds);
        Ok(measured)
    }
}

fn copy_dir(from: &Path, to: &Path) -> Result<()> {
    let failed = |path: &Path| format!("{} cannot be copied", path.display());
    fs::create_dir_all(to).with_context(|| failed(from))?;
    for entry in fs::read_dir(from).with_context(|| failed(from))? {
        let entry = entry?;
        let (source, target): (PathBuf, PathBuf) = (entry.path(), to.join(entry.file_name()));
        if entry.file_type()?.is_dir() {
            copy_dir(&source, &target)?;
        } else {
            fs::copy(&source, &target).with_context(|| failed(&source))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_copied_with_its_log() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("from"), dir.path().join("to"));
        fs::create_dir_all(from.join("_delta_log")).unwrap();
        fs::write(from.join("part.parquet"), "data").unwrap();
        fs::write(from.join("_delta_log/0.json"), "log").unwrap();
        copy_dir(&from, &to).unwrap();
        assert_eq!(fs::read_to_string(to.join("part.parquet")).unwrap(), "data");
        assert_eq!(
            fs::read_to_string(to.join("_delta_log/0.json")).unwrap(),
            "log"
        );
    }
}
