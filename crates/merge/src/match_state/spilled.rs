//! States of files that memory has no room for: one spill file with a slot for each.
//!
//! A state that comes back leaves a hole. When more than half of the file is holes, the slots
//! that are left move to a new file, so the disk holds at most twice what is needed.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::sync::Arc;

use datafusion::common::{Result, exec_err};
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::execution::spill_file::{SpillFile, SpillWriter};
use datafusion::physical_plan::metrics::SpillMetrics;
use futures::StreamExt;

use super::file_matches::FileMatches;
use crate::error::MergeError;

/// Below this size holes are left alone.
const MIN_COMPACTION_BYTES: u64 = 1024 * 1024;

/// Where a state lies in the spill file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Slot {
    offset: u64,
    len: u64,
}

struct StateFile {
    file: Arc<dyn SpillFile>,
    writer: Box<dyn SpillWriter>,
    end: u64,
}

/// The spill file of a [`MatchState`](super::MatchState).
pub(crate) struct SpilledStates {
    env: Arc<RuntimeEnv>,
    metrics: SpillMetrics,
    file: Option<StateFile>,
    live: u64,
}

impl SpilledStates {
    pub(crate) fn new(env: Arc<RuntimeEnv>, metrics: SpillMetrics) -> Self {
        Self {
            env,
            metrics,
            file: None,
            live: 0,
        }
    }

    /// Writes a state to disk.
    ///
    /// # Errors
    ///
    /// [`MergeError::Spill`] when the session's `DiskManager` refuses.
    pub(crate) fn store(&mut self, matches: &FileMatches) -> Result<Slot> {
        let bytes = matches.serialize()?;
        self.append(&bytes).map_err(MergeError::spill_write)
    }

    /// Reads a state back; its slot is free afterwards.
    ///
    /// # Errors
    ///
    /// [`MergeError::Spill`] when the file can not be read.
    pub(crate) async fn load(&mut self, slot: Slot) -> Result<FileMatches> {
        let bytes = self.read(slot).await.map_err(MergeError::spill_read)?;
        let matches = FileMatches::deserialize(&bytes)
            .map_err(|error| MergeError::spill_read(error.into()))?;
        self.live -= slot.len;
        Ok(matches)
    }

    fn append(&mut self, bytes: &[u8]) -> Result<Slot> {
        if self.file.is_none() {
            let disk = &self.env.disk_manager;
            let file = disk.create_tmp_file("storing merge match state")?;
            let writer = file.open_writer()?;
            self.metrics.spill_file_count.add(1);
            self.file = Some(StateFile {
                file,
                writer,
                end: 0,
            });
        }
        let Some(file) = &mut self.file else {
            unreachable!("created above")
        };
        file.writer.write_all(bytes)?;
        file.writer.flush()?;
        let slot = Slot {
            offset: file.end,
            len: bytes.len() as u64,
        };
        file.end += slot.len;
        self.live += slot.len;
        self.metrics.spilled_bytes.add(bytes.len());
        Ok(slot)
    }

    /// The contents of `slot`. The future does not borrow `self`, which is not `Sync`.
    fn read(&self, slot: Slot) -> impl Future<Output = Result<Vec<u8>>> + Send + use<> {
        let file = self.file.as_ref().map(|state| Arc::clone(&state.file));
        async move {
            match file {
                Some(file) => read(file.as_ref(), slot).await,
                None => exec_err!("there is no spill file"),
            }
        }
    }

    /// Moves `slots`, which have to be all that are in use, to a new file if the old one is more
    /// than half empty.
    ///
    /// # Errors
    ///
    /// [`MergeError::Spill`] when the disk refuses; the states are lost then.
    pub(crate) async fn compact(&mut self, slots: impl Iterator<Item = &mut Slot>) -> Result<()> {
        let end = self.file.as_ref().map_or(0, |file| file.end);
        if end < MIN_COMPACTION_BYTES || end < self.live * 2 {
            return Ok(());
        }
        let mut moved = Self::new(Arc::clone(&self.env), self.metrics.clone());
        for slot in slots {
            let bytes = self.read(*slot).await.map_err(MergeError::spill_read)?;
            *slot = moved.append(&bytes).map_err(MergeError::spill_write)?;
        }
        *self = moved;
        Ok(())
    }
}

async fn read(file: &dyn SpillFile, slot: Slot) -> Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(slot.len as usize);
    if let Some(path) = file.path() {
        let mut file = File::open(path)?;
        file.seek(SeekFrom::Start(slot.offset))?;
        file.take(slot.len).read_to_end(&mut bytes)?;
    } else {
        // A custom backend can only be read from its beginning.
        let mut chunks = file.read_stream()?;
        let mut skip = slot.offset;
        while bytes.len() < slot.len as usize
            && let Some(chunk) = chunks.next().await.transpose()?
        {
            let skipped = skip.min(chunk.len() as u64);
            skip -= skipped;
            let missing = slot.len as usize - bytes.len();
            bytes.extend(chunk[skipped as usize..].iter().take(missing));
        }
    }
    if bytes.len() < slot.len as usize {
        let missing = slot.len as usize - bytes.len();
        return exec_err!("the file ends {missing} bytes early");
    }
    Ok(bytes)
}
