//! A MERGE as data: the same value is evaluated by the oracle and handed to the core.

use crate::row::Column;

/// An operand of a condition or the right side of an assignment.
#[derive(Debug, Clone, PartialEq)]
pub enum Term {
    Source(Column),
    Target(Column),
    Int(i64),
    Text(&'static str),
    Sum(Box<Term>, Box<Term>),
}

impl Term {
    pub fn plus(self, other: Term) -> Term {
        Term::Sum(Box::new(self), Box::new(other))
    }
}

/// A predicate with SQL's three values.
#[derive(Debug, Clone)]
pub enum Condition {
    Always,
    Equal(Term, Term),
    NotEqual(Term, Term),
    Less(Term, Term),
    IsNull(Term),
    And(Box<Condition>, Box<Condition>),
}

impl Condition {
    pub fn and(self, other: Condition) -> Condition {
        Condition::And(Box::new(self), Box::new(other))
    }
}

/// `SET column = value`
#[derive(Debug, Clone)]
pub struct Assignment {
    pub column: Column,
    pub value: Term,
}

pub fn set(column: Column, value: Term) -> Assignment {
    Assignment { column, value }
}

/// Every column from the source.
pub fn set_all() -> Vec<Assignment> {
    Column::ALL
        .into_iter()
        .map(|column| set(column, Term::Source(column)))
        .collect()
}

#[derive(Debug, Clone)]
pub enum Clause {
    MatchedUpdate(Option<Condition>, Vec<Assignment>),
    MatchedDelete(Option<Condition>),
    NotMatchedInsert(Option<Condition>, Vec<Assignment>),
    BySourceUpdate(Option<Condition>, Vec<Assignment>),
    BySourceDelete(Option<Condition>),
}

impl Clause {
    pub fn changes_target_rows(&self) -> bool {
        !matches!(self, Clause::NotMatchedInsert(..))
    }
}

/// `ON source.key = target.key AND … AND extra`, and the clauses in order.
#[derive(Debug, Clone)]
pub struct MergeSpec {
    pub keys: Vec<Column>,
    pub extra: Option<Condition>,
    pub clauses: Vec<Clause>,
}

impl MergeSpec {
    /// A MERGE on equal ids.
    pub fn on_id(clauses: impl IntoIterator<Item = Clause>) -> Self {
        Self {
            keys: vec![Column::Id],
            extra: None,
            clauses: clauses.into_iter().collect(),
        }
    }

    /// Whether files of the table may have to be written again. An insert alone adds files.
    pub fn rewrites_files(&self) -> bool {
        self.clauses.iter().any(Clause::changes_target_rows)
    }
}

/// `source.value > target.value`: the everyday *update only what changed*.
pub fn source_is_newer() -> Condition {
    Condition::Less(Term::Target(Column::Value), Term::Source(Column::Value))
}
