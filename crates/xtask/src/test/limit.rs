//! Runs a program that might hang.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process_group};

/// How often to look whether a program that has closed its output is gone.
const POLL: Duration = Duration::from_millis(10);

/// Runs `command` to its end, passes its output on, and shows each line to
/// `on_line` as well.
///
/// # Errors
/// It does not exit with success, or not within `limit`. In the latter case it
/// is killed with all its children.
pub fn run(command: &mut Command, limit: Duration, on_line: impl FnMut(&str)) -> Result<()> {
    let deadline = Instant::now() + limit;
    let program = command.get_program().to_owned();
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .process_group(0)
        .spawn()
        .with_context(|| format!("cannot run {}", program.display()))?;

    let ended = pass_on(&read_lines(&mut child), deadline, on_line) && exits(&mut child, deadline)?;
    if !ended {
        let group = Pid::from_child(&child);
        kill_process_group(group, Signal::KILL).context("cannot kill it")?;
        child.wait()?;
        bail!("killed: not done after {} s", limit.as_secs());
    }
    let status = child.wait()?;
    ensure!(status.success(), "{status}");
    Ok(())
}

/// Reads the output in a thread of its own, since reading knows no time limit.
fn read_lines(child: &mut Child) -> Receiver<String> {
    let (sender, receiver) = channel();
    let mut output = BufReader::new(child.stdout.take().expect("stdout is piped"));
    thread::spawn(move || {
        let mut line = Vec::new();
        while output
            .read_until(b'\n', &mut line)
            .is_ok_and(|read| read > 0)
        {
            let text = String::from_utf8_lossy(&line).into_owned();
            if sender.send(text).is_err() {
                break;
            }
            line.clear();
        }
    });
    receiver
}

/// Whether the output came to its end before the deadline.
fn pass_on(lines: &Receiver<String>, deadline: Instant, mut on_line: impl FnMut(&str)) -> bool {
    loop {
        match lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(line) => {
                print!("{line}");
                on_line(line.trim_end());
            }
            Err(RecvTimeoutError::Disconnected) => return true,
            Err(RecvTimeoutError::Timeout) => return false,
        }
    }
}

/// Whether the program exits before the deadline.
fn exits(child: &mut Child, deadline: Instant) -> Result<bool> {
    while child.try_wait()?.is_none() {
        if Instant::now() >= deadline {
            return Ok(false);
        }
        thread::sleep(POLL);
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    const ENOUGH: Duration = Duration::from_secs(60);
    const SHORT: Duration = Duration::from_millis(300);

    fn sh(script: &str, limit: Duration) -> (Vec<String>, Result<()>) {
        let mut lines = Vec::new();
        let mut command = Command::new("sh");
        let result = run(command.args(["-c", script]), limit, |line| {
            lines.push(line.to_owned())
        });
        (lines, result)
    }

    #[test]
    fn lines_are_seen_and_the_status_counts() {
        let (lines, result) = sh("echo one; printf two", ENOUGH);
        assert_eq!(lines, ["one", "two"]);
        result.unwrap();
        let (_, result) = sh("exit 3", ENOUGH);
        assert!(result.unwrap_err().to_string().contains('3'));
    }

    #[test]
    fn what_hangs_is_killed_with_its_children() {
        let (mut reader, writer) = std::io::pipe().unwrap();
        let mut command = Command::new("sh");
        command
            .args(["-c", "(sleep 30; echo alive >&2) & wait"])
            .stderr(writer);
        let result = run(&mut command, SHORT, |_| ());
        drop(command);
        assert!(result.unwrap_err().to_string().contains("killed"));

        // The pipe ends when the last process that holds it does.
        let mut said = String::new();
        reader.read_to_string(&mut said).unwrap();
        assert_eq!(said, "");
    }

    #[test]
    fn closing_the_output_is_not_the_end() {
        let (_, result) = sh("exec >&-; sleep 3600", SHORT);
        assert!(result.unwrap_err().to_string().contains("killed"));
    }
}
