//! The same worker on the published deltalake-core.
//!
//! A workspace is generated in the target directory whose only package compiles the worker's
//! sources where they lie. Its manifests are the repository's own with the fork taken out, and its
//! lockfile starts as a copy, so every dependency has the version, the features and the profile
//! it has in the fork's build and is compiled once for both.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use toml_edit::{Array, ArrayOfTables, DocumentMut, Item, Table, value};

/// The package and the binary. It must not be called like the fork's worker, since both end up in
/// one target directory.
pub(super) const PACKAGE: &str = "merge-demo-baseline";

/// Writes the workspace into `dir` and returns its manifest.
pub(super) fn generate(root: &Path, dir: &Path) -> Result<PathBuf> {
    let package = dir.join("worker");
    fs::create_dir_all(&package)
        .with_context(|| format!("{} cannot be made", package.display()))?;

    let workspace = workspace_manifest(parse(&root.join("Cargo.toml"))?);
    let worker = package_manifest(
        parse(&root.join("benches/Cargo.toml"))?,
        &parse(&root.join("crates/merge/Cargo.toml"))?,
        &root.join("benches/src/bin/merge-demo/main.rs"),
    )?;
    let manifest = dir.join("Cargo.toml");
    write(&manifest, &workspace.to_string())?;
    write(&package.join("Cargo.toml"), &worker.to_string())?;
    write(&dir.join("Cargo.lock"), &read(&root.join("Cargo.lock"))?)?;
    Ok(manifest)
}

/// Fails if cargo has picked other versions than the fork's build has, which would make the two
/// incomparable.
pub(super) fn check_versions(root: &Path, dir: &Path) -> Result<()> {
    let locked = packages(&root.join("Cargo.lock"))?;
    let others: Vec<String> = packages(&dir.join("Cargo.lock"))?
        .into_iter()
        .filter(|package| !locked.contains(package))
        .map(|(name, version)| format!("{name} {version}"))
        .filter(|package| !package.starts_with(PACKAGE))
        .collect();
    ensure!(
        others.is_empty(),
        "the baseline would be built with packages that are not in Cargo.lock: {}",
        others.join(", ")
    );
    Ok(())
}

/// The root manifest with the worker as its only member and deltalake-core as published.
fn workspace_manifest(mut manifest: DocumentMut) -> DocumentMut {
    manifest.remove("patch");
    let workspace = &mut manifest["workspace"];
    workspace["members"] = value(Array::from_iter(["worker"]));
    if let Some(workspace) = workspace.as_table_mut() {
        workspace.remove("exclude");
        if let Some(dependencies) = workspace.get_mut("dependencies") {
            remove(dependencies, "deltalake-merge");
        }
    }
    manifest
}

/// The worker's manifest without the feature `fork` and what only the benches need.
///
/// It also names what deltalake-merge depends on, unused as it is here: features that only that
/// package turns on would otherwise be off, and all that depends on them compiled again.
fn package_manifest(
    mut manifest: DocumentMut,
    merge: &DocumentMut,
    main: &Path,
) -> Result<DocumentMut> {
    manifest["package"]["name"] = value(PACKAGE);
    manifest["features"]["default"] = value(Array::new());
    manifest.remove("dev-dependencies");
    manifest.remove("bench");

    let inherited = merge.get("dependencies").and_then(Item::as_table_like);
    let inherited = inherited.context("crates/merge/Cargo.toml has no [dependencies]")?;
    for (name, dependency) in inherited.iter() {
        let dependencies = &mut manifest["dependencies"];
        if dependencies.get(name).is_none() {
            dependencies[name] = dependency.clone();
        }
    }

    let mut binary = Table::new();
    binary["name"] = value(PACKAGE);
    binary["path"] = value(
        main.to_str()
            .context("the repository's path is not UTF-8")?,
    );
    let mut binaries = ArrayOfTables::new();
    binaries.push(binary);
    manifest["bin"] = Item::ArrayOfTables(binaries);
    Ok(manifest)
}

fn remove(table: &mut Item, key: &str) {
    if let Some(table) = table.as_table_like_mut() {
        table.remove(key);
    }
}

