//! Where the partitions of the barrier wait for each other.
//!
//! Each partition has a seat. It arrives when its input has ended, waits until all have arrived,
//! and leaves when it has emitted its last row. A seat that is dropped before that breaks the
//! rendezvous, and wakes whoever waits: nobody waits for a partition that will not come.
//!
//! # Locks
//!
//! One mutex guards everything. No waker is called and nothing is awaited under it.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use super::sync::{Mutex, lock};

/// How a wait ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// All partitions have arrived.
    Met,
    /// A partition was dropped and will not arrive, or not emit all of its rows.
    Broken,
}

struct State {
    /// Seats that have not arrived.
    awaited: usize,
    /// Seats that have not left.
    present: usize,
    broken: bool,
    /// By seat: whom to wake.
    wakers: Vec<Option<Waker>>,
}

impl State {
    fn outcome(&self) -> Option<Outcome> {
        match (self.broken, self.awaited) {
            (true, _) => Some(Outcome::Broken),
            (false, 0) => Some(Outcome::Met),
            (false, _) => None,
        }
    }

    fn take_wakers(&mut self) -> Vec<Waker> {
        self.wakers.iter_mut().filter_map(Option::take).collect()
    }
}

/// The meeting of a fixed number of partitions.
pub(crate) struct Rendezvous {
    state: Arc<Mutex<State>>,
}

impl Rendezvous {
    pub(crate) fn new(seats: usize) -> Self {
        let state = State {
            awaited: seats,
            present: seats,
            broken: false,
            wakers: vec![None; seats],
        };
        Self {
            state: Arc::new(Mutex::new(state)),
        }
    }

    /// The seat of partition `number`, to be taken once.
    pub(crate) fn seat(&self, number: usize) -> Seat {
        Seat {
            number,
            state: Arc::clone(&self.state),
            progress: Progress::Reading,
        }
    }

    /// Whether every partition has arrived and left.
    pub(crate) fn is_complete(&self) -> bool {
        let state = lock(&self.state);
        state.present == 0 && !state.broken
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Progress {
    Reading,
    Arrived,
    Left,
}

/// One partition's part in a [`Rendezvous`].
pub(crate) struct Seat {
    number: usize,
    state: Arc<Mutex<State>>,
    progress: Progress,
}

impl Seat {
    /// Arrives at the first call, and waits for the others.
    pub(crate) fn poll_met(&mut self, context: &mut Context) -> Poll<Outcome> {
        let mut state = lock(&self.state);
        if self.progress == Progress::Reading {
            self.progress = Progress::Arrived;
            state.awaited -= 1;
        }
        let Some(outcome) = state.outcome() else {
            state.wakers[self.number] = Some(context.waker().clone());
            return Poll::Pending;
        };
        let wakers = state.take_wakers();
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
        Poll::Ready(outcome)
    }

    /// Leaves: this partition has emitted all of its rows.
    pub(crate) fn leave(&mut self) {
        if self.progress == Progress::Arrived {
            self.progress = Progress::Left;
            lock(&self.state).present -= 1;
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        if self.progress == Progress::Left {
            return;
        }
        let mut state = lock(&self.state);
        state.broken = true;
        let wakers = state.take_wakers();
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
    }
}
