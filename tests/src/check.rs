//! Runs one MERGE on a real table and compares all that it leaves with the oracle.

use std::fmt::Debug;

use deltalake_core::DeltaTableError;
use deltalake_core::operations::merge::MergeMetrics;

use crate::limit::within_limit;
use crate::merge::{MergeOptions, merge};
use crate::oracle::{self, Merged, Outcome};
use crate::row::{Row, sorted};
use crate::session::{Pool, SessionSpec, TestSession};
use crate::source::{End, in_memory, streamed};
use crate::spec::MergeSpec;
use crate::table::{Layout, TestTable, files_of};

pub const DUPLICATE_MATCH: &str = "MERGE matched a target row with multiple source rows that \
    satisfy duplicate relevant WHEN MATCHED clauses (file: ";

/// Everything that decides a run.
#[derive(Debug, Clone)]
pub struct Case {
    pub layout: Layout,
    /// The rows of each append.
    pub target: Vec<Vec<Row>>,
    pub source: Vec<Row>,
    pub source_partitions: usize,
    pub source_batch_rows: usize,
    pub spec: MergeSpec,
    pub session: SessionSpec,
    pub options: MergeOptions,
}

impl Case {
    /// One file, a source in one batch, everything else as users have it.
    pub fn new(target: Vec<Row>, source: Vec<Row>, spec: MergeSpec) -> Self {
        Self {
            layout: Layout::default(),
            target: vec![target],
            source,
            source_partitions: 1,
            source_batch_rows: 8192,
            spec,
            session: SessionSpec::default(),
            options: MergeOptions::default(),
        }
    }
}

/// How a run ended, when it ended as it must.
#[derive(Debug)]
pub enum Ended {
    Merged(MergeMetrics),
    DuplicateMatch,
    /// The pool was too small for an operator that cannot spill.
    OutOfMemory,
}

/// Runs the case and compares table, version, metrics, change data and what is left behind.
///
/// # Panics
/// When something differs, with the case, both tables and the error.
pub async fn check(case: &Case) -> Ended {
    within_limit("the case", Run::start(case)).await
}

struct Run<'a> {
    case: &'a Case,
    table: TestTable,
    version_before: u64,
}

impl<'a> Run<'a> {
    async fn start(case: &'a Case) -> Ended {
        let table = TestTable::create(&case.layout, &case.target).await;
        let run = Run {
            case,
            version_before: table.version().await,
            table,
        };
        run.finish().await
    }

    async fn finish(self) -> Ended {
        let case = self.case;
        let session = TestSession::new(&case.session);
        let source = if case.options.streaming {
            let ends = vec![End::Complete; case.source_partitions];
            streamed(&case.source, &ends, case.source_batch_rows)
        } else {
            in_memory(&case.source, case.source_partitions, case.source_batch_rows)
        };
        let table = self.table.open().await;
        let result = match merge(table, source, &session, &case.spec, &case.options) {
            Ok(merge) => merge.await,
            Err(error) => self.fail(&format!("the merge cannot be built: {error}")),
        };
        session.assert_released().await;
        let files = files_of(&case.layout, &case.target);
        let expected = oracle::merge(&files, &case.source, &case.spec);
        match (result, expected) {
            (Ok((_, metrics)), Outcome::Merged(merged)) => {
                self.compare(&metrics, &merged).await;
                Ended::Merged(metrics)
            }
            (Err(error), expected) => {
                self.assert_unchanged(&error).await;
                self.explain(error, &expected)
            }
            (Ok((_, metrics)), Outcome::DuplicateMatch) => {
                let rows = sorted(&self.table.rows().await);
                self.fail(&format!(
                    "a duplicate match was not refused\n{metrics:#?}\nrows after: {rows:#?}"
                ))
            }
        }
    }