fn packages(lockfile: &Path) -> Result<BTreeSet<(String, String)>> {
    let lock = parse(lockfile)?;
    let packages = lock.get("package").and_then(Item::as_array_of_tables);
    let packages = packages.with_context(|| format!("{} is empty", lockfile.display()))?;
    let field = |package: &Table, name| {
        let value = package.get(name).and_then(Item::as_str);
        value.unwrap_or_default().to_string()
    };
    Ok(packages
        .iter()
        .map(|package| (field(package, "name"), field(package, "version")))
        .collect())
}

fn parse(path: &Path) -> Result<DocumentMut> {
    read(path)?
        .parse()
        .with_context(|| format!("{} is no valid TOML", path.display()))
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("{} cannot be read", path.display()))
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("{} cannot be written", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_workspace_has_the_worker_alone_and_no_patch() {
        let root = r#"
            [workspace]
            members = ["crates/merge", "benches"]
            exclude = ["crates/xtask"]
            [workspace.dependencies]
            arrow = "59"
            deltalake-merge = { path = "crates/merge" }
            [patch.crates-io]
            deltalake-core = { path = "fork/deltalake-core" }
            [profile.release]
            debug = 1
        "#;
        let manifest = workspace_manifest(root.parse().unwrap());
        assert_eq!(
            manifest["workspace"]["members"].to_string().trim(),
            r#"["worker"]"#
        );
        assert!(manifest["workspace"].get("exclude").is_none());
        assert!(manifest.get("patch").is_none());
        let dependencies = manifest["workspace"]["dependencies"].as_table().unwrap();
        assert!(dependencies.contains_key("arrow"));
        assert!(!dependencies.contains_key("deltalake-merge"));
        assert_eq!(
            manifest["profile"]["release"]["debug"].as_integer(),
            Some(1)
        );
    }

    #[test]
    fn the_package_has_the_features_of_the_fork_but_not_its_code() {
        let benches = r#"
            [package]
            name = "merge-bench"
            [features]
            default = ["fork"]
            fork = []
            [dependencies]
            arrow = { workspace = true }
            [dev-dependencies]
            deltalake-merge = { workspace = true }
            [[bench]]
            name = "validator"
        "#;
        let merge = r#"
            [dependencies]
            arrow = "59"
            roaring = { version = "0.11", features = ["simd"] }
        "#;
        let (benches, merge) = (benches.parse().unwrap(), merge.parse().unwrap());
        let manifest = package_manifest(benches, &merge, Path::new("/repo/main.rs")).unwrap();
        assert_eq!(manifest["package"]["name"].as_str(), Some(PACKAGE));
        assert!(
            manifest["features"]["default"]
                .as_array()
                .unwrap()
                .is_empty()
        );
        assert!(manifest.get("dev-dependencies").is_none());
        assert!(manifest.get("bench").is_none());
        assert_eq!(
            manifest["dependencies"]["arrow"]["workspace"].as_bool(),
            Some(true)
        );
        assert_eq!(
            manifest["dependencies"]["roaring"]["version"].as_str(),
            Some("0.11")
        );
        let binaries = manifest["bin"].as_array_of_tables().unwrap();
        assert_eq!(
            binaries.get(0).unwrap()["path"].as_str(),
            Some("/repo/main.rs")
        );
        manifest.to_string().parse::<DocumentMut>().unwrap();
    }

    #[test]
    fn another_version_in_the_lockfile_is_refused() {
        let root = tempfile::tempdir().unwrap();
        let dir = tempfile::tempdir().unwrap();
        let lock = |version: &str| {
            format!(
                "[[package]]\nname = \"arrow\"\nversion = \"{version}\"\n\
                 [[package]]\nname = \"{PACKAGE}\"\nversion = \"0.1.0\"\n"
            )
        };
        write(&root.path().join("Cargo.lock"), &lock("59.3.2")).unwrap();
        write(&dir.path().join("Cargo.lock"), &lock("59.3.2")).unwrap();
        check_versions(root.path(), dir.path()).unwrap();

        write(&dir.path().join("Cargo.lock"), &lock("59.3.3")).unwrap();
        let error = check_versions(root.path(), dir.path()).unwrap_err();
        assert!(error.to_string().contains("arrow 59.3.3"), "{error}");
    }
}
