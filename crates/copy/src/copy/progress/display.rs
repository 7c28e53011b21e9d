// SPDX-License-Identifier: MIT OR Apache-2.0
//! Progress display of a running copy. On a terminal, a bar and two lines; otherwise a line at intervals. Both go to
//! standard error. With `--progress`, JSON lines on standard output.

use super::record::Record;
use crate::{copy::config::Config, protocol::report::PlannedAction};
use indicatif::{ProgressBar, ProgressStyle};
use longhaul_command::{errln, outln};
use std::{
    io::{IsTerminal, stderr},
    time::{Duration, Instant},
};

/// Delay before the first display on a terminal. A shorter copy shows none.
const SHOW_AFTER: Duration = Duration::from_secs(2);
/// Interval of lines without a terminal.
const LINE_EVERY: Duration = Duration::from_secs(10);
/// Length of the bar, in characters.
const BAR_LEN: usize = 24;

/// Progress display of one copy.
#[derive(Debug)]
pub(crate) struct Display {
    form: Form,
    json: bool,
    /// Time of the next update.
    next_update: Instant,
}

/// Form of the display.
#[derive(Debug)]
enum Form {
    Hidden,
    Screen(ProgressBar),
    Lines,
    Json,
}

impl Display {
    pub(crate) fn new(config: &Config, now: Instant) -> Self {
        let form = match (config.progress, config.quiet) {
            (true, _) => Form::Json,
            (false, true) => Form::Hidden,
            (false, false) if stderr().is_terminal() => Form::Screen(screen()),
            (false, false) => Form::Lines,
        };
        let due = match form {
            Form::Lines => now + LINE_EVERY,
            Form::Json => now,
            _ => now + SHOW_AFTER,
        };
        let json = config.json;
        Self {
            form,
            json,
            next_update: due,
        }
    }

    /// Displays the record if an update is due.
    pub(crate) fn show(&mut self, record: impl FnOnce() -> Record, now: Instant) {
        if now < self.next_update {
            return;
        }
        match &self.form {
            Form::Hidden => {}
            Form::Screen(screen) => screen.set_message(lines(&record()).join("\n")),
            Form::Lines => {
                self.next_update = now + LINE_EVERY;
                errln!("{}", lines(&record())[1..].join("; "));
            }
            Form::Json => {
                self.next_update = now + Duration::from_secs(1);
                outln!("{}", serde_json::json!({ "progress": record() }));
            }
        }
    }

    /// Prints an action of a dry run.
    pub(crate) fn print_planned(&self, planned: &PlannedAction) {
        match &self.form {
            _ if self.json => outln!("{}", planned.json()),
            Form::Hidden => {}
            Form::Screen(screen) => screen.suspend(|| outln!("{planned}")),
            _ => outln!("{planned}"),
        }
    }

    /// Prints a line beside the progress display.
    pub(crate) fn print_note(&self, text: &str) {
        match &self.form {
            Form::Screen(screen) => screen.suspend(|| errln!("longhaul: {text}")),
            _ => errln!("longhaul: {text}"),
        }
    }

    /// Removes the display.
    pub(crate) fn clear(&self) {
        if let Form::Screen(screen) = &self.form {
            screen.finish_and_clear();
        }
    }
}

fn screen() -> ProgressBar {
    let plain = ProgressStyle::with_template("{msg}");
    let style = plain.unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new_spinner().with_style(style)
}

/// Returns the bar and the lines of the display.
fn lines(record: &Record) -> Vec<String> {
    let full = (record.fraction_done() * BAR_LEN as f64) as usize;
    let bar = "█".repeat(full) + &"░".repeat(BAR_LEN - full);
    let mut lines = vec![bar, record.amount(), record.speed()];
    lines.extend(record.limit());
    lines
}
