//! `cargo xtask bench`: the criterion benchmarks of package `merge-bench`.

use anyhow::{Context, Result, ensure};

use crate::cargo::{self, cargo};
use crate::fork;

const PACKAGE: &str = "merge-bench";

/// Runs every benchmark and hands `args` to criterion.
pub fn run(args: &[String]) -> Result<()> {
    fork::ensure()?;

    let metadata = cargo::metadata()?;
    let package = metadata
        .package(PACKAGE)
        .with_context(|| format!("the workspace has no package `{PACKAGE}`"))?;
    let benches = package.targets_of_kind("bench");
    ensure!(!benches.is_empty(), "package `{PACKAGE}` has no benchmark");

    // Named one by one: `--benches` would also run the library's and the
    // programs' harness, which does not know criterion's arguments.
    let mut command = cargo();
    command.args(["bench", "--locked", "--package", PACKAGE]);
    for bench in benches {
        command.args(["--bench", bench]);
    }
    cargo::run(command.arg("--").args(args))
}
