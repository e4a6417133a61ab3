//! Reserved memory that can go to disk.

use std::fmt;
use std::sync::Arc;

use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};

/// A reservation that the pool knows of only while there is something in it.
///
/// `FairSpillPool` divides its memory by the number of registered consumers that can spill,
/// whether they hold anything or not. One that is empty would make the others spill early.
pub(crate) struct SpillableReservation {
    name: String,
    pool: Arc<dyn MemoryPool>,
    held: Option<MemoryReservation>,
}

impl SpillableReservation {
    /// An empty reservation of `pool` that goes by `name` in error messages.
    pub(crate) fn new(name: String, pool: &Arc<dyn MemoryPool>) -> Self {
        Self {
            name,
            pool: Arc::clone(pool),
            held: None,
        }
    }

    /// Bytes reserved.
    pub(crate) fn size(&self) -> usize {
        self.held.as_ref().map_or(0, MemoryReservation::size)
    }

    /// Resizes to `bytes`, or changes nothing and returns false.
    pub(crate) fn try_resize(&mut self, bytes: usize) -> bool {
        let granted = bytes == 0 || self.registered().try_resize(bytes).is_ok();
        self.forget_if(bytes == 0 || self.size() == 0);
        granted
    }

    /// Resizes to `bytes`, past the limit of the pool if need be.
    pub(crate) fn resize(&mut self, bytes: usize) {
        if bytes > 0 {
            self.registered().resize(bytes);
        }
        self.forget_if(bytes == 0);
    }

    fn registered(&mut self) -> &MemoryReservation {
        self.held.get_or_insert_with(|| {
            MemoryConsumer::new(&self.name)
                .with_can_spill(true)
                .register(&self.pool)
        })
    }

    fn forget_if(&mut self, empty: bool) {
        if empty {
            self.held = None;
        }
    }
}

impl fmt::Debug for SpillableReservation {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{}: {} bytes", self.name, self.size())
    }
}

#[cfg(test)]
mod tests {
    use datafusion::execution::memory_pool::FairSpillPool;

    use super::*;

    #[test]
    fn an_empty_reservation_takes_no_share() {
        let pool: Arc<dyn MemoryPool> = Arc::new(FairSpillPool::new(100));
        let [mut a, mut b] = ["a", "b"].map(|name| SpillableReservation::new(name.into(), &pool));
        assert!(a.try_resize(100));
        assert!(!b.try_resize(101) && b.size() == 0);
        assert!(a.try_resize(40) && b.try_resize(50));
        assert!(!a.try_resize(60) && a.size() == 40);
        assert!(b.try_resize(0) && a.try_resize(60));
        b.resize(90);
        assert_eq!(pool.reserved(), 150);
        b.resize(0);
        assert!(a.try_resize(100));
        drop(a);
        assert_eq!(pool.reserved(), 0);
    }
}
