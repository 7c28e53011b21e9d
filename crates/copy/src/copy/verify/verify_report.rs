// SPDX-License-Identifier: MIT OR Apache-2.0
//! Report of a verification: each finding at once, the progress, and the totals.

use super::scan::{Finding, FindingKind};
use crate::copy::progress::plan::with_path;
use anyhow::Result;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use longhaul_command::outln;
use longhaul_store::path::Printable;
use longhaul_units::{BitRate, Bytes};
use serde::Serialize;
use std::{
    fmt,
    io::{IsTerminal, stderr},
    time::{Duration, Instant},
};

/// Delay before the progress bar is shown.
const BAR_DELAY: Duration = Duration::from_secs(2);
/// Redraws of the progress bar per second.
const REDRAWS_PER_SECOND: u8 = 4;

/// Report of the findings so far.
#[derive(Debug)]
pub(super) struct VerifyReport {
    json: bool,
    totals: Totals,
    started_at: Instant,
    bar: ProgressBar,
}

/// Numbers of files, by finding.
#[derive(Debug, Default, Serialize)]
struct Totals {
    unchanged: u64,
    differ: u64,
    missing: u64,
    unfinished: u64,
    unknown: u64,
    unreadable: u64,
    /// Bytes that were read.
    bytes: u64,
    /// Bytes without data on disk, which count as zeros.
    hole_bytes: u64,
    seconds: f64,
}

impl VerifyReport {
    /// Creates the report of a tree with this number of bytes.
    pub(super) fn new(json: bool, bytes: u64) -> Self {
        let bar = ProgressBar::with_draw_target(Some(bytes), ProgressDrawTarget::hidden());
        let template = "{wide_bar} {bytes} of {total_bytes}, {bytes_per_sec}, {eta} left";
        let style = ProgressStyle::with_template(template);
        Self {
            json,
            totals: Totals::default(),
            started_at: Instant::now(),
            bar: bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar())),
        }
    }

    /// Adds bytes that were read, or those of a hole.
    pub(super) fn add_bytes(&mut self, bytes: u64, is_hole: bool) {
        if is_hole {
            self.totals.hole_bytes += bytes;
        } else {
            self.totals.bytes += bytes;
        }
        let is_due = self.started_at.elapsed() > BAR_DELAY;
        if is_due && self.bar.is_hidden() && stderr().is_terminal() {
            let terminal = ProgressDrawTarget::stderr_with_hz(REDRAWS_PER_SECOND);
            self.bar.set_draw_target(terminal);
        }
        let totals = &self.totals;
        self.bar.set_position(totals.bytes + totals.hole_bytes);
    }

    /// Counts a file that is unchanged since the copy.
    pub(super) fn count_unchanged(&mut self) {
        self.totals.unchanged += 1;
    }

    /// Counts and prints a finding.
    pub(super) fn report_finding(&mut self, found: &Finding) {
        let count = match found.kind {
            FindingKind::Differs(_) => &mut self.totals.differ,
            FindingKind::Missing => &mut self.totals.missing,
            FindingKind::Unfinished => &mut self.totals.unfinished,
            FindingKind::Unknown => &mut self.totals.unknown,
            FindingKind::Unreadable(_) => &mut self.totals.unreadable,
        };
        *count += 1;
        let json = self.json;
        self.bar.suspend(|| {
            if json {
                outln!("{}", found.json());
            } else {
                outln!("{found}");
            }
        });
    }

    /// Prints the totals, and returns the number of files that differ, are missing, unfinished or cannot be read.
    pub(super) fn print_totals(mut self) -> Result<u64> {
        self.bar.finish_and_clear();
        let totals = &mut self.totals;
        totals.seconds = self.started_at.elapsed().as_secs_f64();
        if self.json {
            outln!("{}", serde_json::to_string(totals)?);
        } else {
            outln!("{totals}");
        }
        Ok(totals.differ + totals.missing + totals.unfinished + totals.unreadable)
    }
}

impl Finding {
    fn json(&self) -> serde_json::Value {
        let (status, reason) = self.kind.label();
        with_path(
            &self.path,
            serde_json::json!({ "status": status, "reason": reason }),
        )
    }
}

impl FindingKind {
    fn label(&self) -> (&str, Option<&str>) {
        match self {
            Self::Differs(why) => ("differs", Some(why)),
            Self::Missing => ("missing", None),
            Self::Unfinished => (
                "unfinished",
                Some(
                    "its copy was interrupted, or is running: run it again, with --delete if its source is gone",
                ),
            ),
            Self::Unknown => ("unknown", None),
            Self::Unreadable(why) => ("unreadable", Some(why)),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = Printable(&self.path);
        match self.kind.label() {
            (found, Some(why)) => write!(f, "{found} {path}: {why}"),
            (found, None) => write!(f, "{found} {path}"),
        }
    }
}

impl fmt::Display for Totals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rate = BitRate::measured((self.bytes as f64 * 8.0 / self.seconds.max(1e-9)) as u64);
        write!(f, "{} unchanged", self.unchanged)?;
        for (count, what) in [
            (self.differ, "differ"),
            (self.missing, "missing"),
            (self.unfinished, "unfinished"),
            (self.unreadable, "unreadable"),
            (self.unknown, "unknown"),
        ] {
            if count > 0 {
                write!(f, ", {count} {what}")?;
            }
        }
        let bytes = Bytes::new(self.bytes);
        write!(f, "; {bytes} read in {:.1} s ({rate})", self.seconds)?;
        match self.hole_bytes {
            0 => Ok(()),
            holes => write!(f, ", {} in holes", Bytes::new(holes)),
        }
    }
}
