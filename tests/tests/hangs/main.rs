//! MERGE under memory limits never hangs.
//!
//! With a limit, repartitioning spills, and before this project two of its tasks could wait for
//! each other for ever (apache/datafusion issue 24883, delta-rs issue 4614). It happened by chance:
//! so there are many runs, each in a process of its own, which is killed when its time is up.
//!
//! A MERGE that gets too little memory may fail, if it says who was refused and what helps.

use std::process::{Command, Output, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// The arguments of `merge-once`.
type Arguments = Vec<String>;

fn arguments(parts: [&dyn ToString; 8]) -> Arguments {
    parts.iter().map(|part| part.to_string()).collect()
}

/// Runs `merge-once`, or kills it when `limit` is over.
fn run(arguments: &Arguments, limit: Duration) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_merge-once"))
        .args(arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("a program of this package");
    let deadline = Instant::now() + limit;
    while child.try_wait().expect("a child").is_none() {
        if Instant::now() > deadline {
            child.kill().expect("a child that runs");
            child.wait().expect("a child");
            panic!("merge-once {} hangs", arguments.join(" "));
        }
        thread::sleep(Duration::from_millis(20));
    }
    child.wait_with_output().expect("a child")
}

#[derive(Debug, Default)]
struct Counts {
    merged: usize,
    refused: usize,
    spilled: usize,
}

/// Runs every case, two at a time.
fn run_all(cases: &[Arguments], limit: Duration) -> Counts {
    let (next, counts) = (AtomicUsize::new(0), Mutex::new(Counts::default()));
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let output = run(case, limit);
                    let said = String::from_utf8_lossy(&output.stdout).into_owned();
                    let mut counts = counts.lock().expect("no panic while it is held");
                    count(case, &said, &output, &mut counts);
                }
            });
        }
    });
    counts.into_inner().expect("no panic while it is held")
}

fn count(case: &Arguments, said: &str, output: &Output, counts: &mut Counts) {
    let mut words = said.splitn(3, ' ');
    let (outcome, spilled) = (words.next(), words.next());
    match outcome {
        Some("merged") => counts.merged += 1,
        Some("refused") => {
            let error = words.next().unwrap_or_default();
            let names_consumer = error.contains("Resources exhausted") && error.contains(" for ");
            assert!(
                names_consumer && error.contains("max_spill_size"),
                "merge-once {} does not say what helps: {said}",
                case.join(" ")
            );
            counts.refused += 1;
        }
        _ => panic!(
            "merge-once {} failed\n{said}\n{}",
            case.join(" "),
            String::from_utf8_lossy(&output.stderr)
        ),
    }
    let spilled = spilled.and_then(|bytes| bytes.trim().parse::<u64>().ok());
    counts.spilled += usize::from(spilled.expect("bytes on disk") > 0);
}

#[test]
fn no_merge_hangs_in_a_small_pool() {
    let mut cases = Vec::new();
    for pool in ["fair", "greedy"] {
        for partitions in [1, 2, 4] {
            for source_partitions in [1, 3] {
                for kind in ["upsert", "change-data", "partitioned"] {
                    // Source rows are held by the join, so small sources let small pools spill.
                    for (mebibytes, source_rows) in [
                        (1, 500),
                        (2, 1_000),
                        (4, 10_000),
                        (8, 4_000),
                        (16, 20_000),
                        (64, 20_000),
                    ] {
                        let bytes = mebibytes << 20;
                        let every = if mebibytes == 16 { 1 } else { 100 };
                        cases.push(arguments([
                            &pool,
                            &bytes,
                            &partitions,
                            &source_partitions,
                            &40_000,
                            &source_rows,
                            &every,
                            &kind,
                        ]));
                    }
                }
            }
        }
    }
    assert!(cases.len() >= 200, "{} cases", cases.len());
    let counts = run_all(&cases, Duration::from_secs(60));
    println!("{} runs: {counts:?}", cases.len());
    assert!(counts.merged >= 60 && counts.spilled >= 60, "{counts:?}");
}

/// The merge with which the hang was reported: in 192 MiB 5 of 8 runs of the release before this
/// project hung, in 144 MiB 1 of 8. Most are refused, since the join holds the source.
#[test]
fn the_merge_that_was_reported_to_hang_does_not() {
    let mut cases = Vec::new();
    for (mebibytes, runs) in [(144, 8), (192, 8), (400, 2)] {
        for run in 0..runs {
            let (bytes, source_partitions) = (mebibytes << 20, 1 + run % 2);
            cases.push(arguments([
                &"fair",
                &bytes,
                &2,
                &source_partitions,
                &1_000_000,
                &1_000_000,
                &1,
                &"upsert",
            ]));
        }
    }
    let counts = run_all(&cases, Duration::from_secs(300));
    println!("{} runs: {counts:?}", cases.len());
    assert!(counts.merged > 0 && counts.refused > 0, "{counts:?}");
    assert!(counts.spilled > 0, "{counts:?}");
}
