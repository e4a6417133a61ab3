//! `cargo xtask test`: everything CI checks, in the order of what is quickest
//! to fail.

mod limit;
mod report;
mod suites;

use std::process::Command;

use anyhow::{Result, ensure};

use crate::cargo::{self, cargo};
use crate::fork;
use report::Report;
use suites::Counts;

/// The package whose files are not ours: neither its format nor its lints are
/// checked, and of its tests only those of MERGE are run.
const UPSTREAM: &str = "deltalake-core";

pub fn run() -> Result<()> {
    let mut report = Report::default();
    let result = steps(&mut report);
    report.print();
    result
}

fn steps(report: &mut Report) -> Result<()> {
    report.step("fork", fork::ensure)?;
    report.step("format", format)?;
    report.step("xtask: lints", || {
        cargo::run(&mut of("clippy", XTASK, DENY_WARNINGS))
    })?;
    report.step("xtask: tests", || cargo::run(&mut of("test", XTASK, &[])))?;
    report.step("lints", lints)?;
    report.step("examples/downstream: lints", || {
        cargo::run(&mut of("clippy", DOWNSTREAM, DENY_WARNINGS))
    })?;
    let suites = report.step("build of the tests", suites::build)?;

    // Each suite runs, whatever became of the one before.
    let mut failed = 0;
    let mut count =
        |report: &mut Report, name: &str, counts: &dyn Fn() -> Result<Counts>| match report
            .step(name, counts)
        {
            Ok(counts) => report.note(&counts.to_string()),
            Err(_) => failed += 1,
        };
    for suite in &suites {
        count(report, &suite.name, &|| suite.run());
    }
    ensure!(failed == 0, "{failed} suites failed");
    Ok(())
}

fn format() -> Result<()> {
    let mut ours = cargo();
    ours.args(["fmt", "--check"]);
    for package in cargo::metadata()?.packages {
        if package.name != UPSTREAM {
            ours.args(["--package", &package.name]);
        }
    }
    cargo::run(&mut ours)?;
    for manifest in [XTASK, DOWNSTREAM] {
        cargo::run(cargo().args(["fmt", "--check", "--manifest-path", manifest]))?;
    }
    Ok(())
}

fn lints() -> Result<()> {
    let mut command = cargo();
    command.args(["clippy", "--locked", "--workspace", "--exclude", UPSTREAM]);
    command.args(["--all-targets", "--no-deps", "--", "-D", "warnings"]);
    cargo::run(&mut command)
}

/// Workspaces of their own.
const XTASK: &str = "crates/xtask/Cargo.toml";
const DOWNSTREAM: &str = "examples/downstream/Cargo.toml";

const DENY_WARNINGS: &[&str] = &["--all-targets", "--no-deps", "--", "-D", "warnings"];

/// A subcommand for a workspace that is not this one.
fn of(subcommand: &str, manifest: &str, args: &[&str]) -> Command {
    let mut command = cargo();
    command.args([subcommand, "--locked", "--manifest-path", manifest]);
    command.args(args);
    command
}
