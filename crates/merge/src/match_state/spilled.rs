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
    /// [`MergeError::Spill`] when the file cannot be read.
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

#[cfg(test)]
mod tests {
    use std::pin::Pin;

    use bytes::Bytes;
    use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
    use datafusion::execution::runtime_env::RuntimeEnvBuilder;
    use datafusion::execution::spill_file::TempFileFactory;
    use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
    use futures::Stream;
    use parking_lot::Mutex;

    use super::*;
    use crate::columns::MatchClass;
    use crate::match_state::Decision;

    fn spilled(mode: DiskManagerMode) -> SpilledStates {
        let disk = DiskManagerBuilder::default().with_mode(mode);
        let env = RuntimeEnvBuilder::new().with_disk_manager_builder(disk);
        let metrics = SpillMetrics::new(&ExecutionPlanMetricsSet::new(), 0);
        SpilledStates::new(Arc::new(env.build().unwrap()), metrics)
    }

    /// A state of a few KiB that tells `number` from others.
    fn state(number: u64) -> FileMatches {
        let ordinals: Vec<_> = (0..3_000).map(|i| i * 20 + number % 20).collect();
        let rows: Vec<_> = (0..ordinals.len()).collect();
        let classes = vec![MatchClass::Action as i32; rows.len()];
        let mut decisions = vec![Decision::Pass; rows.len()];
        let mut matches = FileMatches::default();
        let admitted = matches.admit(&rows, &ordinals, &classes, &mut decisions);
        admitted.unwrap();
        matches
    }

    #[tokio::test]
    async fn holes_are_given_back_to_the_disk() {
        let mut spilled = spilled(DiskManagerMode::OsTmpDirectory);
        let mut slots = Vec::new();
        for number in 0..500 {
            slots.push(spilled.store(&state(number)).unwrap());
        }
        let disk = Arc::clone(&spilled.env.disk_manager);
        let full = disk.used_disk_space();
        assert!(full > 2 * MIN_COMPACTION_BYTES, "{full} bytes");

        spilled.compact(slots.iter_mut()).await.unwrap();
        assert_eq!(disk.used_disk_space(), full, "there was no hole");
        for (number, slot) in slots.drain(10..).enumerate() {
            assert_eq!(spilled.load(slot).await.unwrap(), state(10 + number as u64));
        }
        spilled.compact(slots.iter_mut()).await.unwrap();
        assert_eq!(disk.used_disk_space(), full / 50);
        assert_eq!(disk.spilling_progress().active_files_count, 1);
        for (number, slot) in slots.into_iter().enumerate() {
            assert_eq!(spilled.load(slot).await.unwrap(), state(number as u64));
        }
        drop(spilled);
        assert_eq!(disk.used_disk_space(), 0);
    }

    /// A spill file that is no file, and hands out its bytes in small chunks.
    #[derive(Clone, Default)]
    struct InMemory(Arc<Mutex<Vec<u8>>>);

    impl Write for InMemory {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().extend(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    impl SpillWriter for InMemory {
        fn finish(&mut self) -> Result<()> {
            Ok(())
        }
    }

    impl SpillFile for InMemory {
        fn size(&self) -> Option<u64> {
            None
        }

        fn read_stream(&self) -> Result<Pin<Box<dyn Stream<Item = Result<Bytes>> + Send>>> {
            let bytes = self.0.lock().clone();
            let chunks: Vec<_> = bytes.chunks(1_000).map(Bytes::copy_from_slice).collect();
            Ok(Box::pin(futures::stream::iter(chunks.into_iter().map(Ok))))
        }

        fn open_writer(&self) -> Result<Box<dyn SpillWriter>> {
            Ok(Box::new(self.clone()))
        }
    }

    impl TempFileFactory for InMemory {
        fn create_temp_file(&self, _: &str) -> Result<Arc<dyn SpillFile>> {
            Ok(Arc::new(self.clone()))
        }
    }

    #[tokio::test]
    async fn a_backend_without_paths_serves_too() {
        let backend = InMemory::default();
        let mut spilled = spilled(DiskManagerMode::Custom(Arc::new(backend.clone())));
        let slots: Vec<_> = (0..5)
            .map(|number| spilled.store(&state(number)).unwrap())
            .collect();
        for number in [3, 0, 4] {
            let loaded = spilled.load(slots[number]).await.unwrap();
            assert_eq!(loaded, state(number as u64));
        }
        backend.0.lock().truncate(10_000);
        let error = spilled.load(slots[2]).await.unwrap_err().to_string();
        assert!(error.contains("bytes early"), "{error}");
    }
}
