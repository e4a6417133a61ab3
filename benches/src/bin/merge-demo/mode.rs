//! How the MERGE is asked to treat several source rows per target row.

use std::str::FromStr;

use anyhow::{Error, Result, bail};
use deltalake_core::operations::merge::{MergeBuilder, MergeMetrics};

/// Which program this is, as the column `build` of the results says it.
pub(crate) const BUILD: &str = if cfg!(feature = "fork") {
    "fork"
} else {
    "baseline"
};

/// Small against what `mixed` has to defer, so that `spill32` really spills.
#[cfg(feature = "fork")]
const SPILL_LIMIT: usize = 32 << 20;

#[derive(Clone, Copy)]
pub(crate) enum Mode {
    /// Every match is checked; what users get who set nothing.
    Full,
    /// The source keys are declared unique and nothing is checked.
    #[cfg(feature = "fork")]
    Unique,
    /// Every match is checked, with 32 MiB for the rows that have to wait.
    #[cfg(feature = "fork")]
    Spill32,
}

impl Mode {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Full => "full",
            #[cfg(feature = "fork")]
            Self::Unique => "unique",
            #[cfg(feature = "fork")]
            Self::Spill32 => "spill32",
        }
    }

    pub(crate) fn apply(self, merge: MergeBuilder) -> MergeBuilder {
        match self {
            Self::Full => merge,
            #[cfg(feature = "fork")]
            Self::Unique => merge.with_unique_source_keys(["key"]),
            #[cfg(feature = "fork")]
            Self::Spill32 => merge.with_deferred_rows_memory_limit(SPILL_LIMIT),
        }
    }
}

impl FromStr for Mode {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        Ok(match name {
            "full" => Self::Full,
            #[cfg(feature = "fork")]
            "unique" => Self::Unique,
            #[cfg(feature = "fork")]
            "spill32" => Self::Spill32,
            _ => bail!("mode {name} does not exist in the {BUILD} build"),
        })
    }
}

/// What was deferred and spilled; unknown on the published core.
pub(crate) struct Deferred {
    pub(crate) rows: usize,
    pub(crate) spilled_bytes: usize,
}

#[cfg(feature = "fork")]
pub(crate) fn deferred(metrics: &MergeMetrics) -> Option<Deferred> {
    Some(Deferred {
        rows: metrics.num_rows_deferred,
        spilled_bytes: metrics.spilled_bytes,
    })
}

#[cfg(not(feature = "fork"))]
pub(crate) fn deferred(_metrics: &MergeMetrics) -> Option<Deferred> {
    None
}
