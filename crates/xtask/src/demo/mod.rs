//! `cargo xtask demo`: real MERGEs on local Delta tables, measured.
//!
//! ```text
//!  benches/src/bin/merge-demo ──┬─ on fork/deltalake-core ──────────► merge-demo
//!                               └─ on the published deltalake-core ─► merge-demo-baseline
//!
//!  per workload:  prepare the table once ─► N rounds of (copy ─► run in a fresh process)
//!                                           over all modes and builds ─► medians
//! ```
//!
//! The builds take turns within a round, so that a machine which gets slower meanwhile gets slower
//! for both.

mod baseline;
mod measurement;
mod options;
mod report;
mod rounds;
mod worker;

use anyhow::Result;

use self::measurement::Measurement;
use self::options::Options;
use self::rounds::Rounds;
use self::worker::Worker;
use crate::{cargo, fork};

/// Builds the worker, measures, and reports on stdout; everything else goes to stderr.
///
/// # Errors
/// A build or a worker fails, or a table does not hold what it must after a MERGE.
pub fn run(args: &[String]) -> Result<()> {
    let Some(options) = Options::parse(args)? else {
        return Ok(());
    };
    fork::ensure()?;
    let target_dir = cargo::target_dir()?;
    let mut workers = Vec::new();
    if options.baseline {
        workers.push(Worker::baseline(&target_dir)?);
    }
    workers.push(Worker::fork(&target_dir)?);

    let mut rounds = Rounds::new(&options, &workers, &target_dir)?;
    let mut results: Vec<Vec<Measurement>> = Vec::new();
    for workload in &options.workloads {
        let measured = rounds.measure(workload)?;
        if options.json {
            report::print_json(&measured)?;
        }
        results.push(measured);
    }
    if !options.json {
        report::print_table(&results);
    }
    report::check_contents(&results)
}
