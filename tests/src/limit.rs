//! A hard limit on time, since a MERGE that spills wrongly hangs.

use std::future::IntoFuture;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(120);

/// # Panics
/// When the future does not end in time.
pub async fn within_limit<F: IntoFuture>(what: &str, future: F) -> F::Output {
    match tokio::time::timeout(LIMIT, future.into_future()).await {
        Ok(value) => value,
        Err(_) => panic!("{what} did not end within {LIMIT:?}: it hangs"),
    }
}
