//! Unified diffs as `git diff -U0` writes them, applied to the letter.
//!
//! The base is pinned by hash, so a hunk fits exactly where it says or does
//! not fit: no fuzz, no offset, on either side.
//!
//! ```text
//! What: …                        text before the first `diff --git`
//! diff --git a/x b/x
//! --- a/x                        a file
//! +++ b/x
//! @@ -4,2 +4 @@                  a hunk: old lines 4 and 5 are replaced
//! -the fourth line
//! -the fifth line
//! +one line for both
//! @@ -9,0 +9,1 @@                a hunk: one line goes in *after* old line 9
//! +the ninth line of the new file
//! ```

use anyhow::{Context, Result, bail, ensure};

/// What a patch does to one file.
#[derive(Debug)]
pub struct FilePatch<'a> {
    /// From the root of the tree the patch was made in.
    pub path: &'a str,
    pub is_new: bool,
    hunks: Vec<Hunk<'a>>,
}

#[derive(Debug)]
struct Hunk<'a> {
    /// Its `@@` line.
    header: &'a str,
    old: Range,
    new: Range,
    lines: Vec<(Op, &'a str)>,
}

/// `start,count` of a hunk's header. Lines are counted from 1.
#[derive(Clone, Copy, Debug)]
struct Range {
    start: usize,
    count: usize,
}

/// What a line of a hunk asks for. The line itself is kept with its `\n`, if
/// it has one: the last line of a file may do without.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Op {
    Keep,
    Remove,
    Add,
}

/// Reads a patch.
///
/// # Errors
/// It is not a well-formed diff, or does what no patch here should: deletes,
/// renames, changes modes, carries binary data.
pub fn parse(text: &str) -> Result<Vec<FilePatch<'_>>> {
    let mut parser = Parser {
        lines: text.split_inclusive('\n').collect(),
        at: 0,
    };
    while parser.peek().is_some_and(|line| !starts_file(line)) {
        parser.at += 1;
    }
    let mut files = Vec::new();
    // `git format-patch` ends with its signature.
    while let Some(line) = parser.peek().filter(|line| line.trim_end() != "--") {
        ensure!(
            starts_file(line),
            "line {}: a file or hunk was expected, not {line:?}",
            parser.at + 1
        );
        files.push(parser.file()?);
    }
    ensure!(!files.is_empty(), "it contains no diff");
    Ok(files)
}

fn starts_file(line: &str) -> bool {
    line.starts_with("diff --git ")
        || line.starts_with("--- a/")
        || line.starts_with("--- /dev/null")
}

