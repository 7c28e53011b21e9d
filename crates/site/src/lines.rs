// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lines on standard output, written by a thread of their own: who does not read them (a stopped terminal, a pipe that is full)
//! holds up no client, no copy and no end of the site.

use super::record::Record;
use longhaul_command::{console, threads::Monitor};
use std::{
    fs::File,
    io::{self, Write},
    os::fd::AsFd,
    sync::OnceLock,
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

type Lines = Monitor<Waiting>;

static LINES: OnceLock<Lines> = OnceLock::new();

fn lines() -> &'static Lines {
    LINES.get_or_init(|| {
        std::thread::spawn(|| {
            // Not by the lock of the standard library: whoever ends the process needs that.
            let out = io::stdout().as_fd().try_clone_to_owned().map(File::from);
            match out {
                Ok(out) => write(lines(), out),
                Err(error) => console::record_error(error),
            }
        });
        Lines::default()
    })
}

/// Has a line written, or counted if too many wait already.
pub(super) fn put(line: &str, json: bool) {
    lines().update(|waiting| {
        waiting.json = json;
        match waiting.text.len() + line.len() < WAITING_MAX {
            true => waiting.text.extend([line, "\n"]),
            false => waiting.lost += 1,
        }
    });
}

/// Waits until all is written, but not for who does not read.
pub(super) fn flush() {
    lines().wait_timeout(FAREWELL, |waiting| {
        !waiting.writes && waiting.text.is_empty()
    });
}

fn write(lines: &Lines, mut out: File) {
    loop {
        let text = lines.wait_for(Waiting::take);
        // That nobody reads them any more is no reason to stop.
        if let Err(error) = out.write_all(text.as_bytes()) {
            console::record_error(error);
        }
        lines.update(|waiting| waiting.writes = false);
    }
}

impl Waiting {
    /// What is to be written, if there is anything.
    fn take(&mut self) -> Option<String> {
        let mut text = std::mem::take(&mut self.text);
        let count = std::mem::take(&mut self.lost);
        if count > 0 {
            let records = Records { json: self.json };
            text.extend([&records.line(&Record::Lost { count }), "\n"]);
        }
        self.writes = !text.is_empty();
        self.writes.then_some(text)
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
