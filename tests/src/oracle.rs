//! What a MERGE must do, told by nested loops over plain rows.
//!
//! Per target row, over all source rows that match it, the first clause whose predicate holds
//! gives each pair a class; the classes decide:
//!
//! | matches                                       | outcome                |
//! |-----------------------------------------------|------------------------|
//! | two or more actions                           | error                  |
//! | an action and an unconditional delete         | error                  |
//! | several unconditional deletes, any no-op      | deleted once           |
//! | one action, any no-op                         | the action, once       |
//! | only no-ops                                   | the row stays, once    |
//! | none                                          | clauses *by source*    |

use crate::row::{Cell, Column, Row};
use crate::spec::{Assignment, Clause, Condition, MergeSpec, Term};

/// A row of the change data feed: `_change_type` and the row.
pub type Change = (&'static str, Row);

#[derive(Debug)]
pub enum Outcome {
    /// A target row is acted on by several source rows.
    DuplicateMatch,
    Merged(Merged),
}

#[derive(Debug, Default)]
pub struct Merged {
    pub rows: Vec<Row>,
    pub inserted: usize,
    pub updated: usize,
    pub deleted: usize,
    /// Unchanged rows that lie in a file with a changed row, so that they are written again.
    pub copied: usize,
    /// Files with a changed row.
    pub rewritten_files: usize,
    /// Matched pairs that no clause acts on.
    pub noop_pairs: usize,
    /// Of the copied rows those with matches, all of which are no-ops.
    pub noop_rows: usize,
    pub changes: Vec<Change>,
}

/// The outcome of `spec` on the target, given file by file, and the source.
pub fn merge(target: &[Vec<Row>], source: &[Row], spec: &MergeSpec) -> Outcome {
    let mut merged = Merged::default();
    for file in target {
        let mut unchanged = 0;
        let noop_rows = merged.noop_rows;
        for row in file {
            match fate(row, source, spec, &mut merged) {
                Fate::DuplicateMatch => return Outcome::DuplicateMatch,
                Fate::Stays => {
                    unchanged += 1;
                    merged.rows.push(row.clone());
                }
                Fate::Deleted => {
                    merged.deleted += 1;
                    merged.changes.push(("delete", row.clone()));
                }
                Fate::Updated(new) => {
                    merged.updated += 1;
                    merged.changes.push(("update_preimage", row.clone()));
                    merged.changes.push(("update_postimage", new.clone()));
                    merged.rows.push(new);
                }
            }
        }
        if unchanged < file.len() {
            merged.copied += unchanged;
            merged.rewritten_files += 1;
        } else {
            merged.noop_rows = noop_rows;
        }
    }
    insert_unmatched(target, source, spec, &mut merged);
    Outcome::Merged(merged)
}

enum Fate {
    DuplicateMatch,
    Stays,
    Deleted,
    Updated(Row),
}

fn fate(row: &Row, source: &[Row], spec: &MergeSpec, merged: &mut Merged) -> Fate {
    let mut matches = 0;
    let mut unconditional_deletes = 0;
    let mut actions = Vec::new();
    for other in source.iter().filter(|other| matches_on(other, row, spec)) {
        matches += 1;
        match matched_clause(other, row, spec) {
            Some(Clause::MatchedDelete(None)) => unconditional_deletes += 1,
            Some(Clause::MatchedDelete(Some(_))) => actions.push(Fate::Deleted),
            Some(Clause::MatchedUpdate(_, assignments)) => {
                let new = assign(row.clone(), assignments, Some(other), Some(row));
                actions.push(Fate::Updated(new));
            }
            _ => merged.noop_pairs += 1,
        }
    }
    match (actions.len(), unconditional_deletes) {
        (0, 0) if matches == 0 => by_source(row, spec),
        (0, 0) => {
            merged.noop_rows += 1;
            Fate::Stays
        }
        (0, _) => Fate::Deleted,
        (1, 0) => actions.remove(0),
        _ => Fate::DuplicateMatch,
    }
}

fn matched_clause<'a>(source: &Row, target: &Row, spec: &'a MergeSpec) -> Option<&'a Clause> {
    spec.clauses.iter().find(|clause| match clause {
        Clause::MatchedUpdate(condition, _) | Clause::MatchedDelete(condition) => {
            applies(condition, Some(source), Some(target))
        }
        _ => false,
    })
}

