//! The duplicate check of the pinned deltalake-core, compiled from its own source.
//!
//! The file refers to its parent module by path, so this module stands in for it: it declares the
//! names that the check knows of the rest of MERGE.

use std::sync::Arc;

use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::ExecutionPlan;

// It also holds the logical node, and tests that a bench has no harness for.
#[allow(dead_code, unused_imports, clippy::all)]
#[path = "../../../fork/deltalake-core/src/operations/merge/validation.rs"]
mod validation;

pub(crate) const OPERATION_COLUMN: &str = "__delta_rs_operation";
pub(crate) const TARGET_ROW_ORDINAL_IN_FILE_COLUMN: &str = "__delta_rs_target_row_ordinal_in_file";
pub(crate) const TARGET_MATCH_CARDINALITY_CLASS_COLUMN: &str = "__delta_rs_match_cardinality_class";
pub(crate) const DUPLICATE_MATCH_MARKER_COLUMNS: &[&str] = &[
    TARGET_ROW_ORDINAL_IN_FILE_COLUMN,
    TARGET_MATCH_CARDINALITY_CLASS_COLUMN,
];

/// Named in a signature only.
pub(crate) enum OperationType {}

/// What the source row that was matched to a target row does to it.
#[allow(dead_code)]
#[derive(Clone, Copy)]
pub(crate) enum MatchParticipationClass {
    Ignore = 0,
    MatchedNoop = 1,
    MatchedUnconditionalDelete = 2,
    MatchedAction = 3,
}

pub(crate) fn merge_validation_exec(
    input: Arc<dyn ExecutionPlan>,
    file: Arc<dyn PhysicalExpr>,
    file_column: Arc<String>,
    ordinal_column: Arc<String>,
) -> Arc<dyn ExecutionPlan> {
    Arc::new(validation::MergeValidationExec::new(
        input,
        file,
        file_column,
        ordinal_column,
    ))
}
