//! The rules of the duplicate check, for the rows of one target file.

use std::io;

use roaring::RoaringTreemap;

use crate::columns::MatchClass;

/// What becomes of a row of the input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Decision {
    /// It is emitted now.
    Pass,
    /// It is emitted at the end, unless another match of its target row is passed until then.
    Defer,
    /// Another match stands for its target row.
    Drop,
}

/// A second source row wants to change the target row with this ordinal.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct DuplicateMatch(pub(crate) u64);

/// Matches of the target rows of one file, as sets of row ordinals.
///
/// The semantics are those of delta-rs pull request 4359. Per target row:
///
/// | matches | outcome |
/// |---|---|
/// | two or more `Action` | [`DuplicateMatch`] |
/// | `Action` and `UnconditionalDelete`, in any order | [`DuplicateMatch`] |
/// | several `UnconditionalDelete`, any `Noop` | the first delete passes |
/// | one `Action`, any `Noop` | the action passes |
/// | only `Noop` | the first is deferred |
#[derive(Debug, Default, PartialEq)]
pub(crate) struct FileMatches {
    action: RoaringTreemap,
    delete: RoaringTreemap,
    noop: RoaringTreemap,
    /// Whether a row that was deferred has been acted on since.
    superseded: bool,
}

impl FileMatches {
    /// Decides on `rows` of a batch, all of this file, given the whole batch's `ordinals` and
    /// `classes`, and notes the decision of each row in `decisions`.
    ///
    /// # Errors
    ///
    /// [`DuplicateMatch`] for one of the target rows that two source rows want to change.
    pub(crate) fn admit(
        &mut self,
        rows: &[usize],
        ordinals: &[u64],
        classes: &[i32],
        decisions: &mut [Decision],
    ) -> Result<(), DuplicateMatch> {
        if let Some(new) = Self::ascending(rows, ordinals, classes)
            && self.is_disjoint(&new)
        {
            self.insert(new);
            for &row in rows {
                decisions[row] = match MatchClass::from_i32(classes[row]) {
                    MatchClass::Noop => Decision::Defer,
                    _ => Decision::Pass,
                };
            }
            return Ok(());
        }
        for &row in rows {
            let class = MatchClass::from_i32(classes[row]);
            decisions[row] = self.admit_row(class, ordinals[row])?;
        }
        Ok(())
    }

    /// `rows` as sets, if their ordinals ascend strictly. This is the order in which a scan meets
    /// them, so most batches that are not about duplicates are handled as sets.
    fn ascending(rows: &[usize], ordinals: &[u64], classes: &[i32]) -> Option<Self> {
        if !rows.is_sorted_by(|&a, &b| ordinals[a] < ordinals[b]) {
            return None;
        }
        let mut new = Self::default();
        let is_next = |a: usize, b: usize| ordinals[a] + 1 == ordinals[b];
        for run in rows.chunk_by(|&a, &b| is_next(a, b) && classes[a] == classes[b]) {
            let (first, last) = (run[0], run[run.len() - 1]);
            let set = match MatchClass::from_i32(classes[first]) {
                MatchClass::Ignore => continue,
                MatchClass::Noop => &mut new.noop,
                MatchClass::UnconditionalDelete => &mut new.delete,
                MatchClass::Action => &mut new.action,
            };
            set.insert_range(ordinals[first]..=ordinals[last]);
        }
        Some(new)
    }

    fn is_disjoint(&self, other: &Self) -> bool {
        let sets = [&self.action, &self.delete, &self.noop];
        let others = [&other.action, &other.delete, &other.noop];
        sets.iter()
            .all(|set| others.iter().all(|other| set.is_disjoint(other)))
    }

    fn insert(&mut self, new: Self) {
        self.action |= new.action;
        self.delete |= new.delete;
        self.noop |= new.noop;
    }

