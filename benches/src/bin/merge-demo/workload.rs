//! The shapes of MERGE that are measured, in closed form.
//!
//! A row is its id and its version; every value in it follows from these two (see `data`). So a
//! workload only says which ids the source holds, at which version, and which clauses run:
//!
//! | name | target | source | question |
//! |---|---|---|---|
//! | `seed` | 1M, one file | 10k, the last keys | delta-rs issue 4422: a small batch on a large table |
//! | `mixed` | 1M, one file | 1M, 1 % newer | the everyday "update only what changed" |
//! | `spread` | 1M, ten files | 10k, evenly spread | every file has to be rewritten for a few rows |
//! | `selfmerge` | 300k, one file | 300k, all newer | every row is acted on, nothing can be deferred |
//! | `mixed3m` | 3M, three files | 3M, 1 % newer | does memory grow with the rows that stay as they are? |
//! | `untouched` | 3M, 60 files | 10k, all of one file | rows of files that are not written again |
//! | `manyfiles` | 400k, 4,000 partitions | 4k, one for each | what a file costs |
//! | `inserts` | 300k, one file | 1M, none matches | rows that belong to no file |
//! | `changes` | 300k, one file, change data feed | 300k, 1 % newer | `mixed`, with the writer of change data |
//!
//! In all of them the newer version wins, which makes the final content closed-form as well.

use std::str::FromStr;

use anyhow::{Error, Result, bail};
use datafusion::prelude::{Expr, col};
use deltalake_core::DeltaResult;
use deltalake_core::operations::merge::MergeBuilder;

/// `mixed` and its kin update the rows whose id leaves this rest modulo 100: 1 % of all, in every
/// row group.
const NEWER: u64 = 37;

pub(crate) struct Workload {
    pub(crate) name: &'static str,
    shape: Shape,
    pub(crate) columns: &'static [&'static str],
    pub(crate) target_rows: u64,
    /// Files of the target, or its partitions where it has any.
    pub(crate) target_files: u64,
    pub(crate) source_rows: u64,
}

#[derive(Clone, Copy)]
enum Shape {
    Seed,
    Mixed,
    Spread,
    SelfMerge,
    Untouched,
    ManyFiles,
    Inserts,
    Changes,
}

const NARROW: &[&str] = &["key", "rowversion", "amount", "payload"];
const WIDE: &[&str] = &["key", "version", "amount", "updated_at", "payload"];
const PARTITIONED: &[&str] = &["part", "key", "version", "amount", "payload"];

impl FromStr for Workload {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        Ok(match name {
            "seed" => Self {
                name: "seed",
                shape: Shape::Seed,
                columns: NARROW,
                target_rows: 1_000_000,
                target_files: 1,
                source_rows: 10_000,
            },
            "mixed" => Self {
                name: "mixed",
                shape: Shape::Mixed,
                columns: WIDE,
                target_rows: 1_000_000,
                target_files: 1,
                source_rows: 1_000_000,
            },
            "spread" => Self {
                name: "spread",
                shape: Shape::Spread,
                columns: WIDE,
                target_rows: 1_000_000,
                target_files: 10,
                source_rows: 10_000,
            },
            "selfmerge" => Self {
                name: "selfmerge",
                shape: Shape::SelfMerge,
                columns: WIDE,
                target_rows: 300_000,
                target_files: 1,
                source_rows: 300_000,
            },
            "mixed3m" => Self {
                name: "mixed3m",
                shape: Shape::Mixed,
                columns: WIDE,
                target_rows: 3_000_000,
                target_files: 3,
                source_rows: 3_000_000,
            },
            "untouched" => Self {
                name: "untouched",
                shape: Shape::Untouched,
                columns: WIDE,
                target_rows: 3_000_000,
                target_files: 60,
                source_rows: 10_000,
            },
            "manyfiles" => Self {
                name: "manyfiles",
                shape: Shape::ManyFiles,
                columns: PARTITIONED,
                target_rows: 400_000,
                target_files: 4_000,
                source_rows: 4_000,
            },
            "inserts" => Self {
                name: "inserts",
                shape: Shape::Inserts,
                columns: WIDE,
                target_rows: 300_000,
                target_files: 1,
                source_rows: 1_000_000,
            },
            "changes" => Self {
                name: "changes",
                shape: Shape::Changes,
                columns: WIDE,
                target_rows: 300_000,
                target_files: 1,
                source_rows: 300_000,
            },
            _ => bail!("unknown workload {name}"),
        })
    }
}

