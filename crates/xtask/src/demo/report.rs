//! The results, for people and for programs.

use std::io::Write;

use anyhow::{Result, ensure};

use super::measurement::Measurement;

const HEADER: [&str; 10] = [
    "workload",
    "build",
    "mode",
    "source MB",
    "rows updated",
    "rows copied",
    "seconds",
    "peak RSS growth MB",
    "rows deferred",
    "MB spilled",
];

/// Columns of names are aligned to the left, those of numbers to the right.
const NAMES: usize = 3;

pub(super) fn print_json(measured: &[Measurement]) -> Result<()> {
    let mut stdout = std::io::stdout().lock();
    for measurement in measured {
        writeln!(stdout, "{}", serde_json::to_string(measurement)?)?;
    }
    Ok(stdout.flush()?)
}

/// The table, then a line per workload that draws the conclusion.
pub(super) fn print_table(results: &[Vec<Measurement>]) {
    print!("{}", table(results));
    println!();
    for measured in results {
        println!("{}", conclusion(measured));
    }
}

/// Fails if the builds or modes of a workload leave different tables behind.
pub(super) fn check_contents(results: &[Vec<Measurement>]) -> Result<()> {
    for measured in results {
        ensure!(
            same_content(measured),
            "the tables differ after the merge of {}:\n{}",
            measured[0].workload,
            measured
                .iter()
                .map(|m| format!("  {} {}: checksum {}\n", m.build, m.mode, m.checksum))
                .collect::<String>()
        );
    }
    Ok(())
}

fn same_content(measured: &[Measurement]) -> bool {
    measured
        .windows(2)
        .all(|pair| pair[0].checksum == pair[1].checksum)
}

fn table(results: &[Vec<Measurement>]) -> String {
    let rows: Vec<[String; 10]> = std::iter::once(HEADER.map(String::from))
        .chain(results.iter().flatten().map(row))
        .collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: [usize; 10] = std::array::from_fn(|column| width(column).unwrap_or(0));

    let mut table = String::new();
    for row in rows {
        let cells = row.iter().zip(widths).enumerate();
        let cells = cells.map(|(column, (cell, width))| match column {
            ..NAMES => format!("{cell:<width$}"),
            _ => format!("{cell:>width$}"),
        });
        table += cells.collect::<Vec<_>>().join("  ").trim_end();
        table.push('\n');
    }
    table
}

fn row(measurement: &Measurement) -> [String; 10] {
    [
        measurement.workload.clone(),
        measurement.build.clone(),
        measurement.mode.clone(),
        format!("{:.0}", measurement.source_mb),
        thousands(measurement.rows_updated),
        thousands(measurement.rows_copied),
        format!("{:.2}", measurement.seconds),
        known(measurement.peak_rss_growth_mb, |mb| format!("{mb:.0}")),
        known(measurement.rows_deferred, thousands),
        known(measurement.spilled_mb, |mb| format!("{mb:.0}")),
    ]
}

fn conclusion(measured: &[Measurement]) -> String {
    let find = |build: &str| {
        let mut full = measured.iter().filter(|m| m.mode == "full");
        full.find(|m| m.build == build)
    };
    let mut line = measured[0].workload.clone() + ":";
    if let (Some(baseline), Some(fork)) = (find("baseline"), find("fork")) {
        let seconds = fork.seconds / baseline.seconds;
        line += &format!(" {seconds:.2} times the baseline's time");
        if let (Some(ours), Some(theirs)) = (fork.peak_rss_growth_mb, baseline.peak_rss_growth_mb) {
            line += &format!(", {:.2} times its memory", ours / theirs);
        }
        line += " with full validation;";
    }
    line += if same_content(measured) {
        " same table content in every build and mode"
    } else {
        " THE TABLES DIFFER"
    };
    line
}

fn known<T>(value: Option<T>, show: impl Fn(T) -> String) -> String {
    value.map_or_else(|| "-".to_string(), show)
}

/// 1000000 as 1,000,000.
fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let groups = digits.as_bytes().rchunks(3).rev();
    let groups = groups.map(|group| String::from_utf8_lossy(group).into_owned());
    groups.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::super::measurement::tests::measurement;
    use super::*;

    fn mixed() -> Vec<Measurement> {
        vec![
            measurement("baseline", "full", 30.0),
            measurement("fork", "full", 1.5),
        ]
    }

    #[test]
    fn numbers_are_grouped() {
        assert_eq!(thousands(0), "0");
        assert_eq!(thousands(999), "999");
        assert_eq!(thousands(1_000), "1,000");
        assert_eq!(thousands(12_345_678), "12,345,678");
    }

    #[test]
    fn the_table_is_aligned_and_shows_what_is_not_known() {
        let table = table(&[mixed()]);
        let lines: Vec<&str> = table.lines().collect();
        assert_eq!(lines.len(), 3);
        assert!(
            lines.iter().all(|line| line.len() == lines[0].len()),
            "{table}"
        );
        assert!(
            lines[1].contains("baseline  full") && lines[1].ends_with('-'),
            "{table}"
        );
        assert!(
            lines[2].contains("990,000") && lines[2].ends_with('0'),
            "{table}"
        );
    }

    #[test]
    fn the_conclusion_compares_with_the_baseline() {
        let line = conclusion(&mixed());
        assert!(
            line.contains("0.05 times the baseline's time, 0.05 times its memory"),
            "{line}"
        );
        assert!(line.contains("same table content"), "{line}");
        let alone = conclusion(&mixed()[1..]);
        assert!(!alone.contains("baseline"), "{alone}");
    }

    #[test]
    fn different_contents_are_an_error_that_shows_them() {
        let mut measured = mixed();
        measured[1].checksum = "bad".to_string();
        assert!(conclusion(&measured).contains("DIFFER"));
        let error = check_contents(&[measured]).unwrap_err().to_string();
        assert!(error.contains("fork full: checksum bad"), "{error}");
    }
}
