//! What can go wrong, with the facts a person needs to mend it.

use std::error::Error;

use arrow::datatypes::DataType;
use datafusion::common::DataFusionError;

/// Errors of the MERGE operators and of the options that steer them.
///
/// They travel through plans as [`DataFusionError::External`], which keeps their text.
#[derive(Debug, thiserror::Error)]
pub enum MergeError {
    /// Several source rows want to change one target row.
    ///
    /// The semantic and the text are those of delta-rs pull request 4359; the text up to the
    /// closing parenthesis is what users match on.
    #[error(
        "MERGE matched a target row with multiple source rows that satisfy duplicate relevant \
         WHEN MATCHED clauses (file: {file}, row ordinal in file: {ordinal})"
    )]
    DuplicateMatch {
        /// Path of the file of the target row, as the table's scan names it.
        file: String,
        /// Number of the row in the file, from 1.
        ordinal: u64,
    },

    /// Rows or bitmaps had to go to disk, and could not.
    #[error(
        "MERGE could not {action} its spill file: {source}; give the session a DiskManager with a \
         writable directory and enough room, or let MERGE keep more in memory: raise \
         deferred_rows_memory_limit and the session's memory pool"
    )]
    Spill {
        /// What was tried: `write` or `read`.
        action: &'static str,
        /// Why it failed.
        #[source]
        source: DataFusionError,
    },

    /// The join, or something below it, holds what does not fit in the memory pool.
    #[error(
        "MERGE needs more memory than the session's memory pool grants: {source}; raise the pool \
         (its size in Rust, max_spill_size in Python), or merge less at once"
    )]
    Memory {
        /// Which consumer was refused what.
        #[source]
        source: DataFusionError,
    },

    /// A partition did not run to its end.
    #[error(
        "a partition of MERGE failed or was dropped before it had emitted all of its rows, so \
         nothing was committed; its own error, if any, names the cause"
    )]
    Incomplete,

    /// A join without an equality holds one side in memory, which does not fit.
    #[error(
        "a full join without an equality between its sides, as that of a merge predicate without \
         one, has to hold one side in the session's memory pool, where it does not fit; add an \
         equality, or raise the pool (its size in Rust, max_spill_size in Python)"
    )]
    BuildSideTooLarge,

    /// `unique_source_keys` was given without a key.
    #[error(
        "unique_source_keys is empty: name the source columns that are unique together, or leave \
         the option out"
    )]
    NoUniqueKey,

    /// A declared key is no column of the source.
    #[error("unique_source_keys: the source has no column {key:?}, its columns are {columns}")]
    UnknownUniqueKey {
        /// The key as declared.
        key: String,
        /// The columns of the source.
        columns: String,
    },

    /// A declared key does not decide which target rows match.
    #[error(
        "unique_source_keys: the merge predicate does not equate the source column {key:?}: it \
         has to be a conjunction (AND) with a part `{key} = <expression over target columns \
         alone>`; {found}. Equate the key, or leave unique_source_keys out to have duplicate \
         matches checked"
    )]
    UniqueKeyNotEquated {
        /// The key as declared.
        key: String,
        /// What the predicate has instead.
        found: String,
    },

    /// A declared key is compared after a cast under which different keys can become equal.
    #[error(
        "unique_source_keys: the source column {key:?} is compared after a cast from {from} to \
         {to}, under which different keys can become equal. Give the source the type of the \
         target, or leave unique_source_keys out to have duplicate matches checked"
    )]
    UniqueKeyCast {
        /// The key as declared.
        key: String,
        /// Type of the source column.
        from: DataType,
        /// Type in which the planner compares it.
        to: DataType,
    },

    /// Source keys were declared unique, and are not.
    #[error(
        "unique_source_keys ({keys}): the source keys are not unique: {read} target rows were \
         read and {joined} left the join, so at least one target row matched several source \
         rows. Nothing was committed. Remove the duplicates from the source, or leave \
         unique_source_keys out to have duplicate matches checked"
    )]
    SourceKeysNotUnique {
        /// The keys as declared, separated by commas.
        keys: String,
        /// Rows that the scan of the target produced.
        read: u64,
        /// Rows with a target side that the join produced.
        joined: u64,
    },
}

impl MergeError {
    pub(crate) fn spill_write(source: DataFusionError) -> DataFusionError {
        let action = "write";
        Self::Spill { action, source }.into()
    }

    pub(crate) fn spill_read(source: DataFusionError) -> DataFusionError {
        let action = "read";
        Self::Spill { action, source }.into()
    }
}

/// `error`, and what helps where the memory pool has refused something.
pub(crate) fn explain_memory(error: DataFusionError) -> DataFusionError {
    match error.find_root() {
        DataFusionError::ResourcesExhausted(_) if !is_explained(&error) => {
            MergeError::Memory { source: error }.into()
        }
        _ => error,
    }
}

/// Whether `error` comes from an operator that has said what helps.
fn is_explained(error: &DataFusionError) -> bool {
    let mut cause: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if error.is::<MergeError>() {
            return true;
        }
        cause = error.source();
    }
    false
}

impl From<MergeError> for DataFusionError {
    fn from(error: MergeError) -> Self {
        Self::External(Box::new(error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_explained_once() {
        let refused = DataFusionError::ResourcesExhausted("no".to_owned());
        let explained = explain_memory(refused.context("the join"));
        let text = explained.to_string();
        assert!(text.contains("raise the pool"), "{text}");
        assert_eq!(explain_memory(explained).to_string(), text);

        let refused = DataFusionError::ResourcesExhausted("no".to_owned());
        let spill = MergeError::spill_write(refused);
        let text = spill.to_string();
        assert_eq!(explain_memory(spill).to_string(), text);
    }
}
