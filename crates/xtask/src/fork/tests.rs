use super::inputs::Upstream;
use super::*;

fn package() -> Tree {
    let file = |path: &str, text: &str| (path.into(), text.as_bytes().to_vec());
    Tree::from([
        file(
            "Cargo.toml",
            "[package]\nname = \"core\"\n\n[dependencies]\n\n[features]\n",
        ),
        file(
            "Cargo.toml.orig",
            "[package]\nname = \"core\"\n[dependencies]\n",
        ),
        file("src/lib.rs", "one\ntwo\n"),
    ])
}

fn inputs(patches: &[(&str, &str)]) -> Inputs {
    let merge = "[package]\nname = \"deltalake-merge\"\nversion = \"0.1.0\"\n";
    Inputs {
        upstream: Upstream {
            name: "core".into(),
            version: "1.0.0".into(),
            sha256: "00".into(),
            path: "crates/core".into(),
        },
        patch_dir: "patches/core-1.0.0".into(),
        patches: patches
            .iter()
            .map(|(name, text)| (name.to_string(), text.to_string()))
            .collect(),
        merge: Tree::from([("Cargo.toml".into(), merge.as_bytes().to_vec())]),
        notices: Tree::from([("NOTICE".into(), b"notice".to_vec())]),
    }
}

fn diff(path: &str, hunks: &str) -> String {
    format!("--- a/{path}\n+++ b/{path}\n{hunks}")
}

fn refused(patch: &str) -> String {
    let inputs = inputs(&[("0001-x.patch", patch)]);
    format!("{:#}", assemble(&inputs, package()).unwrap_err())
}

#[test]
fn patches_apply_on_top_of_each_other() {
    let first = diff("crates/core/src/lib.rs", "@@ -1,0 +2 @@\n+half\n");
    let second = diff(
        "crates/core/src/lib.rs",
        "@@ -2,2 +2 @@\n-half\n-two\n+rest\n",
    );
    let inputs = inputs(&[("0001", &first), ("0002", &second)]);
    let fork = assemble(&inputs, package()).unwrap();
    assert_eq!(tree::text(&fork, "core/src/lib.rs").unwrap(), "one\nrest\n");
    assert_eq!(tree::text(&fork, "NOTICE").unwrap(), "notice");
}

#[test]
fn a_manifest_patch_reaches_both_manifests() {
    let hook = "deltalake-merge = { version = \"0.1.0\", path = \"../merge\" }";
    let patch = diff(
        "crates/core/Cargo.toml",
        &format!("@@ -3,0 +4 @@\n+{hook}\n"),
    );
    let fork = assemble(&inputs(&[("0001", &patch)]), package()).unwrap();

    assert!(
        tree::text(&fork, "core/Cargo.toml.orig")
            .unwrap()
            .ends_with(&format!("{hook}\n"))
    );
    let published: toml::Table = tree::text(&fork, "core/Cargo.toml")
        .unwrap()
        .parse()
        .unwrap();
    let path = &published["dependencies"]["deltalake-merge"]["path"];
    assert_eq!(path.as_str(), Some("../deltalake-merge"));
    let merge = tree::text(&fork, "deltalake-merge/Cargo.toml").unwrap();
    assert!(merge.contains("version = \"0.1.0+fork\""), "{merge}");
}

#[test]
fn a_patch_that_does_not_fit_is_named_with_file_and_hunk() {
    let error = refused(&diff("crates/core/src/lib.rs", "@@ -2 +2 @@\n-tow\n+2\n"));
    for part in [
        "patches/core-1.0.0/0001-x.patch does not apply",
        "crates/core/src/lib.rs",
        "hunk 1 (@@ -2 +2 @@)",
        r#"expected "tow\n""#,
        r#"found    "two\n""#,
    ] {
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn files_outside_of_the_package_are_refused() {
    for path in [
        "python/src/lib.rs",
        "crates/corex/a.rs",
        "crates/core/../x.rs",
        "crates/core",
    ] {
        let error = refused(&diff(path, "@@ -0,0 +1 @@\n+x\n"));
        assert!(
            error.contains(&format!("{path}: not a file of core")),
            "{error}"
        );
    }
}

#[test]
fn a_file_is_added_or_changed_as_the_patch_says() {
    let added = "--- /dev/null\n+++ b/crates/core/src/a.rs\n@@ -0,0 +1 @@\n+a\n";
    let fork = assemble(&inputs(&[("0001", added)]), package()).unwrap();
    assert_eq!(tree::text(&fork, "core/src/a.rs").unwrap(), "a\n");

    let exists = refused("--- /dev/null\n+++ b/crates/core/src/lib.rs\n@@ -0,0 +1 @@\n+a\n");
    assert!(
        exists.contains("the patch adds it, but the package has it"),
        "{exists}"
    );
    let lacks = refused(&diff("crates/core/src/a.rs", "@@ -1 +1 @@\n-a\n+b\n"));
    assert!(
        lacks.contains("the patch changes it, but the package lacks it"),
        "{lacks}"
    );
}

#[test]
fn the_stamp_covers_every_input() {
    let base = inputs(&[("0001", "a"), ("0002", "b")]);
    let stamp = base.stamp();
    assert_eq!(stamp, base.clone().stamp());

    let changed = |change: fn(&mut Inputs)| {
        let mut inputs = base.clone();
        change(&mut inputs);
        inputs.stamp()
    };
    let others = [
        changed(|inputs| inputs.upstream.version = "1.0.1".into()),
        changed(|inputs| inputs.upstream.sha256 = "01".into()),
        changed(|inputs| inputs.patches[0].1 = "A".into()),
        changed(|inputs| inputs.patches.swap(0, 1)),
        changed(|inputs| drop(inputs.patches.pop())),
        changed(|inputs| drop(inputs.merge.insert("src/lib.rs".into(), Vec::new()))),
        changed(|inputs| drop(inputs.notices.insert("NOTICE".into(), Vec::new()))),
    ];
    for (index, other) in others.iter().enumerate() {
        assert_ne!(*other, stamp, "change {index}");
    }
}