    fn admit_row(&mut self, class: MatchClass, ordinal: u64) -> Result<Decision, DuplicateMatch> {
        match class {
            MatchClass::Ignore => Ok(Decision::Pass),
            MatchClass::Action => {
                if !self.action.insert(ordinal) || self.delete.contains(ordinal) {
                    return Err(DuplicateMatch(ordinal));
                }
                self.superseded |= self.noop.contains(ordinal);
                Ok(Decision::Pass)
            }
            MatchClass::UnconditionalDelete => {
                if self.action.contains(ordinal) {
                    return Err(DuplicateMatch(ordinal));
                }
                if !self.delete.insert(ordinal) {
                    return Ok(Decision::Drop);
                }
                self.superseded |= self.noop.contains(ordinal);
                Ok(Decision::Pass)
            }
            MatchClass::Noop => {
                let first = !self.is_acted_on(ordinal) && self.noop.insert(ordinal);
                Ok(if first {
                    Decision::Defer
                } else {
                    Decision::Drop
                })
            }
        }
    }

    /// Whether a clause acts on the target row, so that no deferred match stands for it.
    pub(crate) fn is_acted_on(&self, ordinal: u64) -> bool {
        self.action.contains(ordinal) || self.delete.contains(ordinal)
    }

    /// Whether a row that was deferred has been acted on since.
    pub(crate) fn has_superseded(&self) -> bool {
        self.superseded
    }

    /// Forgets which rows were deferred: from the end of the input on only
    /// [`Self::is_acted_on`] is asked.
    pub(crate) fn forget_deferred(&mut self) {
        self.noop = RoaringTreemap::new();
    }

    /// Bytes on the heap, by the number and kind of containers. The bytes that roaring states
    /// itself are those of wider types than it stores.
    pub(crate) fn memory(&self) -> usize {
        [&self.action, &self.delete, &self.noop]
            .into_iter()
            .flat_map(RoaringTreemap::bitmaps)
            .map(|(_, bitmap)| {
                let statistics = bitmap.statistics();
                statistics.n_containers as usize * CONTAINER_OVERHEAD
                    + statistics.n_bitset_containers as usize * BITSET_BYTES
                    + statistics.n_values_array_containers as usize * ARRAY_VALUE_BYTES
                    + statistics.n_bytes_run_containers as usize
            })
            .sum()
    }

    /// Writes the sets in roaring's portable format.
    pub(crate) fn serialize(&self) -> io::Result<Vec<u8>> {
        let sets = [&self.action, &self.delete, &self.noop];
        let size: usize = sets.iter().map(|set| set.serialized_size()).sum();
        let mut bytes = Vec::with_capacity(size + 1);
        bytes.push(u8::from(self.superseded));
        for set in sets {
            set.serialize_into(&mut bytes)?;
        }
        Ok(bytes)
    }

    /// Reads what [`Self::serialize`] wrote.
    pub(crate) fn deserialize(bytes: &[u8]) -> io::Result<Self> {
        let (superseded, mut bytes) = bytes
            .split_first()
            .ok_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof))?;
        Ok(Self {
            action: RoaringTreemap::deserialize_from(&mut bytes)?,
            delete: RoaringTreemap::deserialize_from(&mut bytes)?,
            noop: RoaringTreemap::deserialize_from(&mut bytes)?,
            superseded: *superseded != 0,
        })
    }
}

/// Bytes that roaring needs for a container beside its values: key, tag, vector header.
const CONTAINER_OVERHEAD: usize = 48;

/// A bit for each of the 65,536 values of a container.
const BITSET_BYTES: usize = 8 * 1024;

