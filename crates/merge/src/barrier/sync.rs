//! The mutex of [`super::rendezvous`], apart so that the model checker can put in its own.

use std::sync::{MutexGuard, PoisonError};

pub(crate) use std::sync::Mutex;

/// Locks `mutex`. What it guards is consistent even after a panic: nothing can panic under it.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