struct Parser<'a> {
    lines: Vec<&'a str>,
    at: usize,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Option<&'a str> {
        self.lines.get(self.at).copied()
    }

    fn next(&mut self) -> Result<&'a str> {
        let line = self.peek().context("the patch ends too early")?;
        self.at += 1;
        Ok(line)
    }

    fn file(&mut self) -> Result<FilePatch<'a>> {
        let old = loop {
            let line = self.next()?;
            if let Some(old) = line.strip_prefix("--- ") {
                break old.trim_end();
            }
            let known = ["diff --git ", "index ", "new file mode "];
            ensure!(
                known.iter().any(|prefix| line.starts_with(prefix)),
                "line {}: {:?} is not supported, only changed lines and new files are",
                self.at,
                line.trim_end(),
            );
        };
        let new = self.next()?;
        let new = new.strip_prefix("+++ ").map(str::trim_end);
        let new = new.with_context(|| format!("line {}: `+++` was expected", self.at))?;

        let path = match (old, new) {
            (_, "/dev/null") => bail!("{old} is deleted; leave it in place, unreferenced"),
            (_, new) => new
                .strip_prefix("b/")
                .with_context(|| format!("`b/` was expected before {new}"))?,
        };
        let is_new = old == "/dev/null";
        ensure!(
            is_new || old.strip_prefix("a/") == Some(path),
            "{old} is renamed to {new}; that is not supported"
        );

        let mut hunks = Vec::new();
        while self.peek().is_some_and(|line| line.starts_with("@@ ")) {
            let number = hunks.len() + 1;
            hunks.push(
                self.hunk()
                    .with_context(|| format!("{path}: hunk {number}"))?,
            );
        }
        ensure!(!hunks.is_empty(), "{path}: no hunk");
        Ok(FilePatch {
            path,
            is_new,
            hunks,
        })
    }

    fn hunk(&mut self) -> Result<Hunk<'a>> {
        let header = self.next()?.trim_end();
        let (old, new) = ranges(header).with_context(|| format!("cannot read {header:?}"))?;
        let mut lines = Vec::new();
        let (mut old_left, mut new_left) = (old.count, new.count);
        while old_left > 0 || new_left > 0 {
            let line = self.next()?;
            let (op, text) = match line.split_at_checked(1) {
                Some((" ", text)) => (Op::Keep, text),
                Some(("-", text)) => (Op::Remove, text),
                Some(("+", text)) => (Op::Add, text),
                _ => bail!("line {}: fewer lines than {header} says", self.at),
            };
            let left = |left: usize, counts: bool| left.checked_sub(usize::from(counts));
            (old_left, new_left) = left(old_left, op != Op::Add)
                .zip(left(new_left, op != Op::Remove))
                .with_context(|| format!("line {}: more lines than {header} says", self.at))?;
            lines.push((op, self.without_newline(text)));
        }
        Ok(Hunk {
            header,
            old,
            new,
            lines,
        })
    }

    /// Drops the line's `\n` if the next line says that the file has none.
    fn without_newline(&mut self, text: &'a str) -> &'a str {
        if !self.peek().is_some_and(|line| line.starts_with('\\')) {
            return text;
        }
        self.at += 1;
        text.strip_suffix('\n').unwrap_or(text)
    }
}

/// Reads `@@ -1,2 +3,4 @@ anything`.
fn ranges(header: &str) -> Option<(Range, Range)> {
    let (ranges, _) = header.strip_prefix("@@ -")?.split_once(" @@")?;
    let (old, new) = ranges.split_once(" +")?;
    Some((Range::parse(old)?, Range::parse(new)?))
}

impl Range {
    fn parse(text: &str) -> Option<Self> {
        let (start, count) = text.split_once(',').unwrap_or((text, "1"));
        let range = Self {
            start: start.parse().ok()?,
            count: count.parse().ok()?,
        };
        // Only what is empty can lie before the first line.
        (range.start > 0 || range.count == 0).then_some(range)
    }

    /// How many lines lie before it. An empty range names the line it follows.
    fn before(self) -> usize {
        self.start - usize::from(self.count > 0)
    }
}

impl FilePatch<'_> {
    /// The new content of the file.
    ///
    /// # Errors
    /// A hunk does not fit; the error names it, the line, and what is there.
    pub fn apply(&self, old: &str) -> Result<String> {
        let old: Vec<&str> = old.split_inclusive('\n').collect();
        let mut new = Vec::with_capacity(old.len());
        let mut at = 0;
        for (index, hunk) in self.hunks.iter().enumerate() {
            at = hunk
                .apply(&old, at, &mut new)
                .with_context(|| format!("hunk {} ({})", index + 1, hunk.header))?;
        }
        new.extend(&old[at..]);

        let unended = new.iter().rev().skip(1).any(|line| !line.ends_with('\n'));
        ensure!(!unended, "lines follow one that ends without newline");
        Ok(new.concat())
    }
}

