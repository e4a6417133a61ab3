//! The worker of `cargo xtask demo`: one MERGE, measured in a process of its own.
//!
//! ```text
//! merge-demo prepare --workload W --dir D            write the target table
//! merge-demo run     --workload W --mode M --dir D   build the source, measure one MERGE
//! ```
//!
//! Peak memory is a property of a process, so nothing else may happen in the one that is measured:
//! the table is written by an earlier process, and the content check runs after the numbers are
//! taken. `run` prints one JSON object on stdout; whatever a person may want to read on the way
//! goes to stderr.
//!
//! The same sources compile on the published deltalake-core without the feature `fork`, where only
//! mode `full` exists.

mod checksum;
mod cli;
mod data;
mod measure;
mod memory;
mod mode;
mod table;
mod workload;

use anyhow::Result;

use crate::cli::Command;

#[cfg(not(target_env = "msvc"))]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

#[tokio::main]
async fn main() -> Result<()> {
    match cli::parse(std::env::args().skip(1))? {
        Command::Prepare { workload, dir } => table::prepare(&workload, &dir).await,
        Command::Run {
            workload,
            mode,
            dir,
        } => {
            let report = measure::run(&workload, mode, &dir).await?;
            println!("{}", report.to_json(&workload, mode));
            Ok(())
        }
    }
}
