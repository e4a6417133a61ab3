//! The command line of `cargo xtask demo`.

use anyhow::{Context, Result, bail, ensure};

/// Every workload of the worker, in the order in which they are run.
const WORKLOADS: [&str; 9] = [
    "seed",
    "mixed",
    "spread",
    "selfmerge",
    "mixed3m",
    "untouched",
    "manyfiles",
    "inserts",
    "changes",
];

const USAGE: &str = "usage: cargo xtask demo [--json] [--baseline] [--runs N] [--workload W]...

  --json        print one JSON object per line instead of a table
  --baseline    also build and measure the unpatched deltalake-core (not mixed3m: it would need
                more memory than most machines have)
  --runs N      measure everything N times and report medians (default 3)
  --workload W  seed, mixed, spread, selfmerge, mixed3m, untouched, manyfiles, inserts or changes;
                may be repeated (default: all)

modes:
  full          duplicate matches are checked (the only mode of the unpatched deltalake-core)
  unique        the source keys are declared unique
  spill32       duplicate matches are checked, and at most 32 MiB of deferred rows are in memory";

pub(super) struct Options {
    pub(super) json: bool,
    pub(super) baseline: bool,
    pub(super) runs: usize,
    pub(super) workloads: Vec<String>,
}

impl Options {
    /// The options, or nothing when only help was asked for, which is then printed.
    pub(super) fn parse(args: &[String]) -> Result<Option<Self>> {
        let mut options = Self {
            json: false,
            baseline: false,
            runs: 3,
            workloads: Vec::new(),
        };
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            let mut value = || {
                let value = args.next();
                value.with_context(|| format!("{arg} needs a value\n\n{USAGE}"))
            };
            match arg.as_str() {
                "--json" => options.json = true,
                "--baseline" => options.baseline = true,
                "--runs" => options.runs = parse_runs(value()?)?,
                "--workload" => options.workloads.push(parse_workload(value()?)?),
                "--help" | "-h" => {
                    println!("{USAGE}");
                    return Ok(None);
                }
                _ => bail!("unknown option {arg}\n\n{USAGE}"),
            }
        }
        if options.workloads.is_empty() {
            options.workloads = WORKLOADS.map(String::from).to_vec();
        }
        Ok(Some(options))
    }
}

fn parse_runs(value: &str) -> Result<usize> {
    let runs = value
        .parse()
        .with_context(|| format!("--runs {value} is not a number"))?;
    ensure!(runs > 0, "--runs must be at least 1");
    Ok(runs)
}

fn parse_workload(value: &str) -> Result<String> {
    ensure!(
        WORKLOADS.contains(&value),
        "unknown workload {value}, expected one of {}",
        WORKLOADS.join(", ")
    );
    Ok(value.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(args: &[&str]) -> Result<Option<Options>> {
        Options::parse(&args.iter().map(ToString::to_string).collect::<Vec<_>>())
    }

    #[test]
    fn without_arguments_everything_runs_three_times() {
        let options = parse(&[]).unwrap().unwrap();
        assert!(!options.json && !options.baseline);
        assert_eq!(options.runs, 3);
        assert_eq!(options.workloads, WORKLOADS);
    }

    #[test]
    fn workloads_add_up_in_the_order_given() {
        let options = parse(&["--workload", "spread", "--workload", "seed", "--runs", "1"]);
        let options = options.unwrap().unwrap();
        assert_eq!(options.workloads, ["spread", "seed"]);
        assert_eq!(options.runs, 1);
    }

    #[test]
    fn bad_values_are_named() {
        for (args, expected) in [
            (&["--runs", "0"][..], "at least 1"),
            (&["--runs", "many"], "--runs many"),
            (&["--runs"], "--runs needs a value"),
            (&["--workload", "huge"], "unknown workload huge"),
            (&["--fast"], "unknown option --fast"),
        ] {
            let error = format!("{:#}", parse(args).err().expect("must be refused"));
            assert!(error.contains(expected), "{error}");
        }
    }
}
