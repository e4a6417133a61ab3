//! Gets the pinned crate through cargo, so that whatever mirror, proxy or
//! cache the user has set up for cargo serves here too.

use std::ffi::OsStr;
use std::fs;
use std::io::{Cursor, Read};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use flate2::read::GzDecoder;
use sha2::{Digest, Sha256};

use super::inputs::{Upstream, hex};
use super::tree::Tree;
use crate::cargo::{self, cargo};

/// The files of the package as published.
pub fn package(root: &Path, upstream: &Upstream) -> Result<Tree> {
    let path = download(root, upstream)
        .with_context(|| format!("cannot get {} {}", upstream.name, upstream.version))?;
    let bytes = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
    check(&bytes, upstream).with_context(|| path.display().to_string())?;
    unpack(&bytes, upstream).with_context(|| format!("cannot unpack {}", path.display()))
}

/// Has cargo download the crate, and says where its archive lies.
///
/// Cargo downloads for a project: this one depends on the crate alone and
/// starts with the repository's lock file, so that its dependencies are the
/// ones the workspace needs anyway.
fn download(root: &Path, upstream: &Upstream) -> Result<PathBuf> {
    let project = tempfile::tempdir().context("cannot make a temporary directory")?;
    let Upstream { name, version, .. } = upstream;
    let manifest = format!(
        r#"[package]
name = "fetch"
version = "0.0.0"
edition = "2024"

[lib]
path = "lib.rs"

[workspace]

[dependencies]
{name} = {{ version = "={version}", default-features = false }}
"#
    );
    fs::write(project.path().join("Cargo.toml"), manifest)?;
    fs::write(project.path().join("lib.rs"), "")?;
    fs::copy(root.join("Cargo.lock"), project.path().join("Cargo.lock"))
        .context("cannot copy Cargo.lock")?;

    let metadata = cargo::parse_metadata(
        cargo()
            .args(["metadata", "--format-version=1"])
            .args(["--filter-platform", "host-tuple"])
            .arg("--manifest-path")
            .arg(project.path().join("Cargo.toml")),
    )?;
    let package = metadata
        .packages
        .iter()
        .find(|package| package.name == *name && package.version == *version)
        .with_context(|| format!("cargo resolved no {name} {version}"))?;
    archive(package.dir())
}

/// `registry/src/<index>/<name>` was unpacked from
/// `registry/cache/<index>/<name>.crate`.
fn archive(unpacked: &Path) -> Result<PathBuf> {
    let parts: Vec<&OsStr> = unpacked.iter().rev().take(3).collect();
    let [name, index, src] = parts[..] else {
        anyhow::bail!("no registry directory: {}", unpacked.display());
    };
    ensure!(
        src == "src",
        "cargo took the crate from {}, which is no registry and has no archive to check; \
         if a directory replaces crates.io in cargo's configuration, remove that",
        unpacked.display(),
    );
    let registry = unpacked.ancestors().nth(3).expect("three parts were found");
    let mut file = name.to_owned();
    file.push(".crate");
    Ok(registry.join("cache").join(index).join(file))
}

fn check(bytes: &[u8], upstream: &Upstream) -> Result<()> {
    let found = hex(&Sha256::digest(bytes));
    ensure!(
        found == upstream.sha256,
        "the archive is not the one upstream.toml names\n  expected SHA-256 {}\n  found    SHA-256 {found}",
        upstream.sha256,
    );
    Ok(())
}

fn unpack(bytes: &[u8], upstream: &Upstream) -> Result<Tree> {
    let top = format!("{}-{}", upstream.name, upstream.version);
    let mut tree = Tree::new();
    let mut archive = tar::Archive::new(GzDecoder::new(Cursor::new(bytes)));
    for entry in archive.entries()? {
        let mut entry = entry?;
        if entry.header().entry_type().is_dir() {
            continue;
        }
        let path = entry.path()?.into_owned();
        let inside = path
            .strip_prefix(&top)
            .with_context(|| format!("{} lies outside of {top}/", path.display()))?
            .to_owned();
        let mut content = Vec::new();
        entry.read_to_end(&mut content)?;
        tree.insert(inside, content);
    }
    Ok(tree)
}

#[cfg(test)]
mod tests {
    use flate2::{Compression, write::GzEncoder};

    use super::*;

    fn upstream() -> Upstream {
        Upstream {
            name: "core".into(),
            version: "1.0.0".into(),
            sha256: "00".into(),
            path: "crates/core".into(),
        }
    }

    #[test]
    fn the_archive_lies_beside_the_unpacked_crate() {
        let found = archive(Path::new("/home/u/.cargo/registry/src/index-1/core-1.0.0")).unwrap();
        let expected = "/home/u/.cargo/registry/cache/index-1/core-1.0.0.crate";
        assert_eq!(found, Path::new(expected));
    }

    #[test]
    fn a_vendored_crate_has_no_archive() {
        let error = archive(Path::new("/home/u/project/vendor/core")).unwrap_err();
        assert!(error.to_string().contains("/home/u/project/vendor/core"));
    }

    #[test]
    fn a_wrong_hash_names_both() {
        let error = check(b"abc", &upstream()).unwrap_err().to_string();
        assert!(error.contains("expected SHA-256 00"), "{error}");
        assert!(
            error.contains("found    SHA-256 ba7816bf8f01cfea"),
            "{error}"
        );
    }

    #[test]
    fn the_archives_top_directory_is_taken_off() {
        let mut archive = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
        let mut header = tar::Header::new_gnu();
        header.set_size(3);
        archive
            .append_data(&mut header, "core-1.0.0/src/lib.rs", &b"abc"[..])
            .unwrap();
        let bytes = archive.into_inner().unwrap().finish().unwrap();

        let tree = unpack(&bytes, &upstream()).unwrap();
        assert_eq!(tree, Tree::from([("src/lib.rs".into(), b"abc".to_vec())]));
    }
}
