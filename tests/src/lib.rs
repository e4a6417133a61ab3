//! What the tests of MERGE share: plain rows, an oracle, real tables, sessions and a checker.
//!
//! ```text
//!   rows, spec ──► oracle ────────────────► rows, metrics, changes ──┐
//!        │                                                           ├─► check
//!        └──────► table, source, session ─► merge on the core ───────┘
//! ```
//!
//! The oracle knows nothing of Arrow or DataFusion, so that an error in them is no error in it.

pub mod check;
mod deletion_vector;
pub mod limit;
pub mod merge;
pub mod oracle;
pub mod row;
pub mod session;
pub mod source;
pub mod spec;
pub mod table;