impl Hunk<'_> {
    /// Copies the old lines from `at` up to the hunk, then the hunk. Returns
    /// where the old lines go on.
    fn apply<'a>(&'a self, old: &[&'a str], at: usize, new: &mut Vec<&'a str>) -> Result<usize> {
        let start = self.old.before();
        ensure!(start >= at, "it overlaps the hunk before it");
        let copied = old
            .get(at..start)
            .with_context(|| format!("the file has {} lines only", old.len()))?;
        new.extend(copied);
        ensure!(
            new.len() == self.new.before(),
            "its new lines come after line {}, not {}",
            new.len(),
            self.new.before(),
        );

        let mut at = start;
        for &(op, line) in &self.lines {
            if op != Op::Add {
                let found = old.get(at).copied();
                ensure!(
                    found == Some(line),
                    "line {} is another\n  expected {line:?}\n  found    {}",
                    at + 1,
                    found.map_or("the end of the file".into(), |found| format!("{found:?}")),
                );
                at += 1;
            }
            if op != Op::Remove {
                new.push(line);
            }
        }
        Ok(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: &str = "one\ntwo\nthree\nfour\nfive\n";

    fn patch(hunks: &str) -> String {
        format!("What: a test\n\ndiff --git a/x b/x\nindex 1..2 100644\n--- a/x\n+++ b/x\n{hunks}")
    }

    fn applied(hunks: &str, old: &str) -> Result<String> {
        let patch = patch(hunks);
        let files = parse(&patch)?;
        assert_eq!(
            (files.len(), files[0].path, files[0].is_new),
            (1, "x", false)
        );
        files[0].apply(old)
    }

    fn refused(hunks: &str, old: &str) -> String {
        format!("{:#}", applied(hunks, old).unwrap_err())
    }

    #[test]
    fn an_insertion_goes_in_after_its_old_line() {
        let new = applied("@@ -2,0 +3 @@ fn heading() {\n+new\n", OLD).unwrap();
        assert_eq!(new, "one\ntwo\nnew\nthree\nfour\nfive\n");
    }

    #[test]
    fn an_insertion_may_be_first_or_last() {
        let new = applied("@@ -0,0 +1 @@\n+first\n@@ -5,0 +7 @@\n+last\n", OLD).unwrap();
        assert_eq!(new, format!("first\n{OLD}last\n"));
    }

    #[test]
    fn lines_are_replaced_and_removed() {
        let new = applied(
            "@@ -2,2 +2 @@\n-two\n-three\n+both\n@@ -5 +3,0 @@\n-five\n",
            OLD,
        )
        .unwrap();
        assert_eq!(new, "one\nboth\nfour\n");
    }

    #[test]
    fn later_hunks_are_shifted_by_earlier_ones() {
        let hunks = "@@ -1,0 +2,2 @@\n+a\n+b\n@@ -3 +5 @@\n-three\n+c\n@@ -4,0 +7 @@\n+d\n";
        assert_eq!(
            applied(hunks, OLD).unwrap(),
            "one\na\nb\ntwo\nc\nfour\nd\nfive\n"
        );
    }

    #[test]
    fn context_is_checked_too() {
        assert_eq!(
            applied("@@ -1,2 +1,3 @@\n one\n+new\n two\n", OLD).unwrap(),
            OLD.replacen("two", "new\ntwo", 1)
        );
        let error = refused("@@ -1,2 +1,3 @@\n one\n+new\n other\n", OLD);
        assert!(error.contains(r#"expected "other\n""#), "{error}");
    }

    #[test]
    fn a_wrong_line_is_named_with_its_hunk() {
        let error = refused("@@ -1 +1 @@\n-one\n+1\n@@ -3 +3 @@ x\n-trhee\n+3\n", OLD);
        assert!(error.contains("hunk 2 (@@ -3 +3 @@ x)"), "{error}");
        assert!(error.contains("line 3"), "{error}");
        assert!(error.contains(r#"expected "trhee\n""#), "{error}");
        assert!(error.contains(r#"found    "three\n""#), "{error}");
    }

    #[test]
    fn a_match_one_line_away_does_not_count() {
        let error = refused("@@ -3 +3 @@\n-two\n+2\n", OLD);
        assert!(error.contains("line 3 is another"), "{error}");
        let error = refused("@@ -2,0 +4 @@\n+new\n", OLD);
        assert!(error.contains("come after line 2, not 3"), "{error}");
    }

    #[test]
    fn hunks_come_in_order_and_inside_the_file() {
        let error = refused("@@ -3 +3 @@\n-three\n+3\n@@ -2 +2 @@\n-two\n+2\n", OLD);
        assert!(error.contains("overlaps"), "{error}");
        let error = refused("@@ -9,0 +10 @@\n+ten\n", OLD);
        assert!(error.contains("5 lines only"), "{error}");
        let error = refused("@@ -6 +6 @@\n-six\n+6\n", OLD);
        assert!(error.contains("found    the end of the file"), "{error}");
    }

    #[test]
    fn a_missing_newline_at_the_end_is_part_of_the_line() {
        let no_newline = "\\ No newline at end of file\n";
        let old = "one\ntwo";
        let ended = format!("@@ -2 +2 @@\n-two\n{no_newline}+two\n");
        assert_eq!(applied(&ended, old).unwrap(), "one\ntwo\n");
        let unended = format!("@@ -2 +2 @@\n-two\n+two\n{no_newline}");
        assert_eq!(applied(&unended, "one\ntwo\n").unwrap(), "one\ntwo");
        let error = refused(&ended, "one\ntwo\n");
        assert!(error.contains(r#"expected "two""#), "{error}");
        let error = refused("@@ -2,0 +3 @@\n+three\n", old);
        assert!(error.contains("without newline"), "{error}");
    }

    #[test]
    fn removed_lines_may_look_like_a_header() {
        assert_eq!(
            applied("@@ -1 +1 @@\n--- a/y\n+++ b/y\n", "-- a/y\n").unwrap(),
            "++ b/y\n"
        );
    }

    #[test]
    fn several_files_and_a_new_one() {
        let text = "What: a test\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n-one\n+1\n\
                    diff --git a/y b/y\nnew file mode 100644\nindex 0..1\n--- /dev/null\n+++ b/y\n\
                    @@ -0,0 +1,2 @@\n+a\n+b\n-- \n2.47.0\n";
        let files = parse(text).unwrap();
        assert_eq!(files[0].apply("one\n").unwrap(), "1\n");
        assert_eq!((files[1].path, files[1].is_new), ("y", true));
        assert_eq!(files[1].apply("").unwrap(), "a\nb\n");
    }

    #[test]
    fn what_no_patch_should_do_is_refused() {
        let refused = |text: &str| format!("{:#}", parse(text).unwrap_err());
        let deleted = refused("--- a/x\n+++ /dev/null\n@@ -1 +0,0 @@\n-one\n");
        assert!(deleted.contains("a/x is deleted"), "{deleted}");
        let renamed = refused("--- a/x\n+++ b/y\n@@ -1 +1 @@\n-one\n+1\n");
        assert!(renamed.contains("is renamed"), "{renamed}");
        let mode = refused("diff --git a/x b/x\nold mode 100644\nnew mode 100755\n");
        assert!(mode.contains("old mode 100644"), "{mode}");
        let binary = refused("diff --git a/x b/x\nindex 1..2\nGIT binary patch\n");
        assert!(binary.contains("GIT binary patch"), "{binary}");
        assert!(refused("What: nothing\n").contains("no diff"));
    }

    #[test]
    fn a_hunk_has_the_lines_its_header_says() {
        let short = refused("@@ -1,2 +1 @@\n-one\n+1\n", OLD);
        assert!(
            short.contains("x: hunk 1: the patch ends too early"),
            "{short}"
        );
        let long = refused("@@ -1 +1 @@\n-one\n+1\n+2\n", OLD);
        assert!(long.contains("a file or hunk was expected"), "{long}");
        let wrong = refused("@@ -1 +1 @@\n-one\n-two\n", OLD);
        assert!(wrong.contains("more lines than"), "{wrong}");
        let broken = refused("@@ -x +1 @@\n", OLD);
        assert!(broken.contains("cannot read"), "{broken}");
    }
}
