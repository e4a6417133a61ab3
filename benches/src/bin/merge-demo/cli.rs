//! The command line of the worker.

use std::path::PathBuf;

use anyhow::{Result, anyhow, bail};

use crate::mode::Mode;
use crate::workload::Workload;

const USAGE: &str = "usage: merge-demo prepare --workload W --dir D
       merge-demo run --workload W --mode M --dir D";

pub(crate) enum Command {
    Prepare {
        workload: Workload,
        dir: PathBuf,
    },
    Run {
        workload: Workload,
        mode: Mode,
        dir: PathBuf,
    },
}

pub(crate) fn parse(mut args: impl Iterator<Item = String>) -> Result<Command> {
    let command = args.next().ok_or_else(|| anyhow!(USAGE))?;
    let (mut workload, mut mode, mut dir) = (None, None, None);
    while let Some(flag) = args.next() {
        let value = args
            .next()
            .ok_or_else(|| anyhow!("{flag} needs a value\n{USAGE}"))?;
        match flag.as_str() {
            "--workload" => workload = Some(value.parse()?),
            "--mode" => mode = Some(value.parse()?),
            "--dir" => dir = Some(PathBuf::from(value)),
            _ => bail!("unknown option {flag}\n{USAGE}"),
        }
    }
    let workload = workload.ok_or_else(|| anyhow!("--workload is missing\n{USAGE}"))?;
    let dir = dir.ok_or_else(|| anyhow!("--dir is missing\n{USAGE}"))?;
    match command.as_str() {
        "prepare" => Ok(Command::Prepare { workload, dir }),
        "run" => Ok(Command::Run {
            workload,
            mode: mode.ok_or_else(|| anyhow!("--mode is missing\n{USAGE}"))?,
            dir,
        }),
        _ => bail!("unknown command {command}\n{USAGE}"),
    }
}
