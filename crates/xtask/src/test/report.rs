//! Headlines while the steps run, and a table of them at the end.

use std::time::{Duration, Instant};

use anyhow::Result;

#[derive(Default)]
pub struct Report {
    rows: Vec<Row>,
}

struct Row {
    step: String,
    took: Duration,
    outcome: String,
}

impl Report {
    /// Runs one step under a headline. Why it failed is shown at once; the
    /// error is handed on for the caller to decide what still makes sense.
    pub fn step<T>(&mut self, step: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
        eprintln!("\n=== {step}");
        let start = Instant::now();
        let result = work();
        let outcome = match &result {
            Ok(_) => "ok".to_owned(),
            Err(error) => {
                eprintln!("{step}: {error:#}");
                "FAILED".to_owned()
            }
        };
        let step = step.to_owned();
        let took = start.elapsed();
        self.rows.push(Row {
            step,
            took,
            outcome,
        });
        result
    }

    /// Says more about the step that has just succeeded.
    pub fn note(&mut self, outcome: &str) {
        if let Some(row) = self.rows.last_mut() {
            outcome.clone_into(&mut row.outcome);
        }
    }

    pub fn print(&self) {
        eprint!("\n{}", self.table());
    }

    fn table(&self) -> String {
        let width = |cell: fn(&Row) -> &str| self.rows.iter().map(|row| cell(row).len()).max();
        let step = width(|row| &row.step).unwrap_or(0);
        let outcome = width(|row| &row.outcome).unwrap_or(0);
        self.rows
            .iter()
            .map(|row| {
                let seconds = row.took.as_secs_f64();
                format!(
                    "{:step$}  {:outcome$}  {seconds:>7.1} s\n",
                    row.step, row.outcome
                )
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use anyhow::bail;

    use super::*;

    #[test]
    fn every_step_has_a_row() {
        let mut report = Report::default();
        report.step("first", || Ok(())).unwrap();
        report.note("12 passed");
        report
            .step("second, longer", || -> Result<()> { bail!("no") })
            .unwrap_err();

        let table = report.table();
        let cells: Vec<&str> = table.lines().map(|line| &line[..25]).collect();
        assert_eq!(
            cells,
            ["first           12 passed", "second, longer  FAILED   "]
        );
    }
}
