//! `cargo xtask fork`: the pinned crate, patched, in `fork/`.
//!
//! ```text
//!  upstream.toml ──► fetch ──► package as published ─┐
//!                    (cargo)   (hash checked)        ├─► tree ──► fork/deltalake-core
//!  patches/…/series ─────────► hunks, checked ───────┘    │             │ path
//!  crates/merge ─────────────► version marked ────────────┴─────► fork/deltalake-merge
//! ```
//!
//! The whole tree is put together in memory. A hash or a patch that does not
//! fit is found before the first byte of `fork/` changes.

mod fetch;
mod inputs;
mod manifest;
mod patch;
mod tree;

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::cargo;
use inputs::Inputs;
use tree::Tree;

/// The package of ours that the patched crate depends on, and its directory
/// in the repository.
const MERGE: &str = "deltalake-merge";
pub const MERGE_DIR: &str = "crates/merge";

/// Makes `fork/`, unless it already is what the repository describes.
///
/// Messages go to standard error: other commands call this and own the output.
pub fn ensure() -> Result<()> {
    let root = cargo::root();
    let dir = root.join("fork");
    let stamp_file = dir.join(".stamp");

    let inputs = Inputs::read(&root)?;
    let stamp = inputs.stamp();
    if is_current(&dir, &stamp_file, &inputs, &stamp) {
        eprintln!("fork/ is up to date");
        return Ok(());
    }

    let package = fetch::package(&root, &inputs.upstream)?;
    let tree = assemble(&inputs, package)?;

    // Gone first and back last: what is cut short is made again.
    if stamp_file.exists() {
        fs::remove_file(&stamp_file).context("cannot remove fork/.stamp")?;
    }
    let changes = tree::sync(&tree, &dir)?;
    fs::write(&stamp_file, &stamp).context("cannot write fork/.stamp")?;

    eprintln!(
        "fork/ is {} {} with {} patches ({} files written, {} removed)",
        inputs.upstream.name,
        inputs.upstream.version,
        inputs.patches.len(),
        changes.written,
        changes.removed,
    );
    Ok(())
}

fn is_current(dir: &Path, stamp_file: &Path, inputs: &Inputs, stamp: &str) -> bool {
    fs::read_to_string(stamp_file).is_ok_and(|found| found == stamp)
        && [&inputs.upstream.name, MERGE]
            .iter()
            .all(|package| dir.join(package).join("Cargo.toml").is_file())
}

/// Everything that belongs into `fork/`, given the unpatched package.
fn assemble(inputs: &Inputs, mut package: Tree) -> Result<Tree> {
    patch_all(inputs, &mut package)?;

    let mut merge = inputs.merge.clone();
    let version_marked = manifest::mark_version(tree::text(&merge, "Cargo.toml")?)
        .with_context(|| format!("{MERGE_DIR}/Cargo.toml"))?;
    merge.insert("Cargo.toml".into(), version_marked.into_bytes());

    let mut fork = inputs.notices.clone();
    tree::graft(&mut fork, &inputs.upstream.name, package);
    tree::graft(&mut fork, MERGE, merge);
    Ok(fork)
}

/// `cargo publish` keeps the manifest of the git tree under this name and puts
/// a normalised one in its place.
const GIT_MANIFEST: &str = "Cargo.toml.orig";

/// Applies the series, then carries what it adds to the git manifest over to
/// the one cargo reads.
fn patch_all(inputs: &Inputs, package: &mut Tree) -> Result<()> {
    let before = tree::text(package, GIT_MANIFEST)?.to_owned();
    for (name, text) in &inputs.patches {
        patch_one(inputs, text, package)
            .with_context(|| format!("{}/{name} does not apply", inputs.patch_dir))?;
    }
    let after = tree::text(package, GIT_MANIFEST)?;
    let published = tree::text(package, "Cargo.toml")?;
    let carried = manifest::carry_over(&before, after, published)
        .with_context(|| format!("{}/Cargo.toml as patched", inputs.upstream.path))?;
    package.insert("Cargo.toml".into(), carried.into_bytes());
    Ok(())
}

fn patch_one(inputs: &Inputs, text: &str, package: &mut Tree) -> Result<()> {
    for file in patch::parse(text)? {
        let path = match inputs.upstream.path_in_package(file.path)? {
            "Cargo.toml" => GIT_MANIFEST,
            path => path,
        };
        let old = match package.contains_key(Path::new(path)) {
            exists if exists == file.is_new => bail!(
                "{}: the patch {} it, but the package {} it",
                file.path,
                if file.is_new { "adds" } else { "changes" },
                if exists { "has" } else { "lacks" },
            ),
            true => tree::text(package, path)?,
            false => "",
        };
        let new = file.apply(old).with_context(|| file.path.to_owned())?;
        package.insert(path.into(), new.into_bytes());
    }
    Ok(())
}

#[cfg(test)]
mod tests;
