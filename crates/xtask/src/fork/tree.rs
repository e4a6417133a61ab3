//! Files by relative path, in memory, and how they come from and to a disk.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// Content by path. The paths are relative and lead to files.
pub type Tree = BTreeMap<PathBuf, Vec<u8>>;

/// What [`sync`] did.
#[derive(Debug, PartialEq)]
pub struct Changes {
    pub written: usize,
    pub removed: usize,
}

/// A file that must be there, as text.
pub fn text<'a>(tree: &'a Tree, path: &str) -> Result<&'a str> {
    let bytes = tree
        .get(Path::new(path))
        .with_context(|| format!("{path} is missing"))?;
    str::from_utf8(bytes).with_context(|| format!("{path} is not text"))
}

/// Puts all of `branch` into `tree`, under `dir`.
pub fn graft(tree: &mut Tree, dir: &str, branch: Tree) {
    let branch = branch.into_iter();
    tree.extend(branch.map(|(path, bytes)| (Path::new(dir).join(path), bytes)));
}

/// The files below `dir`, without what cargo has built there.
pub fn read(dir: &Path) -> Result<Tree> {
    let mut tree = Tree::new();
    for path in files(dir)? {
        if path.iter().any(|part| part == "target") {
            continue;
        }
        let full = dir.join(&path);
        let bytes = fs::read(&full).with_context(|| format!("cannot read {}", full.display()))?;
        tree.insert(path, bytes);
    }
    Ok(tree)
}

/// Makes the files below `dir` those of `tree`.
///
/// A file that has its content already is not touched: cargo goes by times and
/// would compile it again.
pub fn sync(tree: &Tree, dir: &Path) -> Result<Changes> {
    fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;

    let mut changes = Changes {
        written: 0,
        removed: 0,
    };
    for path in files(dir)? {
        if !tree.contains_key(&path) {
            let full = dir.join(&path);
            fs::remove_file(&full).with_context(|| format!("cannot remove {}", full.display()))?;
            changes.removed += 1;
        }
    }
    remove_empty_dirs(dir)?;

    for (path, bytes) in tree {
        let full = dir.join(path);
        if fs::read(&full).is_ok_and(|found| found == *bytes) {
            continue;
        }
        let parent = full.parent().expect("a file lies in a directory");
        fs::create_dir_all(parent)
            .and_then(|()| fs::write(&full, bytes))
            .with_context(|| format!("cannot write {}", full.display()))?;
        changes.written += 1;
    }
    Ok(changes)
}

/// The paths of everything below `dir` that is no directory, relative to it.
fn files(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut todo = vec![PathBuf::new()];
    while let Some(inner) = todo.pop() {
        let full = dir.join(&inner);
        let entries =
            fs::read_dir(&full).with_context(|| format!("cannot list {}", full.display()))?;
        for entry in entries {
            let entry = entry?;
            let path = inner.join(entry.file_name());
            match entry.file_type()?.is_dir() {
                true => todo.push(path),
                false => found.push(path),
            }
        }
    }
    Ok(found)
}

fn remove_empty_dirs(dir: &Path) -> Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove_empty_dirs(&entry.path())?;
            // Fails, as it should, where something is left.
            let _ = fs::remove_dir(entry.path());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    fn tree(files: &[(&str, &str)]) -> Tree {
        let entry = |(path, text): &(&str, &str)| (path.into(), text.as_bytes().to_vec());
        files.iter().map(entry).collect()
    }

    #[test]
    fn sync_writes_what_differs_and_removes_what_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        let old = tree(&[("same", "s"), ("a/changed", "1"), ("gone/deep/x", "x")]);
        let new = tree(&[("same", "s"), ("a/changed", "2"), ("b/added", "+")]);
        sync(&old, dir.path()).unwrap();
        let kept = dir.path().join("same");
        let long_ago = SystemTime::UNIX_EPOCH;
        fs::File::open(&kept)
            .unwrap()
            .set_modified(long_ago)
            .unwrap();

        let changes = sync(&new, dir.path()).unwrap();

        assert_eq!(
            changes,
            Changes {
                written: 2,
                removed: 1
            }
        );
        assert_eq!(read(dir.path()).unwrap(), new);
        assert!(!dir.path().join("gone").exists());
        assert_eq!(kept.metadata().unwrap().modified().unwrap(), long_ago);
    }

    #[test]
    fn what_cargo_has_built_is_not_read() {
        let dir = tempfile::tempdir().unwrap();
        let built = tree(&[("src/lib.rs", ""), ("target/debug/x", "")]);
        sync(&built, dir.path()).unwrap();
        assert_eq!(read(dir.path()).unwrap(), tree(&[("src/lib.rs", "")]));
    }
}
