//! The two manifests that are not taken as they are.
//!
//! Patches are written against the `Cargo.toml` of the git tree. Cargo reads
//! the normalised one it made when the crate was published, so what a patch
//! adds to the first is added to the second: dependencies, and features.

use anyhow::{Context, Result, bail, ensure};
use toml::{Table, Value};
use toml_edit::DocumentMut;

use super::MERGE;

/// Where patches find `deltalake-merge`, seen from the patched package, and
/// where it lies in `fork/`.
const MERGE_IN_GIT: &str = "../merge";
const MERGE_IN_FORK: &str = "../deltalake-merge";

/// `published`, with what came into the git manifest between `before` and
/// `after`.
///
/// # Errors
/// A dependency was changed, or something removed, or a third table touched:
/// the normalised form of these depends on a workspace that is not here.
pub fn carry_over(before: &str, after: &str, published: &str) -> Result<String> {
    let before: Table = before.parse()?;
    let after: Table = after.parse()?;
    if before == after {
        return Ok(published.to_owned());
    }
    if let Some(name) = before.keys().chain(after.keys()).find(|name| {
        !matches!(name.as_str(), "dependencies" | "features")
            && before.get(*name) != after.get(*name)
    }) {
        bail!("[{name}] is changed; only [dependencies] and [features] are carried over");
    }

    let mut published: DocumentMut = published.parse()?;
    for change in changes(&before, &after, "dependencies")? {
        let name = change.name;
        ensure!(
            change.is_new,
            "dependency `{name}` is changed; only new ones are carried over"
        );
        let entry =
            dependency(name, change.value).with_context(|| format!("dependency `{name}`"))?;
        published["dependencies"][name] = toml_edit::Item::Table(entry);
    }
    for change in changes(&before, &after, "features")? {
        published["features"][change.name] = toml_edit::value(editable(change.value)?);
    }
    Ok(published.to_string())
}

/// A manifest of `deltalake-merge`, with `+fork` at the end of its version.
///
/// The root workspace holds the package twice: as its member, and as the copy
/// the patched crate depends on. `Cargo.lock` tells path packages apart by name
/// and version alone. Build metadata makes another version, and one that every
/// requirement takes as before.
pub fn mark_version(manifest: &str) -> Result<String> {
    let mut manifest: DocumentMut = manifest.parse()?;
    let version = manifest["package"]["version"]
        .as_str()
        .context("no version of its own, and the copy in fork/ has no workspace to inherit from")?;
    let marked = format!("{version}+fork");
    manifest["package"]["version"] = toml_edit::value(marked);
    Ok(manifest.to_string())
}

struct Change<'a> {
    name: &'a str,
    value: &'a Value,
    is_new: bool,
}

/// The entries of one table that are new, or other than before.
fn changes<'a>(before: &Table, after: &'a Table, table: &str) -> Result<Vec<Change<'a>>> {
    let entries = |manifest: &'a Table| manifest.get(table).and_then(Value::as_table);
    let before = before.get(table).and_then(Value::as_table);
    let find = |name: &str| before.and_then(|before| before.get(name));

    if let Some(gone) = before.and_then(|before| {
        before
            .keys()
            .find(|name| !entries(after).is_some_and(|after| after.contains_key(*name)))
    }) {
        bail!("`{gone}` is removed from [{table}]; only additions are carried over");
    }
    Ok(entries(after)
        .into_iter()
        .flatten()
        .filter(|(name, value)| find(name) != Some(value))
        .map(|(name, value)| Change {
            name,
            value,
            is_new: find(name).is_none(),
        })
        .collect())
}

/// The entry of a new dependency, as it must be in `fork/`.
fn dependency(name: &str, value: &Value) -> Result<toml_edit::Table> {
    let mut entry = match editable(value)? {
        toml_edit::Value::InlineTable(table) => table.into_table(),
        version => toml_edit::Table::from_iter([("version", version)]),
    };
    ensure!(
        !entry.contains_key("workspace"),
        "it is inherited from a workspace; write it out"
    );
    if let Some(path) = entry.get_mut("path") {
        ensure!(
            name == MERGE && path.as_str() == Some(MERGE_IN_GIT),
            "its path leads out of fork/; only {MERGE} at {MERGE_IN_GIT} is there",
        );
        *path = toml_edit::value(MERGE_IN_FORK);
    }
    Ok(entry)
}

