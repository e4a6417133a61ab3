//! The logical node.

use std::fmt;
use std::sync::Arc;

use datafusion::common::{DFSchemaRef, Result, internal_datafusion_err};
use datafusion::logical_expr::{Expr, LogicalPlan, UserDefinedLogicalNodeCore};

/// Drops the rows of files in which nothing changes, see
/// [`MergeBarrierExec`](super::MergeBarrierExec).
#[derive(Debug, PartialEq, Eq, Hash, PartialOrd)]
pub struct MergeBarrier {
    /// The rows that leave the join, with what becomes of them.
    pub input: LogicalPlan,
    /// The file of a row.
    pub expr: Expr,
    /// Name of the column with the file of the target row.
    pub file_column: Arc<String>,
}

impl UserDefinedLogicalNodeCore for MergeBarrier {
    fn name(&self) -> &str {
        "MergeBarrier"
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        vec![&self.input]
    }

    fn schema(&self) -> &DFSchemaRef {
        self.input.schema()
    }

    fn expressions(&self) -> Vec<Expr> {
        vec![self.expr.clone()]
    }

    fn fmt_for_explain(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "MergeBarrier: file={}", self.expr)
    }

    fn with_exprs_and_inputs(&self, exprs: Vec<Expr>, inputs: Vec<LogicalPlan>) -> Result<Self> {
        let one = |what| internal_datafusion_err!("MergeBarrier takes one {what}");
        Ok(Self {
            input: inputs.into_iter().next().ok_or_else(|| one("input"))?,
            expr: exprs.into_iter().next().ok_or_else(|| one("expression"))?,
            file_column: Arc::clone(&self.file_column),
        })
    }
}
