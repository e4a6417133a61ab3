//! When *unique source keys* means *one match for each target row*.
//!
//! It does when the merge predicate is a conjunction with a part `key = f(target)` for each key:
//! then all source rows that match a target row have the same keys, and there is one such row. It
//! has to hold for the comparison as it is run, so the planner's casts are put in first. A cast
//! of the target side is part of `f` and does no harm; one of the source side must keep different
//! keys different. NULL keys match nothing under `=`. Other parts of the conjunction can only
//! take matches away.

use arrow::datatypes::DataType;
use datafusion::common::tree_node::TreeNode;
use datafusion::common::{Column, DFSchema, Result, ScalarValue};
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{BinaryExpr, Cast, Expr, ExprSchemable, Operator, TryCast};
use datafusion::optimizer::analyzer::type_coercion::TypeCoercionRewriter;

use super::lossless::is_lossless;
use crate::error::MergeError;

/// Checks that rows of `source`, unique by `keys` together, match a target row once at most.
///
/// `predicate` is the condition of the join of `source` and `target`, whose schema is `joined`.
///
/// # Errors
///
/// A [`MergeError`] that names the key and what is missing.
pub fn check_keys(
    keys: &[String],
    predicate: &Expr,
    source: &DFSchema,
    target: &DFSchema,
    joined: &DFSchema,
) -> Result<()> {
    if keys.is_empty() {
        return Err(MergeError::NoUniqueKey.into());
    }
    for key in keys {
        if source.fields().iter().all(|field| field.name() != key) {
            let columns: Vec<_> = source.fields().iter().map(|f| f.name().as_str()).collect();
            return Err(MergeError::UnknownUniqueKey {
                key: key.clone(),
                columns: columns.join(", "),
            }
            .into());
        }
    }
    let predicate = predicate.clone();
    let predicate = predicate
        .rewrite(&mut TypeCoercionRewriter::new(joined))?
        .data;
    if split_conjunction(&predicate).into_iter().any(is_never_true) {
        return Ok(());
    }
    let sides = Sides { source, target };
    for key in keys {
        sides.check(key, &predicate)?;
    }
    Ok(())
}

/// Whether `part` is a constant for which no rows match, which the core makes of predicates that
/// cannot be true.
fn is_never_true(part: &Expr) -> bool {
    match part {
        Expr::Literal(value, _) => {
            value.is_null() || matches!(value, ScalarValue::Boolean(Some(false)))
        }
        _ => false,
    }
}

struct Sides<'a> {
    source: &'a DFSchema,
    target: &'a DFSchema,
}

impl Sides<'_> {
    fn check(&self, key: &str, predicate: &Expr) -> Result<()> {
        let mut reason = None;
        for part in split_conjunction(predicate) {
            let Expr::BinaryExpr(BinaryExpr {
                left,
                op: Operator::Eq,
                right,
            }) = part
            else {
                continue;
            };
            for (source, target) in [(left, right), (right, left)] {
                let Some(cast) = self.cast_of_key(key, source)? else {
                    continue;
                };
                if !self.is_function_of_target(target)? {
                    let found = format!("`{part}` compares it with more than the target");
                    reason.get_or_insert(not_equated(key, found));
                } else if let Some((from, to)) = cast {
                    let key = key.to_owned();
                    reason.get_or_insert(MergeError::UniqueKeyCast { key, from, to });
                } else {
                    return Ok(());
                }
            }
        }
        let reason = match reason {
            Some(reason) => reason,
            None => not_equated(key, self.describe(key, predicate)?),
        };
        Err(reason.into())
    }

    /// `None` if `expr` is not the key itself, else the first of its casts that is not lossless.
    fn cast_of_key(&self, key: &str, expr: &Expr) -> Result<Option<Option<(DataType, DataType)>>> {
        match expr {
            Expr::Column(column) => Ok(self.is_key(key, column).then_some(None)),
            Expr::Cast(Cast { expr, field }) | Expr::TryCast(TryCast { expr, field }) => {
                let Some(inner) = self.cast_of_key(key, expr)? else {
                    return Ok(None);
                };
                let from = expr.get_type(self.source)?;
                let to = field.data_type();
                let cast = (!is_lossless(&from, to)).then(|| (from, to.clone()));
                Ok(Some(inner.or(cast)))
            }
            Expr::Alias(alias) => self.cast_of_key(key, &alias.expr),
            _ => Ok(None),
        }
    }

    fn is_key(&self, key: &str, column: &Column) -> bool {
        column.name == key && self.is_of(self.source, column) && !self.is_of(self.target, column)
    }

    fn is_of(&self, schema: &DFSchema, column: &Column) -> bool {
        schema.has_column(column)
    }

    fn is_function_of_target(&self, expr: &Expr) -> Result<bool> {
        let of_target = expr
            .column_refs()
            .into_iter()
            .all(|column| self.is_of(self.target, column) && !self.is_of(self.source, column));
        let subquery = expr.exists(|expr| {
            Ok(matches!(
                expr,
                Expr::ScalarSubquery(_) | Expr::InSubquery(_) | Expr::Exists(_)
            ))
        })?;
        Ok(of_target && !subquery && !expr.is_volatile())
    }

    /// What the predicate does with the key, for a person.
    fn describe(&self, key: &str, predicate: &Expr) -> Result<String> {
        for part in split_conjunction(predicate) {
            let mentions = |column: &Column| self.is_key(key, column);
            if part.column_refs().into_iter().any(mentions) {
                return Ok(format!("it is only part of `{part}`"));
            }
        }
        Ok(format!("it is no part of `{predicate}`"))
    }
}

