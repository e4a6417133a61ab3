//! Upstream's own integration tests of MERGE, as they come in the pinned package.
//!
//! Upstream has them in one binary with all its integration tests, which needs a crate that is not
//! published; the file about MERGE does not.

#[allow(warnings, clippy::all)]
#[path = "../../../fork/deltalake-core/tests/it_datafusion/command_merge.rs"]
mod command_merge;

/// Imported there, and not used.
mod fs_common {}
