//! Calls of cargo, always in the repository's root.

use std::env;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;

/// The repository's root.
pub fn root() -> PathBuf {
    // The variable cargo sets for the run comes first: a build directory
    // shared by two checkouts may hand one the program of the other.
    let xtask = env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    xtask
        .ancestors()
        .nth(2)
        .expect("xtask lies two levels below the root")
        .to_owned()
}

/// A call of the cargo that runs this program.
///
/// A build from here and one from the shell share everything: some build
/// scripts ask to be rerun when the variables change that [`forget_xtask`]
/// removes.
pub fn cargo() -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    forget_xtask(&mut command);
    if let Some(dir) = ci_target_dir() {
        command.env("CARGO_TARGET_DIR", dir);
    }
    command
}

/// Does not pass on what `cargo run` has said about xtask's own package.
pub fn forget_xtask(command: &mut Command) {
    for (name, _) in env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            command.env_remove(&name);
        }
    }
}

/// CI works in a fresh clone each time: what was built must lie elsewhere for a
/// second run to find it. Everyone else decides alone.
fn ci_target_dir() -> Option<PathBuf> {
    let set = |name| env::var_os(name).is_some_and(|value| !value.is_empty());
    if !set("CI") || set("CARGO_TARGET_DIR") {
        return None;
    }
    Some(env::home_dir()?.join(".cache/merge-fork/target"))
}

/// Runs `command` to its end.
///
/// # Errors
/// It cannot be started, or does not exit with success.
pub fn run(command: &mut Command) -> Result<()> {
    let status = command
        .status()
        .with_context(|| format!("cannot run {}", shown(command)))?;
    ensure!(status.success(), "{} failed: {status}", shown(command));
    Ok(())
}

/// The standard output of `command`; its messages go to the terminal.
///
/// # Errors
/// As [`run`].
pub fn output(command: &mut Command) -> Result<Vec<u8>> {
    let output = command
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("cannot run {}", shown(command)))?;
    ensure!(
        output.status.success(),
        "{} failed: {}",
        shown(command),
        output.status
    );
    Ok(output.stdout)
}

/// The command line as one would type it.
fn shown(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let program = program.file_name().unwrap_or(program.as_os_str());
    std::iter::once(program)
        .chain(command.get_args())
        .map(|word| word.to_string_lossy())
        .fold(String::from("`"), |line, word| {
            let space = if line == "`" { "" } else { " " };
            line + space + &word
        })
        + "`"
}

/// The part of `cargo metadata` that is of use here.
#[derive(Deserialize)]
pub struct Metadata {
    pub packages: Vec<Package>,
    target_directory: PathBuf,
}

#[derive(Deserialize)]
pub struct Package {
    pub name: String,
    pub version: String,
    pub manifest_path: PathBuf,
    targets: Vec<Target>,
}

#[derive(Deserialize)]
struct Target {
    name: String,
    kind: Vec<String>,
}

impl Metadata {
    pub fn package(&self, name: &str) -> Option<&Package> {
        self.packages.iter().find(|package| package.name == name)
    }
}

impl Package {
    /// The names of its targets of one kind, as in `--test NAME`.
    pub fn targets_of_kind(&self, kind: &str) -> Vec<&str> {
        self.targets
            .iter()
            .filter(|target| target.kind.iter().any(|have| have == kind))
            .map(|target| target.name.as_str())
            .collect()
    }

    pub fn dir(&self) -> &Path {
        self.manifest_path
            .parent()
            .expect("a manifest lies in a directory")
    }
}

/// The members of the root workspace. It loads only once `fork/` exists.
pub fn metadata() -> Result<Metadata> {
    parse_metadata(cargo().args(["metadata", "--format-version=1", "--no-deps", "--locked"]))
}

/// What a call of `cargo metadata` prints.
pub fn parse_metadata(command: &mut Command) -> Result<Metadata> {
    serde_json::from_slice(&output(command)?)
        .with_context(|| format!("cannot read the output of {}", shown(command)))
}

/// Where the root workspace is built.
pub fn target_dir() -> Result<PathBuf> {
    Ok(metadata()?.target_directory)
}

/// A program or test binary that a build has made.
#[derive(Debug)]
pub struct Executable {
    pub manifest_path: PathBuf,
    /// The name of the target, as in `--test NAME`.
    pub target: String,
    pub is_test: bool,
    pub path: PathBuf,
}

/// Runs a `cargo build`, or `cargo test --no-run`, and says which executables
/// it made or found up to date.
///
/// # Errors
/// As [`run`]; cargo has shown the compiler's messages by then.
pub fn build(command: &mut Command) -> Result<Vec<Executable>> {
    command.arg("--message-format=json-render-diagnostics");
    let mut child = command
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot run {}", shown(command)))?;
    let stdout = child.stdout.take().expect("stdout is piped");

    let mut executables = Vec::new();
    for line in BufReader::new(stdout).lines() {
        executables.extend(executable(&line?)?);
    }

    let status = child.wait()?;
    if !status.success() {
        bail!("{} failed: {status}", shown(command));
    }
    Ok(executables)
}

/// Reads one line of cargo's messages.
fn executable(line: &str) -> Result<Option<Executable>> {
    #[derive(Deserialize)]
    struct Message {
        reason: String,
        manifest_path: Option<PathBuf>,
        target: Option<Target>,
        profile: Option<Profile>,
        executable: Option<PathBuf>,
    }
    #[derive(Deserialize)]
    struct Profile {
        test: bool,
    }

    let message: Message =
        serde_json::from_str(line).with_context(|| format!("cargo says {line:?}"))?;
    if message.reason != "compiler-artifact" {
        return Ok(None);
    }
    Ok(
        match (
            message.manifest_path,
            message.target,
            message.profile,
            message.executable,
        ) {
            (Some(manifest_path), Some(target), Some(profile), Some(path)) => Some(Executable {
                manifest_path,
                target: target.name,
                is_test: profile.test,
                path,
            }),
            _ => None,
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_binary_is_recognised() {
        let line = r#"{"reason":"compiler-artifact","manifest_path":"/r/tests/Cargo.toml",
            "target":{"kind":["test"],"name":"merge"},"profile":{"test":true},
            "executable":"/t/merge-1"}"#;
        let made = executable(line).unwrap().unwrap();
        assert_eq!(made.target, "merge");
        assert!(made.is_test);
        assert_eq!(made.path, Path::new("/t/merge-1"));
    }

    #[test]
    fn a_library_and_a_build_script_are_none() {
        let library = r#"{"reason":"compiler-artifact","manifest_path":"/r/Cargo.toml",
            "target":{"kind":["lib"],"name":"r"},"profile":{"test":false},"executable":null}"#;
        let script = r#"{"reason":"build-script-executed","package_id":"x"}"#;
        assert!(executable(library).unwrap().is_none());
        assert!(executable(script).unwrap().is_none());
    }

    #[test]
    fn a_command_is_shown_as_typed() {
        let mut command = Command::new("/usr/bin/cargo");
        command.args(["test", "--locked"]);
        assert_eq!(shown(&command), "`cargo test --locked`");
    }
}