fn not_equated(key: &str, found: String) -> MergeError {
    let key = key.to_owned();
    MergeError::UniqueKeyNotEquated { key, found }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::datatypes::{Field, Schema};
    use datafusion::logical_expr::{cast, col, lit, try_cast};
    use datafusion::prelude::lower;
    use datafusion::prelude::random;

    use super::*;

    fn check(keys: &[&str], predicate: Expr) -> Result<(), String> {
        let schema = |name, fields: &[(&str, DataType)]| {
            let fields: Vec<_> = fields
                .iter()
                .map(|(name, data_type)| Field::new(*name, data_type.clone(), true))
                .collect();
            DFSchema::try_from_qualified_schema(name, &Arc::new(Schema::new(fields))).unwrap()
        };
        let source = [
            ("id", DataType::Int64),
            ("small", DataType::Int32),
            ("name", DataType::Utf8),
            ("real", DataType::Float64),
        ];
        let target = [
            ("id", DataType::Int64),
            ("small", DataType::Int32),
            ("name", DataType::Utf8View),
            ("other", DataType::Int64),
        ];
        let (source, target) = (schema("s", &source), schema("t", &target));
        let joined = source.join(&target).unwrap();
        let keys: Vec<_> = keys.iter().map(|key| (*key).to_owned()).collect();
        let result = check_keys(&keys, &predicate, &source, &target, &joined);
        result.map_err(|error| error.to_string())
    }

    fn refused(keys: &[&str], predicate: Expr, why: &str) {
        let error = check(keys, predicate).unwrap_err();
        assert!(error.contains("unique_source_keys"), "{error}");
        assert!(error.contains(why), "{error} should say {why}");
    }

    #[test]
    fn equated_keys_are_enough() {
        check(&["id"], col("s.id").eq(col("t.id"))).unwrap();
        check(&["id"], col("t.id").eq(col("s.id"))).unwrap();
        check(&["id"], col("s.id").eq(col("t.id") + lit(1))).unwrap();
        check(&["name"], col("s.name").eq(col("t.name"))).unwrap();
        check(&["small"], col("s.small").eq(col("t.id"))).unwrap();
        let pair = col("s.id")
            .eq(col("t.id"))
            .and(col("s.name").eq(col("t.name")));
        check(&["name", "id"], pair.clone()).unwrap();
        check(&["id"], pair.and(col("t.other").gt(col("s.small")))).unwrap();
        let region = col("s.id").eq(col("t.id")).and(col("s.name").eq(lit("EU")));
        check(&["id", "name"], region).unwrap();
    }

    #[test]
    fn a_predicate_that_is_never_true_is_enough() {
        check(&["id"], lit(false)).unwrap();
        check(&["id"], lit(ScalarValue::Boolean(None))).unwrap();
        refused(&["id"], lit(true), "it is no part of");
    }

    #[test]
    fn a_target_cast_does_no_harm() {
        check(
            &["small"],
            col("s.small").eq(cast(col("t.id"), DataType::Int32)),
        )
        .unwrap();
        check(&["id"], col("s.id").eq(col("t.small"))).unwrap();
    }

    #[test]
    fn unknown_and_missing_keys_are_refused() {
        let equal = || col("s.id").eq(col("t.id"));
        refused(&[], equal(), "is empty");
        refused(
            &["nope"],
            equal(),
            "no column \"nope\", its columns are id, small, name, real",
        );
        refused(&["other"], equal(), "no column \"other\"");
        refused(&["id", "name"], equal(), "it is no part of");
    }

    #[test]
    fn weaker_predicates_are_refused() {
        let equal = || col("s.id").eq(col("t.id"));
        refused(
            &["id"],
            equal().or(col("t.other").eq(lit(1))),
            "it is only part of",
        );
        refused(
            &["id"],
            col("s.id").gt_eq(col("t.id")),
            "it is only part of",
        );
        refused(
            &["id"],
            (col("s.id") % lit(2)).eq(col("t.id")),
            "it is only part of",
        );
        refused(
            &["name"],
            lower(col("s.name")).eq(col("t.name")),
            "it is only part of",
        );
        refused(
            &["id"],
            col("s.id").eq(col("t.id") + col("s.small")),
            "more than the target",
        );
        refused(
            &["real"],
            col("s.real").eq(random()),
            "more than the target",
        );
        let same = BinaryExpr::new(
            Box::new(col("s.id")),
            Operator::IsNotDistinctFrom,
            Box::new(col("t.id")),
        );
        refused(&["id"], Expr::BinaryExpr(same), "it is only part of");
    }

    #[test]
    fn casts_that_lose_are_refused() {
        let narrow = cast(col("s.id"), DataType::Int32).eq(col("t.small"));
        refused(&["id"], narrow, "cast from Int64 to Int32");
        let narrow = try_cast(col("s.id"), DataType::Int32).eq(col("t.small"));
        refused(&["id"], narrow, "cast from Int64 to Int32");
        let round_trip = cast(cast(col("s.id"), DataType::Int32), DataType::Int64);
        refused(
            &["id"],
            round_trip.eq(col("t.id")),
            "cast from Int64 to Int32",
        );
        refused(&["name"], col("s.name").eq(col("t.id")), "cast from Utf8");
    }
}
