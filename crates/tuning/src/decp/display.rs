// SPDX-License-Identifier: MIT OR Apache-2.0
//! Output of records and tables.

use super::summary::{SampleRecord, Summary};
use anyhow::Result;
use indicatif::{ProgressBar, ProgressStyle};
use longhaul_command::errln;
use serde::Serialize;
use std::io::{IsTerminal, Write, stderr, stdout};

/// Maximum number of connections in a table on a terminal.
const ROWS_MAX: usize = 32;
/// Seconds between two lines of text when standard error is not a terminal.
const LINE_INTERVAL_S: f64 = 5.0;

/// JSON lines on standard output, or a table or lines on standard error.
pub(super) struct Display {
    json: bool,
    table: Option<ProgressBar>,
    /// Time of the last line of text in seconds, and whether caps were in use then.
    last_line: Option<(f64, bool)>,
}

#[derive(Serialize)]
struct SummaryRecord<'a> {
    summary: &'a Summary,
}

impl Display {
    pub(super) fn open(json: bool) -> Self {
        let table = || {
            let plain = ProgressStyle::with_template("{msg}");
            let style = plain.unwrap_or_else(|_| ProgressStyle::default_bar());
            ProgressBar::new_spinner().with_style(style)
        };
        Self {
            json,
            table: (!json && stderr().is_terminal()).then(table),
            last_line: None,
        }
    }

    pub(super) fn show(&mut self, sample: &SampleRecord) -> Result<()> {
        if self.json {
            print(sample)?;
        } else if let Some(table) = &self.table {
            table.set_message(self::table(sample));
        } else if self.is_due(sample) {
            self.last_line = Some((sample.time_s, sample.capping));
            errln!("{sample}");
        }
        Ok(())
    }

    fn is_due(&self, sample: &SampleRecord) -> bool {
        self.last_line.is_none_or(|(at, capping)| {
            sample.time_s - at >= LINE_INTERVAL_S || sample.capping != capping
        })
    }

    pub(super) fn print_summary(&self, summary: &Summary) -> Result<()> {
        if let Some(table) = &self.table {
            table.finish();
        }
        if self.json {
            return print(&SummaryRecord { summary });
        }
        errln!("{summary}");
        Ok(())
    }
}

fn print(record: &impl Serialize) -> Result<()> {
    writeln!(stdout(), "{}", serde_json::to_string(record)?)?;
    Ok(())
}

/// Returns the table of bulk connections, largest window first.
fn table(sample: &SampleRecord) -> String {
    let mut windows: Vec<_> = sample.windows.iter().filter(|window| window.bulk).collect();
    windows.sort_by_key(|window| std::cmp::Reverse(window.window_segments));
    let mut lines = vec![
        sample.to_string(),
        format!(
            "{:>22}   {:<22} {:>8} {:>8} {:>10} {:>12}",
            "from", "to", "window", "cap", "rtt", "rate"
        ),
    ];
    lines.extend(windows.iter().take(ROWS_MAX).map(ToString::to_string));
    if windows.len() > ROWS_MAX {
        lines.push(format!(
            "{:>22}",
            format!("… and {} more", windows.len() - ROWS_MAX)
        ));
    }
    lines.join("\n")
}
