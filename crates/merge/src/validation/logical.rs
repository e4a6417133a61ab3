//! The logical node, and how it gets into a plan.

use std::sync::Arc;

use datafusion::common::{DFSchemaRef, Result, internal_datafusion_err};
use datafusion::logical_expr::conditional_expressions::CaseBuilder;
use datafusion::logical_expr::{
    Expr, Extension, LogicalPlan, LogicalPlanBuilder, UserDefinedLogicalNodeCore, ident, lit,
};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::ExecutionPlan;

use super::MergeValidationExec;
use crate::columns::MATCH_CLASS_COLUMN;

/// Passes the rows of its input for which [`MergeValidationExec`] finds no duplicate match.
#[derive(Debug, PartialEq, Eq, Hash, PartialOrd)]
pub struct MergeValidation {
    /// The rows with their file, ordinal and match class.
    pub input: LogicalPlan,
    /// The file of a row, as an expression to partition by.
    pub file_expr: Expr,
    /// Name of the column with the file of the target row.
    pub file_column: Arc<String>,
    /// Name of the column with the ordinal of the target row in its file.
    pub row_ordinal_column: Arc<String>,
}

impl MergeValidation {
    /// The operator that runs this node on `input`, given its `file_expr` for `input`.
    pub fn exec(
        &self,
        input: Arc<dyn ExecutionPlan>,
        file_expr: Arc<dyn PhysicalExpr>,
    ) -> Arc<dyn ExecutionPlan> {
        Arc::new(MergeValidationExec::new(
            input,
            file_expr,
            Arc::clone(&self.file_column),
            Arc::clone(&self.row_ordinal_column),
        ))
    }
}

impl UserDefinedLogicalNodeCore for MergeValidation {
    fn name(&self) -> &str {
        "MergeValidation"
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        vec![&self.input]
    }

    fn schema(&self) -> &DFSchemaRef {
        self.input.schema()
    }

    fn expressions(&self) -> Vec<Expr> {
        vec![self.file_expr.clone()]
    }

    fn fmt_for_explain(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        write!(f, "MergeValidation: file={}", self.file_expr)
    }

    fn with_exprs_and_inputs(&self, exprs: Vec<Expr>, inputs: Vec<LogicalPlan>) -> Result<Self> {
        let one = |what| internal_datafusion_err!("MergeValidation takes one {what}");
        Ok(Self {
            input: inputs.into_iter().next().ok_or_else(|| one("input"))?,
            file_expr: exprs.into_iter().next().ok_or_else(|| one("expression"))?,
            file_column: Arc::clone(&self.file_column),
            row_ordinal_column: Arc::clone(&self.row_ordinal_column),
        })
    }
}

/// Puts the duplicate check above `input`.
///
/// `operation_column` says for each row which operation was chosen, as an index into `classes`,
/// the [`MatchClass`](crate::columns::MatchClass) of each operation. Neither the class nor the
/// ordinal of a row is part of the output.
///
/// # Errors
///
/// A plan error when `input` lacks one of the columns.
pub fn plan_validation(
    input: LogicalPlan,
    operation_column: &str,
    classes: impl IntoIterator<Item = i32>,
    file_column: Arc<String>,
    row_ordinal_column: &str,
) -> Result<LogicalPlan> {
    let (operations, classes) = classes
        .into_iter()
        .enumerate()
        .map(|(operation, class)| (lit(operation as i32), lit(class)))
        .unzip();
    let class = CaseBuilder::new(
        Some(Box::new(ident(operation_column))),
        operations,
        classes,
        Some(Box::new(lit(0))),
    )
    .end()?
    .alias(MATCH_CLASS_COLUMN);

    let columns = input.schema().columns();
    let classed = columns.iter().cloned().map(Expr::Column).chain([class]);
    let passed = columns
        .iter()
        .filter(|column| column.name != row_ordinal_column);
    let passed: Vec<_> = passed.cloned().map(Expr::Column).collect();

    let validation = MergeValidation {
        input: LogicalPlanBuilder::from(input).project(classed)?.build()?,
        file_expr: ident(file_column.as_str()),
        file_column,
        row_ordinal_column: Arc::new(row_ordinal_column.to_owned()),
    };
    let validation = LogicalPlan::Extension(Extension {
        node: Arc::new(validation),
    });
    LogicalPlanBuilder::from(validation)
        .project(passed)?
        .build()
}