impl Workload {
    /// The key of a row. `seed` has ascending keys, so that "the last keys" means something; the
    /// others have scrambled ones, so that neither side is sorted by what is joined.
    pub(crate) fn key(&self, id: u64) -> String {
        match self.shape {
            Shape::Seed => format!("ROW-{id:012}"),
            _ => format!("{:016x}", crate::data::scramble(id)),
        }
    }

    /// The partition of a row, where the table has any.
    pub(crate) fn partition(&self, id: u64) -> u64 {
        id % self.target_files
    }

    pub(crate) fn is_partitioned(&self) -> bool {
        matches!(self.shape, Shape::ManyFiles)
    }

    pub(crate) fn has_change_data(&self) -> bool {
        matches!(self.shape, Shape::Changes)
    }

    /// Rows of the table after the MERGE, which have the ids from 0.
    pub(crate) fn final_rows(&self) -> u64 {
        match self.shape {
            Shape::Inserts => self.target_rows + self.source_rows,
            _ => self.target_rows,
        }
    }

    /// The version of every target row before the MERGE.
    pub(crate) fn target_version(&self) -> i64 {
        match self.shape {
            Shape::Mixed | Shape::Changes => 2,
            _ => 1,
        }
    }

    /// The id of the `n`th source row, counted before the source is shuffled.
    pub(crate) fn source_id(&self, n: u64) -> u64 {
        match self.shape {
            Shape::Seed => self.target_rows - self.source_rows + n,
            Shape::Spread => n * (self.target_rows / self.source_rows) + self.spread_offset(),
            Shape::Inserts => self.target_rows + n,
            Shape::Mixed
            | Shape::SelfMerge
            | Shape::Untouched
            | Shape::ManyFiles
            | Shape::Changes => n,
        }
    }

    /// The version the source has of a row, if it has the row at all.
    pub(crate) fn source_version(&self, id: u64) -> Option<i64> {
        match self.shape {
            Shape::Seed => (id >= self.target_rows - self.source_rows).then_some(2),
            Shape::Spread => {
                (id % (self.target_rows / self.source_rows) == self.spread_offset()).then_some(2)
            }
            Shape::Mixed | Shape::Changes if id % 100 == NEWER => Some(3),
            // Older than the target, so that a row updated by mistake shows in the content.
            Shape::Mixed | Shape::Changes => Some(1),
            Shape::SelfMerge => Some(2),
            Shape::Untouched | Shape::ManyFiles => (id < self.source_rows).then_some(2),
            Shape::Inserts => (id >= self.target_rows).then_some(2),
        }
    }

    /// The version a row has after the MERGE.
    pub(crate) fn final_version(&self, id: u64) -> i64 {
        let source = self.source_version(id).unwrap_or(i64::MIN);
        match id < self.target_rows {
            true => source.max(self.target_version()),
            false => source,
        }
    }

    fn spread_offset(&self) -> u64 {
        self.target_rows / self.source_rows / 2
    }

    pub(crate) fn on(&self) -> Expr {
        col("source.key").eq(col("target.key"))
    }

    pub(crate) fn clauses(&self, merge: MergeBuilder) -> DeltaResult<MergeBuilder> {
        let source = |name: &str| col(format!("source.{name}"));
        let newer = match self.shape {
            Shape::Mixed | Shape::Changes => Some(col("source.version").gt(col("target.version"))),
            _ => None,
        };
        let merge = merge.when_matched_update(|update| {
            let update = match newer {
                Some(newer) => update.predicate(newer),
                None => update,
            };
            self.columns
                .iter()
                .fold(update, |update, name| update.update(*name, source(name)))
        })?;
        match self.shape {
            Shape::Seed | Shape::Mixed | Shape::Inserts | Shape::Changes => merge
                .when_not_matched_insert(|insert| {
                    self.columns
                        .iter()
                        .fold(insert, |insert, name| insert.set(*name, source(name)))
                }),
            Shape::Spread | Shape::SelfMerge | Shape::Untouched | Shape::ManyFiles => Ok(merge),
        }
    }
}
