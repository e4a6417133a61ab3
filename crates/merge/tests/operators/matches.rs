//! Rows as they leave MERGE's join, and a plain oracle of what the duplicate check makes of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, AsArray, Int32Array, Int64Array, RecordBatch, StringArray, StringDictionaryBuilder,
    StringViewArray, UInt64Array,
};
use arrow::datatypes::{DataType, Field, Int64Type, Schema, SchemaRef, UInt16Type};
use deltalake_merge::columns::{MATCH_CLASS_COLUMN, MatchClass};

pub const FILE: &str = "file";
pub const ORDINAL: &str = "ordinal";

/// One row; `id` tells it from all others.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    pub id: i64,
    pub file: Option<u16>,
    pub ordinal: Option<u64>,
    pub class: MatchClass,
}

pub fn row(id: i64, file: u16, ordinal: u64, class: MatchClass) -> Row {
    Row {
        id,
        file: Some(file),
        ordinal: Some(ordinal),
        class,
    }
}

pub fn schema() -> SchemaRef {
    let path = DataType::Dictionary(Box::new(DataType::UInt16), Box::new(DataType::Utf8));
    Arc::new(Schema::new(vec![
        Field::new("id", DataType::Int64, false),
        Field::new("text", DataType::Utf8, true),
        Field::new(FILE, path, true),
        Field::new("view", DataType::Utf8View, true),
        Field::new(ORDINAL, DataType::UInt64, true),
        Field::new(MATCH_CLASS_COLUMN, DataType::Int32, true),
    ]))
}

pub fn path(file: u16) -> String {
    format!("part={file}/file-{file:05}.parquet")
}

fn text(id: i64) -> Option<String> {
    (id % 7 != 0).then(|| "x".repeat(id as usize % 40) + &id.to_string())
}

pub fn batch(rows: &[Row]) -> RecordBatch {
    let mut files = StringDictionaryBuilder::<UInt16Type>::new();
    for row in rows {
        files.append_option(row.file.map(path));
    }
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from_iter_values(rows.iter().map(|row| row.id))),
        Arc::new(StringArray::from_iter(rows.iter().map(|row| text(row.id)))),
        Arc::new(files.finish()),
        Arc::new(StringViewArray::from_iter(
            rows.iter().map(|row| text(row.id)),
        )),
        Arc::new(UInt64Array::from_iter(rows.iter().map(|row| row.ordinal))),
        Arc::new(Int32Array::from_iter_values(
            rows.iter().map(|row| row.class as i32),
        )),
    ];
    RecordBatch::try_new(schema(), columns).unwrap()
}

/// The ids of the rows of `batches`; each row must have come through whole.
pub fn ids(batches: &[RecordBatch], rows: &[Row]) -> Vec<i64> {
    let by_id: BTreeMap<_, _> = rows.iter().map(|row| (row.id, row)).collect();
    let mut ids = Vec::new();
    for batch in batches {
        assert_eq!(batch.schema(), schema());
        let start = ids.len();
        ids.extend(batch.column(0).as_primitive::<Int64Type>().values());
        let expected: Vec<_> = ids[start..].iter().map(|id| by_id[id].clone()).collect();
        let expected = self::batch(&expected);
        for column in [1, 3, 4, 5] {
            assert_eq!(batch.column(column), expected.column(column));
        }
        let files = |batch: &RecordBatch| {
            let column = batch.column(2).as_dictionary::<UInt16Type>();
            let paths = column.downcast_dict::<StringArray>().unwrap();
            paths
                .into_iter()
                .map(|path| path.map(str::to_owned))
                .collect::<Vec<_>>()
        };
        assert_eq!(files(batch), files(&expected));
    }
    ids
}

/// What the check must make of the rows.
#[derive(Debug, PartialEq)]
pub enum Expected {
    Duplicate,
    /// Of each set of ids exactly one passes.
    OneOfEach(Vec<Vec<i64>>),
}

/// The semantics table of delta-rs pull request 4359, target row by target row.
pub fn oracle(rows: &[Row]) -> Expected {
    let mut pass = Vec::new();
    let mut matches: BTreeMap<(u16, u64), Vec<&Row>> = BTreeMap::new();
    for row in rows {
        match (row.file, row.ordinal, row.class) {
            (Some(file), Some(ordinal), class) if class != MatchClass::Ignore => {
                matches.entry((file, ordinal)).or_default().push(row);
            }
            _ => pass.push(vec![row.id]),
        }
    }
    for rows in matches.values() {
        let of = |class| {
            let rows = rows.iter().filter(move |row| row.class == class);
            rows.map(|row| row.id).collect::<Vec<_>>()
        };
        let actions = of(MatchClass::Action);
        let deletes = of(MatchClass::UnconditionalDelete);
        if actions.len() > 1 || (!actions.is_empty() && !deletes.is_empty()) {
            return Expected::Duplicate;
        }
        let candidates = [actions, deletes, of(MatchClass::Noop)];
        pass.extend(candidates.into_iter().find(|ids| !ids.is_empty()));
    }
    Expected::OneOfEach(pass)
}

pub fn assert_passed(passed: &[i64], expected: &[Vec<i64>]) {
    let mut passed = passed.to_vec();
    passed.sort_unstable();
    for candidates in expected {
        let found: Vec<_> = candidates
            .iter()
            .filter(|id| passed.binary_search(id).is_ok())
            .collect();
        assert_eq!(
            found.len(),
            1,
            "one of {candidates:?} must pass, {found:?} did"
        );
    }
    assert_eq!(passed.len(), expected.len(), "rows passed that must not");
}