    async fn compare(&self, metrics: &MergeMetrics, merged: &Merged) {
        let rows = sorted(&self.table.rows().await);
        self.same("rows", &sorted(&merged.rows), &rows);
        let found = [
            ("source rows", metrics.num_source_rows),
            ("inserted", metrics.num_target_rows_inserted),
            ("updated", metrics.num_target_rows_updated),
            ("deleted", metrics.num_target_rows_deleted),
            ("copied", metrics.num_target_rows_copied),
            ("output", metrics.num_output_rows),
            ("files removed", metrics.num_target_files_removed),
        ];
        let expected = [
            ("source rows", self.case.source.len()),
            ("inserted", merged.inserted),
            ("updated", merged.updated),
            ("deleted", merged.deleted),
            ("copied", merged.copied),
            ("output", merged.inserted + merged.updated + merged.copied),
            ("files removed", merged.rewritten_files),
        ];
        self.same("metrics", &expected, &found);
        self.compare_memory(metrics, merged);

        let version = self.table.version().await;
        let commits = u64::from(!merged.changes.is_empty());
        self.same("version", &(self.version_before + commits), &version);
        if self.case.layout.change_data && commits > 0 {
            let changes = sorted(&self.table.changes(version).await);
            self.same("change data", &sorted(&merged.changes), &changes);
        }
    }

    /// The runs that must defer and spill did, and nothing was checked where nothing has to be.
    fn compare_memory(&self, metrics: &MergeMetrics, merged: &Merged) {
        let validated =
            self.case.spec.rewrites_files() && self.case.options.unique_source_keys.is_none();
        if !validated {
            self.same("rows checked", &0, &metrics.num_rows_checked);
        }
        // Only a hash join can stream the target. It takes an equality, and is taken by one partition
        // whether wanted or not.
        let SessionSpec {
            hash_join,
            target_partitions,
            ..
        } = self.case.session;
        let bitmaps = self.case.spec.keys.is_empty() || (!hash_join && target_partitions > 1);
        if validated && bitmaps && merged.noop_rows > metrics.num_rows_deferred {
            self.fail(&format!(
                "{} rows with no-ops alone were copied, fewer were deferred: {metrics:#?}",
                merged.noop_rows
            ));
        }
        let must_spill = self.case.options.deferred_rows_memory_limit == Some(0)
            && metrics.num_rows_deferred > 0;
        let spilled = metrics.num_spill_files > 0 && metrics.spilled_bytes > 0;
        if must_spill && !spilled {
            self.fail(&format!(
                "with a limit of zero nothing was spilled: {metrics:#?}"
            ));
        }
    }

    async fn assert_unchanged(&self, error: &DeltaTableError) {
        let version = self.table.version().await;
        self.same(
            &format!("version after {error}"),
            &self.version_before,
            &version,
        );
        let rows = sorted(&self.table.rows().await);
        let files = files_of(&self.case.layout, &self.case.target);
        let before = sorted(&files.concat());
        self.same(&format!("rows after {error}"), &before, &rows);
    }

    fn explain(&self, error: DeltaTableError, expected: &Outcome) -> Ended {
        let text = error.to_string();
        let bounded = !matches!(self.case.session.pool, Pool::Unbounded);
        // Deferred rows and match states can spill, so that only the rest of the plan may give up.
        let of_merge = text.contains("for Merge") || text.contains("MERGE could not");
        let refused = [
            "Resources exhausted",
            "without an equality between its sides",
        ];
        if bounded && refused.iter().any(|part| text.contains(part)) && !of_merge {
            return Ended::OutOfMemory;
        }
        if matches!(expected, Outcome::DuplicateMatch) && text.contains(DUPLICATE_MATCH) {
            return Ended::DuplicateMatch;
        }
        self.fail(&format!(
            "unexpected error: {text}\nexpected: {expected:#?}"
        ))
    }

    fn same<T: PartialEq + Debug + ?Sized>(&self, what: &str, expected: &T, found: &T) {
        if expected != found {
            self.fail(&format!(
                "{what}\nexpected: {expected:#?}\nfound: {found:#?}"
            ));
        }
    }

    fn fail(&self, what: &str) -> ! {
        panic!("{what}\n{:#?}", self.case)
    }
}