fn editable(value: &Value) -> Result<toml_edit::Value> {
    Ok(value.to_string().parse()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIT: &str = r#"
[package]
name = "core"
version.workspace = true

[dependencies]
arrow = { workspace = true }

[features]
datafusion = ["dep:datafusion"]
"#;

    const PUBLISHED: &str = r#"# normalised
[package]
name = "core"
version = "1.0.0"

[features]
datafusion = ["dep:datafusion"]
json = []

[dependencies.arrow]
version = "59"

[dependencies.bytes]
version = "1"
"#;

    fn with(from: &str, to: &str) -> String {
        assert!(GIT.contains(from));
        GIT.replace(from, to)
    }

    fn carried(after: &str) -> Table {
        carry_over(GIT, after, PUBLISHED).unwrap().parse().unwrap()
    }

    fn refused(after: &str) -> String {
        format!("{:#}", carry_over(GIT, after, PUBLISHED).unwrap_err())
    }

    #[test]
    fn an_unchanged_manifest_stays_byte_for_byte() {
        assert_eq!(carry_over(GIT, GIT, PUBLISHED).unwrap(), PUBLISHED);
    }

    #[test]
    fn the_hook_is_carried_over() {
        let after = with(
            "arrow = { workspace = true }",
            "arrow = { workspace = true }\n\
             deltalake-merge = { version = \"0.1.0\", path = \"../merge\", optional = true }",
        )
        .replace(
            "[\"dep:datafusion\"]",
            "[\"dep:datafusion\", \"dep:deltalake-merge\"]",
        );

        let mut expected: Table = PUBLISHED.parse().unwrap();
        let hook: Table = r#"
            [dependencies.deltalake-merge]
            version = "0.1.0"
            path = "../deltalake-merge"
            optional = true"#
            .parse()
            .unwrap();
        expected["dependencies"]
            .as_table_mut()
            .unwrap()
            .extend(hook["dependencies"].as_table().unwrap().clone());
        expected["features"]["datafusion"]
            .as_array_mut()
            .unwrap()
            .push("dep:deltalake-merge".into());
        assert_eq!(carried(&after), expected);
    }

    #[test]
    fn a_dependency_may_be_a_bare_version() {
        let after = with("[features]", "roaring = \"0.11\"\n[features]");
        let version = &carried(&after)["dependencies"]["roaring"]["version"];
        assert_eq!(version.as_str(), Some("0.11"));
    }

    #[test]
    fn what_cannot_be_carried_over_is_refused() {
        let changed = refused(&with("{ workspace = true }", "\"58\""));
        assert!(changed.contains("`arrow` is changed"), "{changed}");

        let removed = refused(&with("arrow = { workspace = true }\n", ""));
        assert!(
            removed.contains("`arrow` is removed from [dependencies]"),
            "{removed}"
        );

        let other = refused(&with("[features]", "[lib]\ndoctest = false\n[features]"));
        assert!(other.contains("[lib] is changed"), "{other}");

        let inherited = refused(&with("[features]", "x = { workspace = true }\n[features]"));
        assert!(inherited.contains("`x`: it is inherited"), "{inherited}");

        let outside = refused(&with("[features]", "x = { path = \"../x\" }\n[features]"));
        assert!(
            outside.contains("`x`: its path leads out of fork/"),
            "{outside}"
        );
    }

    #[test]
    fn the_version_is_marked() {
        let marked = mark_version("[package]\nversion = \"0.1.0\" # kept\n").unwrap();
        assert!(
            marked.starts_with("[package]\nversion = \"0.1.0+fork\""),
            "{marked}"
        );
        let inherited = mark_version("[package]\nversion.workspace = true\n").unwrap_err();
        assert!(inherited.to_string().contains("no version of its own"));
    }
}
