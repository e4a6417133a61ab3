//! How the check is done, as the plan below it allows.
//!
//! A hash join takes its probe side row by row, a sort-merge join its streamed side: all matches of
//! a row leave before those of the next row of that partition, and rows that match nothing only
//! lie between them or at the end. So where that side is the target, the matches of a target row
//! are neighbours. Operators that keep order and partition keep them so.

use std::fmt;
use std::sync::Arc;

use datafusion::common::JoinSide;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::joins::{HashJoinExec, PartitionMode, SortMergeJoinExec};

use crate::plan_shape::{order_preserving_child, target_side};

/// How the check is done, and why it can or has to be done so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Strategy {
    /// Matches of a target row come one after the other: the last match is all there is to know.
    Streaming { why: String },
    /// They come in any order: bitmaps of all target rows, partitioned by file.
    Bitmap { why: String },
}

impl Strategy {
    /// What is sound for rows that leave `plan`, with `target_column` a column of the target.
    pub(crate) fn of(plan: &Arc<dyn ExecutionPlan>, target_column: &str) -> Self {
        let mut node = plan;
        while let Some(child) = order_preserving_child(node) {
            node = child;
        }
        if let Some(join) = node.downcast_ref::<HashJoinExec>() {
            let name = HashJoinExec::static_name();
            // Auto is settled by the optimizer; where it is not, either side may be the build side.
            let probe = match join.partition_mode() {
                PartitionMode::Partitioned | PartitionMode::CollectLeft => JoinSide::Right,
                PartitionMode::Auto => JoinSide::None,
            };
            let target = target_side(join.left(), join.right(), target_column);
            return Self::of_join(target, probe, "probe", "build", name);
        }
        if let Some(join) = node.downcast_ref::<SortMergeJoinExec>() {
            let name = SortMergeJoinExec::static_name();
            let streamed = SortMergeJoinExec::probe_side(&join.join_type());
            let target = target_side(join.left(), join.right(), target_column);
            return Self::of_join(target, streamed, "streamed", "buffered", name);
        }
        Self::Bitmap {
            why: format!(
                "{} does not keep the matches of a row together",
                node.name()
            ),
        }
    }

    fn of_join(
        target: JoinSide,
        streamed: JoinSide,
        streamed_name: &str,
        held_name: &str,
        join: &str,
    ) -> Self {
        match (target, streamed) {
            (JoinSide::None, _) | (_, JoinSide::None) => Self::Bitmap {
                why: format!("the side of the target in {join} is not known"),
            },
            _ if target == streamed => Self::Streaming {
                why: format!("the target is the {streamed_name} side of {join}"),
            },
            _ => Self::Bitmap {
                why: format!("the target is the {held_name} side of {join}"),
            },
        }
    }
}

impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Self::Streaming { why } => write!(f, "streaming ({why})"),
            Self::Bitmap { why } => write!(f, "bitmap ({why})"),
        }
    }
}
