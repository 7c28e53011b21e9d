// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is said of a tree: each finding as it comes, how far it is, and the totals.

use super::files::{Found, What};
use crate::copy::progress::plan::with_path;
use anyhow::Result;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use longhaul_command::outln;
use longhaul_store::path::Shown;
use longhaul_units::{BitRate, Bytes};
use serde::Serialize;
use std::{
    fmt,
    io::{IsTerminal, stderr},
    time::{Duration, Instant},
};

/// Whoever waits for less than this needs no bar.
const PATIENCE: Duration = Duration::from_secs(2);
/// Redraws a second.
const RATE: u8 = 4;

/// What was found so far.
#[derive(Debug)]
pub(super) struct Findings {
    json: bool,
    totals: Totals,
    began: Instant,
    bar: ProgressBar,
}

/// Files by what was found of them.
#[derive(Debug, Default, Serialize)]
struct Totals {
    same: u64,
    differ: u64,
    missing: u64,
    unknown: u64,
    unreadable: u64,
    bytes: u64,
    seconds: f64,
}

impl Findings {
    /// Of a tree with so many bytes.
    pub(super) fn new(json: bool, bytes: u64) -> Self {
        let bar = ProgressBar::with_draw_target(Some(bytes), ProgressDrawTarget::hidden());
        let template = "{wide_bar} {bytes} of {total_bytes}, {bytes_per_sec}, {eta} left";
        let style = ProgressStyle::with_template(template);
        Self {
            json,
            totals: Totals::default(),
            began: Instant::now(),
            bar: bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar())),
        }
    }

    /// So many bytes more are read.
    pub(super) fn read(&mut self, bytes: u64) {
        self.totals.bytes += bytes;
        let late = self.began.elapsed() > PATIENCE;
        if late && self.bar.is_hidden() && stderr().is_terminal() {
            let terminal = ProgressDrawTarget::stderr_with_hz(RATE);
            self.bar.set_draw_target(terminal);
        }
        self.bar.set_position(self.totals.bytes);
    }

    /// A file is as it was copied.
    pub(super) fn same(&mut self) {
        self.totals.same += 1;
    }

    /// A file of which something is to be said.
    pub(super) fn say(&mut self, found: &Found) {
        let count = match found.what {
            What::Differs(_) => &mut self.totals.differ,
            What::Missing => &mut self.totals.missing,
            What::Unknown => &mut self.totals.unknown,
            What::Unreadable(_) => &mut self.totals.unreadable,
        };
        *count += 1;
        let json = self.json;
        self.bar.suspend(|| match json {
            true => outln!("{}", found.json()),
            false => outln!("{found}"),
        });
    }

    /// Says the totals; how many files are not as they should be.
    pub(super) fn conclude(mut self) -> Result<u64> {
        self.bar.finish_and_clear();
        let totals = &mut self.totals;
        totals.seconds = self.began.elapsed().as_secs_f64();
        match self.json {
            true => outln!("{}", serde_json::to_string(totals)?),
            false => outln!("{totals}"),
        }
        Ok(totals.differ + totals.missing + totals.unreadable)
    }
}

impl Found {
    fn json(&self) -> serde_json::Value {
        let (found, why) = self.what.words();
        with_path(
            &self.path,
            serde_json::json!({ "found": found, "why": why }),
        )
    }
}

impl What {
    fn words(&self) -> (&str, Option<&str>) {
        match self {
            Self::Differs(why) => ("differs", Some(why)),
            Self::Missing => ("missing", None),
            Self::Unknown => ("unknown", None),
            Self::Unreadable(why) => ("unreadable", Some(why)),
        }
    }
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = Shown(&self.path);
        match self.what.words() {
            (found, Some(why)) => write!(f, "{found} {path}: {why}"),
            (found, None) => write!(f, "{found} {path}"),
        }
    }
}

impl fmt::Display for Totals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rate = BitRate::measured((self.bytes as f64 * 8.0 / self.seconds.max(1e-9)) as u64);
        write!(f, "{} as they were copied", self.same)?;
        for (count, what) in [
            (self.differ, "differ"),
            (self.missing, "missing"),
            (self.unreadable, "unreadable"),
            (self.unknown, "unknown"),
        ] {
            if count > 0 {
                write!(f, ", {count} {what}")?;
            }
        }
        let bytes = Bytes::new(self.bytes);
        write!(f, "; {bytes} read in {:.1} s ({rate})", self.seconds)
    }
}
