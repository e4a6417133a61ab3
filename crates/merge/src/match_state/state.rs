//! The states of all files, in bounded memory.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::common::Result;
use datafusion::execution::TaskContext;
use datafusion::physical_plan::metrics::SpillMetrics;

use super::file_matches::FileMatches;
use super::spilled::{Slot, SpilledStates};
use crate::files::FileId;
use crate::reservation::SpillableReservation;

/// Bytes that a file takes beside its bitmaps, on disk or not.
const FILE_OVERHEAD: usize = size_of::<Entry>() + 2 * size_of::<String>() + size_of::<FileId>();

struct Entry {
    path: Arc<str>,
    state: State,
    /// Bytes reserved for the bitmaps.
    memory: usize,
    last_used: u64,
}

enum State {
    Resident(FileMatches),
    Evicted { slot: Slot, superseded: bool },
}

/// One [`FileMatches`] for each file that was seen.
///
/// All of it is reserved in the memory pool. When a reservation is refused, the states of the
/// least recently used files go to disk. The one in use stays in memory, reserved past the pool's
/// limit if need be: without it there is no progress, and it takes at most three bits a row.
pub(crate) struct MatchState {
    files: Vec<Entry>,
    ids: HashMap<Arc<str>, FileId>,
    reservation: SpillableReservation,
    spilled: SpilledStates,
    clock: u64,
}

impl MatchState {
    pub(crate) fn new(name: String, metrics: SpillMetrics, context: &TaskContext) -> Self {
        Self {
            files: Vec::new(),
            ids: HashMap::new(),
            reservation: SpillableReservation::new(name, context.memory_pool()),
            spilled: SpilledStates::new(context.runtime_env(), metrics),
            clock: 0,
        }
    }

    /// The number of `path`.
    pub(crate) fn intern(&mut self, path: &str) -> FileId {
        if let Some(id) = self.ids.get(path) {
            return *id;
        }
        let id = self.files.len() as FileId;
        let path: Arc<str> = path.into();
        let size = self.reservation.size() + FILE_OVERHEAD + path.len();
        self.reservation.resize(size);
        self.ids.insert(Arc::clone(&path), id);
        self.files.push(Entry {
            path,
            state: State::Resident(FileMatches::default()),
            memory: 0,
            last_used: self.clock,
        });
        id
    }

    pub(crate) fn path(&self, file: FileId) -> &str {
        &self.files[file as usize].path
    }

    /// Bytes reserved.
    pub(crate) fn memory(&self) -> usize {
        self.reservation.size()
    }

    /// The state of `file`, from disk if it is there. [`Self::settle`] has to follow a change.
    ///
    /// # Errors
    ///
    /// [`MergeError::Spill`](crate::MergeError::Spill) when it cannot be read.
    pub(crate) async fn get(&mut self, file: FileId) -> Result<&mut FileMatches> {
        self.clock += 1;
        let entry = &mut self.files[file as usize];
        entry.last_used = self.clock;
        if let State::Evicted { slot, .. } = entry.state {
            entry.state = State::Resident(self.spilled.load(slot).await?);
        }
        match &mut entry.state {
            State::Resident(matches) => Ok(matches),
            State::Evicted { .. } => unreachable!("loaded above"),
        }
    }

    /// Reserves what `file` takes now. Returns false, and reserves nothing, when the pool refuses.
    pub(crate) fn try_settle(&mut self, file: FileId) -> bool {
        let entry = &mut self.files[file as usize];
        let State::Resident(matches) = &entry.state else {
            return true;
        };
        let memory = matches.memory();
        let size = self.reservation.size() - entry.memory + memory;
        let granted = self.reservation.try_resize(size);
        if granted {
            entry.memory = memory;
        }
        granted
    }

    /// Reserves what `file` takes now, and makes room for it at the cost of other files.
    ///
    /// # Errors
    ///
    /// [`MergeError::Spill`](crate::MergeError::Spill) when another file's state cannot be
    /// written to disk.
    pub(crate) async fn settle(&mut self, file: FileId) -> Result<()> {
        if self.try_settle(file) {
            return Ok(());
        }
        let mut others: Vec<_> = (0..self.files.len())
            .filter(|&id| id != file as usize && self.files[id].memory > 0)
            .collect();
        others.sort_unstable_by_key(|&id| self.files[id].last_used);
        for other in others {
            self.evict(other)?;
            if self.try_settle(file) {
                break;
            }
        }
        let slots = self
            .files
            .iter_mut()
            .filter_map(|entry| match &mut entry.state {
                State::Evicted { slot, .. } => Some(slot),
                State::Resident(_) => None,
            });
        self.spilled.compact(slots).await?;
        self.settle_regardless(file);
        Ok(())
    }

    /// Whether rows of `file` that were deferred have been acted on since.
    pub(crate) fn has_superseded(&self, file: FileId) -> bool {
        match &self.files[file as usize].state {
            State::Resident(matches) => matches.has_superseded(),
            State::Evicted { superseded, .. } => *superseded,
        }
    }

    /// Forgets, at the end of the input, what the replay of deferred rows does not ask for.
    pub(crate) fn forget_deferred(&mut self) {
        for entry in &mut self.files {
            if let State::Resident(matches) = &mut entry.state {
                if matches.has_superseded() {
                    matches.forget_deferred();
                } else {
                    *matches = FileMatches::default();
                }
                let memory = matches.memory();
                let freed = entry.memory.saturating_sub(memory);
                self.reservation.resize(self.reservation.size() - freed);
                entry.memory -= freed;
            }
        }
    }

    fn settle_regardless(&mut self, file: FileId) {
        let entry = &mut self.files[file as usize];
        if let State::Resident(matches) = &entry.state {
            let memory = matches.memory();
            let size = self.reservation.size() - entry.memory + memory;
            self.reservation.resize(size);
            entry.memory = memory;
        }
    }

    fn evict(&mut self, file: usize) -> Result<()> {
        let entry = &mut self.files[file];
        if let State::Resident(matches) = &entry.state {
            entry.state = State::Evicted {
                slot: self.spilled.store(matches)?,
                superseded: matches.has_superseded(),
            };
            let size = self.reservation.size() - entry.memory;
            self.reservation.resize(size);
            entry.memory = 0;
        }
        Ok(())
    }
}
