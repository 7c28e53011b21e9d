// SPDX-License-Identifier: MIT OR Apache-2.0
//! Waits of tests.

use std::{
    io::{BufRead, BufReader, Read},
    process::{Child, Output},
    sync::mpsc::channel,
    thread::{self, sleep},
    time::{Duration, Instant},
};

/// Longest wait of a test; it decides only how long a failure takes.
pub const WAIT_LIMIT: Duration = Duration::from_secs(120);

const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// Waits until a condition holds.
///
/// # Panics
/// If it does not hold within [`WAIT_LIMIT`].
#[track_caller]
pub fn wait_until(mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < WAIT_LIMIT, "waited {WAIT_LIMIT:?}");
        sleep(POLL_INTERVAL);
    }
}

/// Reads a program's output until a line contains `text`. Returns the lines up to it. The rest is read, too, so that the
/// pipe does not fill.
///
/// # Panics
/// If the output ends before, or if no such line comes within [`WAIT_LIMIT`].
#[track_caller]
pub fn wait_for_line(output: impl Read + Send + 'static, text: &str) -> String {
    let (sender, lines) = channel();
    thread::spawn(move || {
        let lines = BufReader::new(output).lines().map_while(Result::ok);
        // Nobody takes the lines after the wanted one.
        lines.for_each(|line| drop(sender.send(line)));
    });
    let (mut read, start) = (String::new(), Instant::now());
    loop {
        let left = WAIT_LIMIT.saturating_sub(start.elapsed());
        let Ok(line) = lines.recv_timeout(left) else {
            panic!("{text:?} is not in {read:?}");
        };
        read += &line;
        read.push('\n');
        if line.contains(text.trim_end()) {
            return read;
        }
    }
}

/// Waits until a process ends.
///
/// # Panics
/// If it does not end within [`WAIT_LIMIT`]. Then it is killed.
pub fn finish(mut child: Child) -> Output {
    let start = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if start.elapsed() > WAIT_LIMIT {
            child.kill().unwrap();
            panic!("it hangs: {:?}", child.wait_with_output().unwrap());
        }
        sleep(POLL_INTERVAL);
    }
    child.wait_with_output().unwrap()
}
