//! What `fork/` is made from, and the stamp that says whether it still is.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use sha2::{Digest, Sha256};

use super::MERGE_DIR;
use super::tree::{self, Tree};

/// Raise it when the same inputs shall give another `fork/`.
const RECIPE: u32 = 1;

/// The lines every patch begins with, so that its reader knows what it is for
/// and whether it may go one day.
const HEADINGS: [&str; 4] = ["What:", "Why:", "Forwarded:", "Bug:"];

/// The `[crate]` entry of `upstream.toml`.
#[derive(Clone, Deserialize)]
pub struct Upstream {
    pub name: String,
    pub version: String,
    pub sha256: String,
    /// The package's place in a delta-rs checkout.
    pub path: String,
}

#[derive(Clone)]
pub struct Inputs {
    pub upstream: Upstream,
    /// From the root, for messages.
    pub patch_dir: String,
    /// File name and text, in the order of the series.
    pub patches: Vec<(String, String)>,
    /// The files of `crates/merge`.
    pub merge: Tree,
    /// `LICENSE` and `NOTICE`, where the repository has them.
    pub notices: Tree,
}

impl Upstream {
    fn read(root: &Path) -> Result<Self> {
        #[derive(Deserialize)]
        struct File {
            #[serde(rename = "crate")]
            upstream: Upstream,
        }
        let text = read_text(root, "upstream.toml")?;
        let file: File = toml::from_str(&text).context("cannot read upstream.toml")?;
        Ok(file.upstream)
    }

    /// Turns a path written from the delta-rs root into one in the package.
    pub fn path_in_package<'a>(&self, path: &'a str) -> Result<&'a str> {
        match path
            .strip_prefix(&self.path)
            .and_then(|rest| rest.strip_prefix('/'))
        {
            Some(rest) if rest.split('/').all(|part| !matches!(part, "" | "." | "..")) => Ok(rest),
            _ => bail!(
                "{path}: not a file of {}, which lies in {}/",
                self.name,
                self.path
            ),
        }
    }
}

impl Inputs {
    pub fn read(root: &Path) -> Result<Self> {
        let upstream = Upstream::read(root)?;
        let patch_dir = format!("patches/{}-{}", upstream.name, upstream.version);
        let series = read_text(root, &format!("{patch_dir}/series"))?;
        let patches = series
            .lines()
            .map(str::trim)
            .filter(|line| !line.is_empty() && !line.starts_with('#'))
            .map(|name| {
                let text = read_text(root, &format!("{patch_dir}/{name}"))?;
                check_headings(&text).with_context(|| format!("{patch_dir}/{name}"))?;
                Ok((name.to_owned(), text))
            })
            .collect::<Result<_>>()?;

        let mut notices = Tree::new();
        for name in ["LICENSE", "NOTICE"] {
            let path = root.join(name);
            if path.exists() {
                let bytes = fs::read(&path).with_context(|| format!("cannot read {name}"))?;
                notices.insert(name.into(), bytes);
            }
        }

        Ok(Self {
            upstream,
            patch_dir,
            patches,
            merge: tree::read(&root.join(MERGE_DIR))?,
            notices,
        })
    }

    /// A hash over everything that decides what `fork/` contains.
    pub fn stamp(&self) -> String {
        let mut hash = Sha256::new();
        // Each part with its length, so that none can pass for two.
        let mut add = |part: &[u8]| {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        };
        add(&RECIPE.to_le_bytes());
        let Upstream {
            name,
            version,
            sha256,
            path,
        } = &self.upstream;
        for field in [name, version, sha256, path] {
            add(field.as_bytes());
        }
        for (name, text) in &self.patches {
            add(name.as_bytes());
            add(text.as_bytes());
        }
        for tree in [&self.merge, &self.notices] {
            add(&(tree.len() as u64).to_le_bytes());
            for (path, bytes) in tree {
                add(path.as_os_str().as_encoded_bytes());
                add(bytes);
            }
        }
        hex(&hash.finalize())
    }
}

fn check_headings(patch: &str) -> Result<()> {
    let header = patch
        .lines()
        .take_while(|line| !line.starts_with("diff --git "));
    for heading in HEADINGS {
        if !header.clone().any(|line| line.starts_with(heading)) {
            bail!("the text before the diff has no line `{heading} …`; see patches/README.md");
        }
    }
    Ok(())
}

fn read_text(root: &Path, path: &str) -> Result<String> {
    fs::read_to_string(root.join(path)).with_context(|| format!("cannot read {path}"))
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
