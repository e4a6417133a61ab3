//! How much may be held in memory.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use datafusion::execution::memory_pool::{MemoryLimit, MemoryPool};

use crate::reservation::SpillableReservation;

/// Limit of deferred rows in memory when the user sets none and the memory pool is unbounded.
pub const DEFAULT_DEFERRED_ROWS_MEMORY_LIMIT: usize = 128 * 1024 * 1024;

/// How many bytes of deferred rows one MERGE may hold in memory, over all its partitions.
#[derive(Debug)]
pub(crate) struct DeferredLimit {
    /// Bytes, or `None` where the memory pool alone decides.
    limit: Option<usize>,
    used: AtomicUsize,
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
            used: AtomicUsize::new(0),
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
        let limit = self.limit.unwrap_or(usize::MAX);
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
