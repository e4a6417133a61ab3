//! How much may be held in memory.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use datafusion::execution::memory_pool::{MemoryLimit, MemoryPool};

use crate::reservation::SpillableReservation;

/// Limit of deferred rows in memory when the user sets none and the memory pool is unbounded.
pub const DEFAULT_DEFERRED_ROWS_MEMORY_LIMIT: usize = 128 * 1024 * 1024;

/// Bytes that rows take in memory between two writes, once some are on disk.
///
/// More would spare the disk hardly anything then, and cost time: rows that were copied long ago
/// have left the processor's caches when they are written.
const MEMORY_BETWEEN_WRITES: usize = 32 * 1024 * 1024;

/// How many bytes of deferred rows one MERGE may hold in memory, over all its partitions.
#[derive(Debug)]
pub(crate) struct DeferredLimit {
    /// Bytes, or `None` where the memory pool alone decides.
    limit: Option<usize>,
    used: AtomicUsize,
    /// Whether rows are on disk.
    has_written: AtomicBool,
}

impl DeferredLimit {
    /// The limit the user set, else [`DEFAULT_DEFERRED_ROWS_MEMORY_LIMIT`] in a pool without a
    /// limit of its own.
    pub(crate) fn new(user: Option<usize>, pool: &dyn MemoryPool) -> Self {
        let limit = user.or(match pool.memory_limit() {
            MemoryLimit::Finite(_) => None,
            MemoryLimit::Infinite | MemoryLimit::Unknown => {
                Some(DEFAULT_DEFERRED_ROWS_MEMORY_LIMIT)
            }
        });
        Self {
            limit,
            ..Self::default()
        }
    }

    /// What a plan shows of it.
    pub(crate) fn fmt_as(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self.limit {
            Some(bytes) => write!(f, ", deferred_rows_memory_limit={bytes}"),
            None => Ok(()),
        }
    }

    fn try_grow(&self, bytes: usize) -> bool {
        let mut limit = self.limit.unwrap_or(usize::MAX);
        if self.has_written.load(Ordering::Relaxed) {
            limit = limit.min(MEMORY_BETWEEN_WRITES);
        }
        self.used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
                used.checked_add(bytes).filter(|used| *used <= limit)
            })
            .is_ok()
    }

    fn shrink(&self, bytes: usize) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl Default for DeferredLimit {
    fn default() -> Self {
        Self {
            limit: Some(DEFAULT_DEFERRED_ROWS_MEMORY_LIMIT),
            used: AtomicUsize::new(0),
            has_written: AtomicBool::new(false),
        }
    }
}

/// A share of [`DeferredLimit`] and of the memory pool, always of the same size.
#[derive(Debug)]
pub(super) struct Share {
    limit: Arc<DeferredLimit>,
    reservation: SpillableReservation,
}

impl Share {
    pub(super) fn new(limit: Arc<DeferredLimit>, reservation: SpillableReservation) -> Self {
        Self { limit, reservation }
    }

    pub(super) fn size(&self) -> usize {
        self.reservation.size()
    }

    /// Gives all of it back: what was held is on disk.
    pub(super) fn written(&mut self) {
        self.limit.has_written.store(true, Ordering::Relaxed);
        self.try_resize(0);
    }

    /// Resizes to `bytes`, or changes nothing and returns false.
    pub(super) fn try_resize(&mut self, bytes: usize) -> bool {
        let size = self.size();
        if bytes > size && !self.limit.try_grow(bytes - size) {
            return false;
        }
        let granted = self.reservation.try_resize(bytes);
        if bytes <= size {
            self.limit.shrink(size - bytes);
        } else if !granted {
            self.limit.shrink(bytes - size);
        }
        granted
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.limit.shrink(self.size());
    }
}

#[cfg(test)]
mod tests {
    use datafusion::execution::memory_pool::UnboundedMemoryPool;

    use super::*;

    #[test]
    fn once_rows_are_on_disk_fewer_are_held() {
        let pool: Arc<dyn MemoryPool> = Arc::new(UnboundedMemoryPool::default());
        let limit = Arc::new(DeferredLimit::new(None, pool.as_ref()));
        let share = |name: &str| {
            let reservation = SpillableReservation::new(name.to_owned(), &pool);
            Share::new(Arc::clone(&limit), reservation)
        };
        let (mut first, mut second) = (share("first"), share("second"));
        assert!(first.try_resize(DEFAULT_DEFERRED_ROWS_MEMORY_LIMIT - 1));
        assert!(second.try_resize(1));
        assert!(!second.try_resize(2));
        first.written();
        assert_eq!(first.size(), 0);
        assert!(second.try_resize(MEMORY_BETWEEN_WRITES));
        assert!(!first.try_resize(1));
    }

    #[test]
    fn a_lower_limit_stays() {
        let pool: Arc<dyn MemoryPool> = Arc::new(UnboundedMemoryPool::default());
        let limit = Arc::new(DeferredLimit::new(Some(10), pool.as_ref()));
        let reservation = SpillableReservation::new("rows".to_owned(), &pool);
        let mut share = Share::new(limit, reservation);
        share.written();
        assert!(share.try_resize(10));
        assert!(!share.try_resize(11));
    }
}