fn by_source(row: &Row, spec: &MergeSpec) -> Fate {
    for clause in &spec.clauses {
        match clause {
            Clause::BySourceUpdate(condition, assignments)
                if applies(condition, None, Some(row)) =>
            {
                return Fate::Updated(assign(row.clone(), assignments, None, Some(row)));
            }
            Clause::BySourceDelete(condition) if applies(condition, None, Some(row)) => {
                return Fate::Deleted;
            }
            _ => {}
        }
    }
    Fate::Stays
}

fn insert_unmatched(target: &[Vec<Row>], source: &[Row], spec: &MergeSpec, merged: &mut Merged) {
    for row in source {
        if target
            .iter()
            .flatten()
            .any(|old| matches_on(row, old, spec))
        {
            continue;
        }
        let assignments = spec.clauses.iter().find_map(|clause| match clause {
            Clause::NotMatchedInsert(condition, assignments)
                if applies(condition, Some(row), None) =>
            {
                Some(assignments)
            }
            _ => None,
        });
        if let Some(assignments) = assignments {
            let new = assign(Row::default(), assignments, Some(row), None);
            merged.inserted += 1;
            merged.changes.push(("insert", new.clone()));
            merged.rows.push(new);
        }
    }
}

/// Whether the ON predicate holds. A NULL key equals nothing.
fn matches_on(source: &Row, target: &Row, spec: &MergeSpec) -> bool {
    let keys_equal = spec.keys.iter().all(|&key| {
        let (left, right) = (source.get(key), target.get(key));
        left != Cell::Null && left == right
    });
    keys_equal && applies(&spec.extra, Some(source), Some(target))
}

/// Whether an optional condition holds: unknown does not, a missing one does.
fn applies(condition: &Option<Condition>, source: Option<&Row>, target: Option<&Row>) -> bool {
    match condition {
        None => true,
        Some(condition) => holds(condition, source, target) == Some(true),
    }
}

fn holds(condition: &Condition, source: Option<&Row>, target: Option<&Row>) -> Option<bool> {
    let compare = |left: &Term, right: &Term, test: fn(&Cell, &Cell) -> bool| {
        let (left, right) = (value(left, source, target), value(right, source, target));
        (left != Cell::Null && right != Cell::Null).then(|| test(&left, &right))
    };
    match condition {
        Condition::Always => Some(true),
        Condition::Equal(left, right) => compare(left, right, |left, right| left == right),
        Condition::NotEqual(left, right) => compare(left, right, |left, right| left != right),
        Condition::Less(left, right) => compare(left, right, |left, right| left < right),
        Condition::IsNull(term) => Some(value(term, source, target) == Cell::Null),
        Condition::And(left, right) => {
            match (holds(left, source, target), holds(right, source, target)) {
                (Some(false), _) | (_, Some(false)) => Some(false),
                (Some(true), Some(true)) => Some(true),
                _ => None,
            }
        }
    }
}

fn value(term: &Term, source: Option<&Row>, target: Option<&Row>) -> Cell {
    let read = |row: Option<&Row>, column: Column| row.map_or(Cell::Null, |row| row.get(column));
    match term {
        Term::Source(column) => read(source, *column),
        Term::Target(column) => read(target, *column),
        Term::Int(value) => Cell::Int(*value),
        Term::Text(value) => Cell::Text((*value).to_owned()),
        Term::Sum(left, right) => {
            match (value(left, source, target), value(right, source, target)) {
                (Cell::Int(left), Cell::Int(right)) => Cell::Int(left + right),
                _ => Cell::Null,
            }
        }
    }
}

fn assign(
    mut row: Row,
    assignments: &[Assignment],
    source: Option<&Row>,
    target: Option<&Row>,
) -> Row {
    for assignment in assignments {
        row.set(assignment.column, value(&assignment.value, source, target));
    }
    row
}
