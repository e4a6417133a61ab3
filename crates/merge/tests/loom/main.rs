//! The rendezvous of the barrier under the interleavings of its partitions, by loom.
//!
//! A lost wake-up shows as a deadlock, which loom reports.

#[path = "../../src/barrier/rendezvous.rs"]
mod rendezvous;

/// Stands in for the module of this name in the crate.
mod sync {
    pub use loom::sync::{Mutex, MutexGuard};

    pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
        mutex.lock().unwrap()
    }
}

use std::future::poll_fn;

use loom::future::block_on;
use loom::thread;
use rendezvous::{Outcome, Rendezvous, Seat};

fn wait(seat: &mut Seat) -> Outcome {
    block_on(poll_fn(|context| seat.poll_met(context)))
}

/// Runs `partitions` on a thread each, in every interleaving with up to three
/// preemptions, and then `check`.
fn model(partitions: &[fn(Seat) -> Option<Outcome>], check: fn(&Rendezvous, &[Option<Outcome>])) {
    let partitions = partitions.to_vec();
    let mut builder = loom::model::Builder::new();
    // Without a bound three threads take hours.
    builder.preemption_bound = Some(3);
    builder.check(move || {
        let rendezvous = Rendezvous::new(partitions.len());
        let threads: Vec<_> = partitions
            .iter()
            .enumerate()
            .map(|(number, partition)| {
                let (seat, partition) = (rendezvous.seat(number), *partition);
                thread::spawn(move || partition(seat))
            })
            .collect();
        let outcomes: Vec<_> = threads.into_iter().map(|t| t.join().unwrap()).collect();
        check(&rendezvous, &outcomes);
    });
}

/// Runs to its end.
fn completes(mut seat: Seat) -> Option<Outcome> {
    let outcome = wait(&mut seat);
    if outcome == Outcome::Met {
        seat.leave();
    }
    Some(outcome)
}

/// Is dropped while it reads, by an error or by its consumer.
fn is_dropped(seat: Seat) -> Option<Outcome> {
    drop(seat);
    None
}

/// Is dropped while it waits.
fn is_dropped_waiting(mut seat: Seat) -> Option<Outcome> {
    block_on(poll_fn(|context| {
        let _ = seat.poll_met(context);
        std::task::Poll::Ready(())
    }));
    None
}

/// Is polled again with another waker before it waits.
fn moves_to_another_task(mut seat: Seat) -> Option<Outcome> {
    is_pending_once(&mut seat);
    completes(seat)
}

fn is_pending_once(seat: &mut Seat) {
    block_on(poll_fn(|context| {
        let _ = seat.poll_met(context);
        std::task::Poll::Ready(())
    }));
}

#[test]
fn two_partitions_meet() {
    model(&[completes, completes], |rendezvous, outcomes| {
        assert_eq!(outcomes, [Some(Outcome::Met); 2]);
        assert!(rendezvous.is_complete());
    });
}

#[test]
fn three_partitions_meet() {
    model(
        &[completes, completes, completes],
        |rendezvous, outcomes| {
            assert_eq!(outcomes, [Some(Outcome::Met); 3]);
            assert!(rendezvous.is_complete());
        },
    );
}

#[test]
fn the_last_waker_counts() {
    model(
        &[completes, moves_to_another_task],
        |rendezvous, outcomes| {
            assert_eq!(outcomes, [Some(Outcome::Met); 2]);
            assert!(rendezvous.is_complete());
        },
    );
}

#[test]
fn nobody_waits_for_a_partition_that_was_dropped() {
    model(
        &[completes, is_dropped, completes],
        |rendezvous, outcomes| {
            assert_eq!(
                outcomes,
                [Some(Outcome::Broken), None, Some(Outcome::Broken)]
            );
            assert!(!rendezvous.is_complete());
        },
    );
}

#[test]
fn dropped_while_waiting_is_not_complete() {
    model(&[completes, is_dropped_waiting], |rendezvous, outcomes| {
        // The other may have met it before it was dropped.
        assert!(outcomes[0].is_some());
        assert!(!rendezvous.is_complete());
    });
}
