//! Peak resident memory of this process, over a stretch of time.
//!
//! The kernel keeps the peak (`VmHWM`) and lets a process set its own back (`5` written to
//! `/proc/self/clear_refs`), so nothing has to run beside the work that is measured. Where that is
//! refused, a thread samples `VmRSS` every two milliseconds instead, which may miss short peaks.
//! Elsewhere than on Linux the peak is not known.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

const SAMPLE_EVERY: Duration = Duration::from_millis(2);

/// Measures from `start` until `growth`.
pub(crate) struct PeakMemory {
    before: Option<u64>,
    probe: Probe,
}

enum Probe {
    Kernel,
    Sampler {
        stop: Arc<AtomicBool>,
        thread: JoinHandle<u64>,
    },
}

impl PeakMemory {
    pub(crate) fn start() -> Self {
        let probe = if fs::write("/proc/self/clear_refs", "5").is_ok() {
            Probe::Kernel
        } else {
            sampler()
        };
        Self {
            before: status("VmRSS:"),
            probe,
        }
    }

    /// Bytes by which the peak since `start` exceeds the resident memory at `start`.
    pub(crate) fn growth(self) -> Option<u64> {
        let peak = match self.probe {
            Probe::Kernel => status("VmHWM:")?,
            Probe::Sampler { stop, thread } => {
                stop.store(true, Ordering::Relaxed);
                thread.join().ok()?
            }
        };
        Some(peak.saturating_sub(self.before?))
    }
}

fn sampler() -> Probe {
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    let thread = std::thread::spawn(move || {
        let mut peak = 0;
        while !stopped.load(Ordering::Relaxed) {
            peak = peak.max(status("VmRSS:").unwrap_or(0));
            std::thread::sleep(SAMPLE_EVERY);
        }
        peak
    });
    Probe::Sampler { stop, thread }
}

/// A field of `/proc/self/status`, in bytes.
fn status(field: &str) -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(field))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}
