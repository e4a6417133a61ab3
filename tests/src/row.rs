//! The plain rows that tables, sources and the oracle share.

use std::fmt;

/// A column of the target table; the source has the same ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Column {
    Id,
    Part,
    Value,
    Note,
}

impl Column {
    pub const ALL: [Column; 4] = [Column::Id, Column::Part, Column::Value, Column::Note];

    pub fn name(self) -> &'static str {
        match self {
            Column::Id => "id",
            Column::Part => "part",
            Column::Value => "value",
            Column::Note => "note",
        }
    }
}

/// One value, as the oracle computes with it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cell {
    Null,
    Int(i64),
    Text(String),
}

/// A row of the target or of the source.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Row {
    pub id: Option<i64>,
    pub part: Option<String>,
    pub value: Option<i64>,
    pub note: Option<String>,
}

impl Row {
    /// A row of partition `a`, for tests that care for keys and values only.
    pub fn new(id: impl Into<Option<i64>>, value: impl Into<Option<i64>>) -> Self {
        Self {
            id: id.into(),
            part: Some("a".to_owned()),
            value: value.into(),
            note: None,
        }
    }

    pub fn with_part(mut self, part: &str) -> Self {
        self.part = Some(part.to_owned());
        self
    }

    pub fn with_note(mut self, note: &str) -> Self {
        self.note = Some(note.to_owned());
        self
    }

    pub fn get(&self, column: Column) -> Cell {
        let int = |value: Option<i64>| value.map_or(Cell::Null, Cell::Int);
        let text = |value: &Option<String>| value.clone().map_or(Cell::Null, Cell::Text);
        match column {
            Column::Id => int(self.id),
            Column::Part => text(&self.part),
            Column::Value => int(self.value),
            Column::Note => text(&self.note),
        }
    }

    /// # Panics
    /// When the cell is not of the column's type: the test itself is wrong then.
    pub fn set(&mut self, column: Column, cell: Cell) {
        match (column, cell) {
            (Column::Id, Cell::Int(value)) => self.id = Some(value),
            (Column::Id, Cell::Null) => self.id = None,
            (Column::Part, Cell::Text(value)) => self.part = Some(value),
            (Column::Part, Cell::Null) => self.part = None,
            (Column::Value, Cell::Int(value)) => self.value = Some(value),
            (Column::Value, Cell::Null) => self.value = None,
            (Column::Note, Cell::Text(value)) => self.note = Some(value),
            (Column::Note, Cell::Null) => self.note = None,
            (column, cell) => panic!("column {} cannot hold {cell:?}", column.name()),
        }
    }
}

/// One line per row, so that the tables of a failed test can be read.
impl fmt::Debug for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("{")?;
        for (position, column) in Column::ALL.into_iter().enumerate() {
            if position > 0 {
                f.write_str(", ")?;
            }
            match self.get(column) {
                Cell::Null => write!(f, "{}: NULL", column.name())?,
                Cell::Int(value) => write!(f, "{}: {value}", column.name())?,
                Cell::Text(value) => write!(f, "{}: {value:?}", column.name())?,
            }
        }
        f.write_str("}")
    }
}

/// The rows in an order of their own, so that multisets can be compared.
pub fn sorted<T: Ord + Clone>(rows: &[T]) -> Vec<T> {
    let mut rows = rows.to_vec();
    rows.sort();
    rows
}
