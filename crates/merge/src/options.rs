//! What a user can set on a MERGE.

/// Options of one MERGE, as its builder collects them.
#[derive(Debug, Clone, Default)]
pub struct MergeOptions {
    /// Source columns that the user declares unique together, see [`crate::unique`].
    pub unique_source_keys: Option<Vec<String>>,
    /// Bytes of deferred rows that one MERGE holds in memory, see
    /// [`crate::DEFAULT_DEFERRED_ROWS_MEMORY_LIMIT`] for the default.
    pub deferred_rows_memory_limit: Option<usize>,
}
