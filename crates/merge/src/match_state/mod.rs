//! What has already happened to the target rows, as bitmaps of row ordinals.
//!
//! [`FileMatches`] knows the rules of the duplicate check for one file, [`MatchState`] holds one of
//! them for each file that was seen, in bounded memory, and [`SpilledStates`] keeps those on disk
//! that memory has no room for.
//!
//! ```text
//!   get(file) ──► resident? ── yes ──► &mut FileMatches ──► settle() after the change
//!                    │ no                                      │ reserve the new size; refused?
//!                    ▼                                         ▼
//!              load from disk                      evict the least recently used to disk
//! ```

mod file_matches;
mod spilled;
mod state;

pub(crate) use file_matches::Decision;
pub(crate) use state::MatchState;