/// 16 bits, in a vector that may be twice as long as it needs to be.
const ARRAY_VALUE_BYTES: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;
    use MatchClass::{Action, Noop, UnconditionalDelete};

    fn admit(
        matches: &mut FileMatches,
        rows: &[(MatchClass, u64)],
    ) -> Result<Vec<Decision>, DuplicateMatch> {
        let classes: Vec<_> = rows.iter().map(|(class, _)| *class as i32).collect();
        let ordinals: Vec<_> = rows.iter().map(|(_, ordinal)| *ordinal).collect();
        let mut decisions = vec![Decision::Pass; rows.len()];
        let all: Vec<_> = (0..rows.len()).collect();
        matches.admit(&all, &ordinals, &classes, &mut decisions)?;
        Ok(decisions)
    }

    #[test]
    fn two_actions_are_a_duplicate() {
        let rows = [(Action, 7), (Action, 7)];
        let result = admit(&mut FileMatches::default(), &rows);
        assert_eq!(result, Err(DuplicateMatch(7)));
    }

    #[test]
    fn two_actions_in_two_batches_are_a_duplicate() {
        let mut matches = FileMatches::default();
        admit(&mut matches, &[(Action, 6), (Action, 7)]).unwrap();
        let result = admit(&mut matches, &[(Action, 7), (Action, 8)]);
        assert_eq!(result, Err(DuplicateMatch(7)));
    }

    #[test]
    fn action_and_delete_are_a_duplicate_in_any_order() {
        for rows in [
            [(Action, 1), (UnconditionalDelete, 1)],
            [(UnconditionalDelete, 1), (Action, 1)],
        ] {
            let mut matches = FileMatches::default();
            assert_eq!(admit(&mut matches, &rows), Err(DuplicateMatch(1)));
            let mut matches = FileMatches::default();
            admit(&mut matches, &rows[..1]).unwrap();
            assert_eq!(admit(&mut matches, &rows[1..]), Err(DuplicateMatch(1)));
        }
    }

    #[test]
    fn several_deletes_pass_once() {
        let mut matches = FileMatches::default();
        let rows = [
            (UnconditionalDelete, 3),
            (UnconditionalDelete, 3),
            (Noop, 3),
        ];
        let decisions = admit(&mut matches, &rows).unwrap();
        assert_eq!(decisions, [Decision::Pass, Decision::Drop, Decision::Drop]);
        assert!(!matches.has_superseded());
    }

    #[test]
    fn an_action_supersedes_a_deferred_row() {
        let mut matches = FileMatches::default();
        let decisions = admit(&mut matches, &[(Noop, 5), (Noop, 5), (Action, 5)]).unwrap();
        assert_eq!(decisions, [Decision::Defer, Decision::Drop, Decision::Pass]);
        assert!(matches.has_superseded() && matches.is_acted_on(5));
    }

    #[test]
    fn ordinals_past_32_bits_are_rows_of_their_own() {
        let mut matches = FileMatches::default();
        let far = 1 << 40;
        admit(&mut matches, &[(Action, 5), (Action, far + 5)]).unwrap();
        let result = admit(&mut matches, &[(Action, far + 5)]);
        assert_eq!(result, Err(DuplicateMatch(far + 5)));
    }

    #[test]
    fn comes_back_from_bytes_as_it_was() {
        let mut matches = FileMatches::default();
        let dense = (0..10_000).map(|ordinal| (Noop, ordinal));
        let sparse = (0..500).map(|i| (Action, 1_000_000 + i * 70_001));
        admit(&mut matches, &dense.chain(sparse).collect::<Vec<_>>()).unwrap();
        admit(&mut matches, &[(UnconditionalDelete, 17)]).unwrap();
        let bytes = matches.serialize().unwrap();
        assert_eq!(FileMatches::deserialize(&bytes).unwrap(), matches);
        assert!(matches.has_superseded());
        assert!(FileMatches::deserialize(&bytes[..bytes.len() - 1]).is_err());
    }

    #[test]
    fn memory_grows_with_the_containers() {
        let mut matches = FileMatches::default();
        assert_eq!(matches.memory(), 0);
        let every_second: Vec<_> = (0..32_768).map(|i| (Noop, 2 * i)).collect();
        admit(&mut matches, &every_second).unwrap();
        assert!((8_192..10_000).contains(&matches.memory()));

        let mut matches = FileMatches::default();
        let all: Vec<_> = (0..65_536).map(|ordinal| (Noop, ordinal)).collect();
        admit(&mut matches, &all).unwrap();
        assert!((1..100).contains(&matches.memory()));
    }
}
