//! The repository's automation: `cargo xtask <command>`.

mod bench;
mod cargo;
mod demo;
mod fork;
mod test;

use std::process::ExitCode;

use anyhow::{Result, bail};

const USAGE: &str = "\
usage: cargo xtask <command>

  fork            make fork/: the pinned deltalake-core, patched, beside deltalake-merge
  test            everything CI checks: format, lints, our tests, upstream's tests of MERGE
  bench [ARGS]    the criterion benchmarks; ARGS go to criterion
  demo [ARGS]     real MERGEs, measured; `cargo xtask demo --help` lists ARGS
  help            this text";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Not returned from here: with `RUST_BACKTRACE` set, what went
            // wrong would stand above pages of where it was noticed.
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &[String]) -> Result<()> {
    let Some((command, args)) = args.split_first() else {
        bail!("no command given\n\n{USAGE}");
    };
    match (command.as_str(), args) {
        ("fork", []) => fork::ensure(),
        ("test", []) => test::run(),
        ("bench", _) => bench::run(args),
        ("demo", _) => demo::run(args),
        ("help" | "--help" | "-h", _) => {
            println!("{USAGE}");
            Ok(())
        }
        ("fork" | "test", [help]) if ["--help", "-h"].contains(&help.as_str()) => {
            println!("{USAGE}");
            Ok(())
        }
        ("fork" | "test", [extra, ..]) => {
            bail!("`{command}` takes no argument `{extra}`\n\n{USAGE}")
        }
        _ => bail!("unknown command `{command}`\n\n{USAGE}"),
    }
}
