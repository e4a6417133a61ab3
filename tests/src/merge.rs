//! Hands a [`MergeSpec`] to the core.

use std::sync::Arc;

use datafusion::common::{Column as ColumnRef, TableReference};
use datafusion::logical_expr::{Expr, lit};
use datafusion::prelude::DataFrame;
use deltalake_core::DeltaTable;
use deltalake_core::errors::DeltaResult;
use deltalake_core::operations::merge::MergeBuilder;

use crate::row::Column;
use crate::session::TestSession;
use crate::spec::{Assignment, Clause, Condition, MergeSpec, Term};

/// The options of a MERGE that do not change what it means.
#[derive(Debug, Clone, Default)]
pub struct MergeOptions {
    pub streaming: bool,
    pub unique_source_keys: Option<Vec<&'static str>>,
    pub deferred_rows_memory_limit: Option<usize>,
}

/// The MERGE of `spec`, ready to be awaited.
pub fn merge(
    table: DeltaTable,
    source: DataFrame,
    session: &TestSession,
    spec: &MergeSpec,
    options: &MergeOptions,
) -> DeltaResult<MergeBuilder> {
    merge_on(on(spec), &spec.clauses, table, source, session, options)
}

/// The same with an ON predicate that a [`MergeSpec`] cannot tell.
pub fn merge_on(
    predicate: Expr,
    clauses: &[Clause],
    table: DeltaTable,
    source: DataFrame,
    session: &TestSession,
    options: &MergeOptions,
) -> DeltaResult<MergeBuilder> {
    let mut merge = table
        .merge(source, predicate)
        .with_source_alias("source")
        .with_target_alias("target")
        .with_session_state(Arc::new(session.context.state()))
        .with_streaming(options.streaming);
    if let Some(keys) = &options.unique_source_keys {
        merge = merge.with_unique_source_keys(keys.iter().copied());
    }
    if let Some(bytes) = options.deferred_rows_memory_limit {
        merge = merge.with_deferred_rows_memory_limit(bytes);
    }
    clauses.iter().try_fold(merge, add_clause)
}

fn add_clause(merge: MergeBuilder, clause: &Clause) -> DeltaResult<MergeBuilder> {
    macro_rules! build {
        ($builder:ident, $condition:expr, $assign:ident, $assignments:expr) => {{
            let mut builder = $builder;
            if let Some(condition) = $condition {
                builder = builder.predicate(condition_expr(condition));
            }
            for Assignment { column, value } in $assignments {
                builder = builder.$assign(column.name(), term_expr(value));
            }
            builder
        }};
        ($builder:ident, $condition:expr) => {
            match $condition {
                Some(condition) => $builder.predicate(condition_expr(condition)),
                None => $builder,
            }
        };
    }
    match clause {
        Clause::MatchedUpdate(condition, assignments) => {
            merge.when_matched_update(|update| build!(update, condition, update, assignments))
        }
        Clause::MatchedDelete(condition) => {
            merge.when_matched_delete(|delete| build!(delete, condition))
        }
        Clause::NotMatchedInsert(condition, assignments) => {
            merge.when_not_matched_insert(|insert| build!(insert, condition, set, assignments))
        }
        Clause::BySourceUpdate(condition, assignments) => {
            merge.when_not_matched_by_source_update(|update| {
                build!(update, condition, update, assignments)
            })
        }
        Clause::BySourceDelete(condition) => {
            merge.when_not_matched_by_source_delete(|delete| build!(delete, condition))
        }
    }
}

fn on(spec: &MergeSpec) -> Expr {
    let keys = spec
        .keys
        .iter()
        .map(|key| source(key.name()).eq(target(key.name())));
    let extra = spec.extra.iter().map(condition_expr);
    keys.chain(extra)
        .reduce(Expr::and)
        .expect("a key or an extra condition")
}

/// A column of the source.
pub fn source(name: &str) -> Expr {
    Expr::Column(ColumnRef::new(Some(TableReference::bare("source")), name))
}

/// A column of the target.
pub fn target(name: &str) -> Expr {
    Expr::Column(ColumnRef::new(Some(TableReference::bare("target")), name))
}

fn condition_expr(condition: &Condition) -> Expr {
    match condition {
        Condition::Always => lit(true),
        Condition::Equal(left, right) => term_expr(left).eq(term_expr(right)),
        Condition::NotEqual(left, right) => term_expr(left).not_eq(term_expr(right)),
        Condition::Less(left, right) => term_expr(left).lt(term_expr(right)),
        Condition::IsNull(term) => term_expr(term).is_null(),
        Condition::And(left, right) => condition_expr(left).and(condition_expr(right)),
    }
}

fn term_expr(term: &Term) -> Expr {
    let name = |column: &Column| column.name();
    match term {
        Term::Source(column) => source(name(column)),
        Term::Target(column) => target(name(column)),
        Term::Int(value) => lit(*value),
        Term::Text(value) => lit(*value),
        Term::Sum(left, right) => term_expr(left) + term_expr(right),
    }
}
