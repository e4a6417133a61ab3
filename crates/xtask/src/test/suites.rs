//! The test binaries: built in one call of cargo, run one after the other.

use std::collections::HashMap;
use std::fmt;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use super::{UPSTREAM, limit};
use crate::cargo::{self, Executable, Package, cargo};

/// Far above what any suite takes. A MERGE that waits for itself is a bug that
/// has existed, and CI shall say which suite it was.
const LIMIT: Duration = Duration::from_secs(20 * 60);

/// The tests of upstream that are about MERGE.
struct Selected {
    package: &'static str,
    target: &'static str,
    filter: &'static str,
    /// What passes on the patched 1.1.3. When fewer run, a module was renamed
    /// or dropped out of the build, and nobody would notice otherwise.
    at_least: usize,
}

const SELECTED: [Selected; 2] = [
    // 97 in the unpatched crate. The 11 inside `validation.rs` and the 3 inside
    // `barrier.rs` are gone with the code they test.
    Selected {
        package: UPSTREAM,
        target: "deltalake_core",
        filter: "operations::merge::",
        at_least: 83,
    },
    // The binary it belongs to needs a crate that is not published, so its file is part of one of
    // ours.
    Selected {
        package: "merge-tests",
        target: "upstream",
        filter: "command_merge::",
        at_least: 10,
    },
];

/// One test binary, and what to run of it.
pub struct Suite {
    pub name: String,
    filter: Option<&'static str>,
    at_least: usize,
    executable: PathBuf,
    package_dir: PathBuf,
    package_env: [(&'static str, String); 2],
}

/// What `test result:` lines add up to.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Counts {
    passed: usize,
    ignored: usize,
}

/// Builds all test binaries.
///
/// The whole workspace is named, here and for the doc tests: the features of
/// shared dependencies depend on the packages selected, and another selection
/// would compile DataFusion once more.
pub fn build() -> Result<Vec<Suite>> {
    let metadata = cargo::metadata()?;
    let mut command = cargo();
    command.args(["test", "--locked", "--workspace", "--no-run", "--lib"]);
    for package in &metadata.packages {
        if package.name != UPSTREAM {
            for target in package.targets_of_kind("test") {
                command.args(["--test", target]);
            }
        }
    }

    let packages: HashMap<_, _> = metadata
        .packages
        .iter()
        .map(|package| (&package.manifest_path, package))
        .collect();
    let mut suites = Vec::new();
    for executable in cargo::build(&mut command)?
        .into_iter()
        .filter(|made| made.is_test)
    {
        let package = packages
            .get(&executable.manifest_path)
            .with_context(|| format!("{executable:?} belongs to no package"))?;
        suites.push(Suite::new(executable, package)?);
    }
    for Selected {
        package,
        target,
        filter,
        ..
    } in SELECTED
    {
        ensure!(
            suites.iter().any(|suite| suite.filter == Some(filter)),
            "{package} has no test target `{target}` any more"
        );
    }
    // Ours first: they are the likelier ones to fail.
    suites.sort_by_cached_key(|suite| (suite.filter.is_some(), suite.name.clone()));
    Ok(suites)
}

impl Suite {
    fn new(executable: Executable, package: &Package) -> Result<Self> {
        let Executable { target, path, .. } = executable;
        let selected = SELECTED
            .iter()
            .find(|selected| selected.package == package.name && selected.target == target);
        ensure!(
            selected.is_some() || package.name != UPSTREAM,
            "no selection of tests for {target} of {}",
            package.name,
        );
        let part = selected.map_or(target.as_str(), |selected| {
            selected.filter.trim_end_matches("::")
        });
        Ok(Self {
            name: format!("{}: {part}", package.name),
            filter: selected.map(|selected| selected.filter),
            at_least: selected.map_or(0, |selected| selected.at_least),
            executable: path,
            package_dir: package.dir().to_owned(),
            package_env: [
                ("CARGO_PKG_NAME", package.name.clone()),
                ("CARGO_PKG_VERSION", package.version.clone()),
            ],
        })
    }

    /// Runs it as `cargo test` would: in the package's directory, with what
    /// cargo says about the package.
    pub fn run(&self) -> Result<Counts> {
        let mut command = Command::new(&self.executable);
        cargo::forget_xtask(&mut command);
        command
            .args(self.filter)
            .current_dir(&self.package_dir)
            .env("CARGO_MANIFEST_DIR", &self.package_dir)
            .envs(self.package_env.iter().map(|(name, value)| (name, value)));
        let counts = run_counted(&mut command)?;
        ensure!(
            counts.passed >= self.at_least,
            "only {} tests ran, where {} used to; if that is right, correct the number in \
             crates/xtask/src/test/suites.rs and give the reason in patches/README.md",
            counts.passed,
            self.at_least,
        );
        Ok(counts)
    }
}

fn run_counted(command: &mut Command) -> Result<Counts> {
    let mut counts = Counts::default();
    let mut summaries = 0;
    limit::run(command, LIMIT, |line| {
        if let Some(more) = Counts::parse(line) {
            counts.passed += more.passed;
            counts.ignored += more.ignored;
            summaries += 1;
        }
    })?;
    if summaries == 0 {
        bail!("no line `test result: …` was printed");
    }
    Ok(counts)
}

impl Counts {
    /// Reads `test result: ok. 12 passed; 0 failed; 1 ignored; …`.
    fn parse(line: &str) -> Option<Self> {
        let counts = line.strip_prefix("test result: ok. ")?;
        let count = |name| {
            let mut words = counts.split("; ").filter_map(|part| part.split_once(' '));
            words.find(|(_, what)| *what == name)?.0.parse().ok()
        };
        Some(Self {
            passed: count("passed")?,
            ignored: count("ignored")?,
        })
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed", self.passed)?;
        match self.ignored {
            0 => Ok(()),
            ignored => write!(f, ", {ignored} ignored"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_read() {
        let line = "test result: ok. 97 passed; 0 failed; 2 ignored; 0 measured; \
                    1234 filtered out; finished in 3.21s";
        let counts = Counts::parse(line).unwrap();
        assert_eq!(
            counts,
            Counts {
                passed: 97,
                ignored: 2
            }
        );
        assert_eq!(counts.to_string(), "97 passed, 2 ignored");
        assert_eq!(
            Counts::parse("test result: FAILED. 1 passed; 2 failed"),
            None
        );
        assert_eq!(Counts::parse("test a::b ... ok"), None);
    }
}
