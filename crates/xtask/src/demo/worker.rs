//! The built worker, and one process of it.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::baseline;
use super::measurement::Measurement;
use crate::cargo::{self, cargo};

/// No process of the worker takes longer, however slow the machine, unless it hangs.
const TIME_LIMIT: Duration = Duration::from_secs(20 * 60);

/// The unpatched core takes nine gigabytes for a third of these rows: it would be killed.
const TOO_LARGE_FOR_BASELINE: &str = "mixed3m";

/// How often to look whether a process has ended; what it measures it measures itself.
const POLL_EVERY: Duration = Duration::from_millis(20);

const PACKAGE: &str = "merge-bench";
const BINARY: &str = "merge-demo";

pub(super) struct Worker {
    pub(super) build: &'static str,
    modes: &'static [&'static str],
    path: PathBuf,
}

impl Worker {
    pub(super) fn fork(target_dir: &Path) -> Result<Self> {
        announce("the worker on the fork", target_dir);
        let mut command = cargo();
        command.args(["build", "--release", "--locked"]);
        command.args(["--package", PACKAGE, "--bin", BINARY]);
        Ok(Self {
            build: "fork",
            modes: &["full", "unique", "spill32"],
            path: built(&mut command, BINARY)?,
        })
    }

    pub(super) fn baseline(target_dir: &Path) -> Result<Self> {
        announce("the worker on the unpatched deltalake-core", target_dir);
        let root = cargo::root();
        let dir = target_dir.join(baseline::PACKAGE);
        let manifest = baseline::generate(&root, &dir)?;
        // Adapts the copied lockfile, which is checked before anything is compiled.
        cargo::parse_metadata(
            cargo()
                .args(["metadata", "--format-version=1", "--manifest-path"])
                .arg(&manifest),
        )?;
        baseline::check_versions(&root, &dir)?;

        let mut command = cargo();
        command.args(["build", "--release", "--locked", "--manifest-path"]);
        command.arg(&manifest).arg("--target-dir").arg(target_dir);
        Ok(Self {
            build: "baseline",
            modes: &["full"],
            path: built(&mut command, baseline::PACKAGE)?,
        })
    }

    /// The modes in which a workload is measured.
    pub(super) fn modes(&self, workload: &str) -> &'static [&'static str] {
        match self.build == "baseline" && workload == TOO_LARGE_FOR_BASELINE {
            true => &[],
            false => self.modes,
        }
    }

    /// Writes the target table of a workload.
    pub(super) fn prepare(&self, workload: &str, dir: &Path) -> Result<()> {
        let mut command = self.command("prepare", workload, dir);
        finish(command.spawn().context("the worker cannot be started")?)
    }

    /// Measures one MERGE on the table in `dir`.
    pub(super) fn measure(&self, workload: &str, mode: &str, dir: &Path) -> Result<Measurement> {
        let name = format!("{workload} in mode {mode} on the {}", self.build);
        let mut child = self
            .command("run", workload, dir)
            .args(["--mode", mode])
            .stdout(Stdio::piped())
            .spawn()
            .context("the worker cannot be started")?;
        let mut stdout = child.stdout.take().context("stdout is piped")?;
        finish(child).with_context(|| format!("{name} failed"))?;

        let mut line = String::new();
        stdout.read_to_string(&mut line)?;
        serde_json::from_str(&line).with_context(|| format!("{name} reported {line:?}"))
    }

    fn command(&self, command: &str, workload: &str, dir: &Path) -> Command {
        let mut worker = Command::new(&self.path);
        worker.args([command, "--workload", workload, "--dir"]);
        worker.arg(dir).stdin(Stdio::null());
        worker
    }
}

fn announce(what: &str, target_dir: &Path) {
    eprintln!("building {what} in release mode");
    let release = target_dir.join("release");
    let built_before = [BINARY, baseline::PACKAGE]
        .iter()
        .any(|name| File::open(release.join(name)).is_ok());
    if !built_before {
        eprintln!(
            "  the first release build compiles all of DataFusion: about 25 minutes on 2 cores; \
             later runs start at once"
        );
    }
}

fn built(command: &mut Command, binary: &str) -> Result<PathBuf> {
    let executables = cargo::build(command)?;
    let executable = executables.into_iter().find(|made| made.target == binary);
    Ok(executable
        .with_context(|| format!("cargo has built no {binary}"))?
        .path)
}

const KILLED: &str = ", as a process does that the system has no memory left for; with --baseline \
    12 GB should be free, and --workload leaves the large ones out";

fn is_killed(status: ExitStatus) -> bool {
    #[cfg(unix)]
    return std::os::unix::process::ExitStatusExt::signal(&status) == Some(9);
    #[cfg(not(unix))]
    return false;
}

/// Waits for a process and kills it when it takes too long.
fn finish(mut child: Child) -> Result<()> {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            let hint = if is_killed(status) { KILLED } else { "" };
            ensure!(status.success(), "the worker ended with {status}{hint}");
            return Ok(());
        }
        if start.elapsed() > TIME_LIMIT {
            child.kill()?;
            child.wait()?;
            bail!("the worker was stopped after {} s", TIME_LIMIT.as_secs());
        }
        thread::sleep(POLL_EVERY);
    }
}
