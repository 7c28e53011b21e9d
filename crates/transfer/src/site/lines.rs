// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lines on standard output, written by a thread of their own: who does not read them (a stopped terminal, a pipe that is full)
//! holds up no client, no copy and no end of the site.

use super::record::Record;
use longhaul_command::console;
use std::{
    fs::File,
    io::{self, Write},
    os::fd::AsFd,
    sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError},
    time::Duration,
};

/// Bytes of lines that wait, at most: some thousand lines. Those beyond it are counted.
const WAITING_MAX: usize = 1 << 20;

/// How long the end of the site waits for who reads.
const FAREWELL: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
struct Waiting {
    text: String,
    lost: u64,
    json: bool,
    /// The thread is at it.
    writes: bool,
}

#[derive(Debug, Default)]
struct Lines {
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

static LINES: OnceLock<Lines> = OnceLock::new();

fn lines() -> &'static Lines {
    LINES.get_or_init(|| {
        std::thread::spawn(|| {
            // Not by the lock of the standard library: whoever ends the process needs that.
            let out = io::stdout().as_fd().try_clone_to_owned().map(File::from);
            match out {
                Ok(out) => lines().write(out),
                Err(error) => console::lose(error),
            }
        });
        Lines::default()
    })
}

/// Has a line written, or counted if too many wait already.
pub(super) fn put(line: &str, json: bool) {
    let mut waiting = lines().waiting();
    waiting.json = json;
    match waiting.text.len() + line.len() < WAITING_MAX {
        true => waiting.text.extend([line, "\n"]),
        false => waiting.lost += 1,
    }
    drop(waiting);
    lines().changed.notify_all();
}

/// Waits until all is written, but not for who does not read.
pub(super) fn flush() {
    let lines = lines();
    let is_left = |waiting: &mut Waiting| waiting.writes || !waiting.text.is_empty();
    let waited = lines
        .changed
        .wait_timeout_while(lines.waiting(), FAREWELL, is_left);
    drop(waited.unwrap_or_else(PoisonError::into_inner));
}

impl Lines {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, mut out: File) {
        loop {
            let nothing = |waiting: &mut Waiting| waiting.text.is_empty() && waiting.lost == 0;
            let waiting = self.changed.wait_while(self.waiting(), nothing);
            let mut waiting = waiting.unwrap_or_else(PoisonError::into_inner);
            let mut text = std::mem::take(&mut waiting.text);
            let count = std::mem::take(&mut waiting.lost);
            let records = Records { json: waiting.json };
            waiting.writes = true;
            drop(waiting);
            if count > 0 {
                text.extend([&records.line(&Record::Lost { count }), "\n"]);
            }
            // That nobody reads them any more is no reason to stop.
            if let Err(error) = out.write_all(text.as_bytes()) {
                console::lose(error);
            }
            self.waiting().writes = false;
            self.changed.notify_all();
        }
    }
}

/// Where records go.
#[derive(Debug, Clone, Copy)]
pub(super) struct Records {
    pub(super) json: bool,
}

impl Records {
    pub(super) fn say(self, record: &Record) {
        put(&self.line(record), self.json);
    }

    /// As it is said.
    pub(super) fn line(self, record: &Record) -> String {
        match self.json {
            true => serde_json::to_string(record).unwrap_or_default(),
            false => format!("longhaul site: {record}"),
        }
    }
}
