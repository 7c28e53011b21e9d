// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where records and tables go.

use super::account::{Look, Summary};
use anyhow::Result;
use indicatif::{ProgressBar, ProgressStyle};
use longhaul_command::errln;
use serde::Serialize;
use std::io::{IsTerminal, Write, stderr, stdout};

/// Connections that a table on a terminal has room for.
const ROWS_MAX: usize = 32;
/// Without a terminal, a line so often, seconds.
const LINE_EVERY_S: f64 = 5.0;

/// JSON lines on standard output, or a table or lines on standard error.
pub(super) struct Display {
    json: bool,
    table: Option<ProgressBar>,
    /// When the last plain line was, and whether it said that caps were in use.
    last_line: Option<(f64, bool)>,
}

#[derive(Serialize)]
struct Last<'a> {
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

    pub(super) fn show(&mut self, look: &Look) -> Result<()> {
        if self.json {
            print(look)?;
        } else if let Some(table) = &self.table {
            table.set_message(self::table(look));
        } else if self.is_due(look) {
            self.last_line = Some((look.at_s, look.levelling));
            errln!("{look}");
        }
        Ok(())
    }

    fn is_due(&self, look: &Look) -> bool {
        self.last_line.is_none_or(|(at, levelling)| {
            look.at_s - at >= LINE_EVERY_S || look.levelling != levelling
        })
    }

    pub(super) fn conclude(&self, summary: &Summary) -> Result<()> {
        if let Some(table) = &self.table {
            table.finish();
        }
        if self.json {
            return print(&Last { summary });
        }
        errln!("{summary}");
        Ok(())
    }
}

fn print(record: &impl Serialize) -> Result<()> {
    writeln!(stdout(), "{}", serde_json::to_string(record)?)?;
    Ok(())
}

/// The fastest first.
fn table(look: &Look) -> String {
    let mut windows: Vec<_> = look.windows.iter().filter(|window| window.bulk).collect();
    windows.sort_by_key(|window| std::cmp::Reverse(window.window));
    let mut lines = vec![
        look.to_string(),
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
