//! The physical plan of a real MERGE, as it is logged.

use std::cell::RefCell;
use std::io;
use std::sync::LazyLock;

use merge_tests::check::Case;
use merge_tests::limit::within_limit;
use merge_tests::merge::merge;
use merge_tests::session::TestSession;
use merge_tests::source::{End, in_memory, streamed};
use merge_tests::table::TestTable;
use tracing::Level;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt;
use tracing_subscriber::prelude::*;

/// How the plan tells that the check streams above a hash join.
pub(crate) const STREAMING: &str =
    "strategy=streaming (the target is the probe side of HashJoinExec)";

thread_local! {
    /// What MERGE has logged on this thread.
    static LOG: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Writes to the log of its thread.
struct Log;

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        LOG.with_borrow_mut(|log| log.extend(bytes));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// One subscriber for all threads: what is logged where is decided once, and for all of them.
static SUBSCRIBER: LazyLock<()> = LazyLock::new(|| {
    let of_merge = Targets::new().with_target("deltalake_merge", Level::DEBUG);
    let layer = fmt::layer().with_ansi(false).with_writer(|| Log);
    tracing_subscriber::registry()
        .with(layer.with_filter(of_merge))
        .init();
});

/// Runs the case on this thread and returns the plan that was logged before it ran.
pub(crate) fn plan_of(case: &Case) -> String {
    LazyLock::force(&SUBSCRIBER);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    LOG.take();
    runtime.block_on(async {
        let table = TestTable::create(&case.layout, &case.target).await;
        let session = TestSession::new(&case.session);
        let source = match case.options.streaming {
            true => {
                let ends = vec![End::Complete; case.source_partitions];
                streamed(&case.source, &ends, case.source_batch_rows)
            }
            false => in_memory(&case.source, case.source_partitions, case.source_batch_rows),
        };
        let (spec, options) = (&case.spec, &case.options);
        let merge = merge(table.open().await, source, &session, spec, options);
        let merge = merge.expect("a valid merge");
        within_limit("the merge", merge).await.expect("a merge");
    });
    let log = String::from_utf8_lossy(&LOG.take()).into_owned();
    let plan = log.split_once("MERGE runs this plan").expect("a plan").1;
    let (plan, with_metrics) = plan.split_once("MERGE ran this plan").expect("its metrics");
    assert!(with_metrics.contains("output_rows="), "{with_metrics}");
    plan.to_owned()
}
