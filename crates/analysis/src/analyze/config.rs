// SPDX-License-Identifier: MIT OR Apache-2.0
//! What an analysis is asked for, checked, and how memory is shared out.
//!
//! Half of `--memory` is for tables (what is in flight, courses), which all flows of a shard share, a
//! quarter for all the rest of flows that are under way; what is left is for loads and for the flows that
//! the result tells. Series and all other flows are written as the analysis goes, so none of this grows
//! with the capture.

use super::crew::SHARDS;
use crate::{report::Ranks, series::Format};
use anyhow::Result;
use longhaul_command::exit::Refusal;
use longhaul_flow::Settings;
use longhaul_units::{Bytes, Time};
use std::path::PathBuf;

/// Width of the fine bins, if no other is asked for.
pub(super) const BIN: Time = Time::from_millis(1);
/// Memory, if no other is asked for.
pub(super) const MEMORY: Bytes = Bytes::new(1_000_000_000);
/// Flows that are drawn, if no other number is asked for.
pub(super) const DRAWN: u16 = 20;
/// Width of the coarse bins.
const COARSE: Time = Time::from_secs(1);
/// Widths that the fine bins may have.
const BIN_MIN: Time = Time::from_micros(10);
/// Least memory.
const MEMORY_MIN: Bytes = Bytes::new(16_000_000);
/// Flows of a shard: what they take is the bound, this one is for sixteen GB of memory.
const FLOWS_MAX: usize = 1 << 16;
/// Flows that `result.json` tells, if not more are drawn.
const TOLD: usize = 1000;

/// What shall be done.
#[derive(Debug)]
pub(super) struct Config {
    /// Captures.
    pub(super) files: Vec<PathBuf>,
    /// Where all is written, if anywhere.
    pub(super) out: Option<PathBuf>,
    /// Whether the result goes to standard output as JSON.
    pub(super) json: bool,
    pub(super) threads: usize,
    /// Of bins, fine ones first.
    pub(super) widths: Vec<Time>,
    /// Of series.
    pub(super) formats: Vec<Format>,
    pub(super) ranks: Ranks,
    /// Of one shard.
    pub(super) settings: Settings,
}

impl Config {
    /// An analysis of these files that writes nothing, with a thread a core.
    ///
    /// # Errors
    /// A refusal that names the flag.
    pub(super) fn new(files: Vec<PathBuf>, bin: Time, memory: Bytes) -> Result<Self> {
        if !(BIN_MIN..=COARSE).contains(&bin) {
            return Err(Refusal::usage(format!(
                "--bin is {}, but must be {BIN_MIN} to {COARSE}",
                bin.exact()
            )));
        }
        if memory < MEMORY_MIN {
            return Err(Refusal::usage(format!(
                "--memory is {}, but must be {MEMORY_MIN} at least",
                memory.exact()
            )));
        }
        let mut widths = vec![bin, COARSE];
        widths.dedup();
        Ok(Self {
            files,
            out: None,
            json: false,
            threads: cores(),
            settings: settings(memory, &widths),
            widths,
            formats: Vec::new(),
            ranks: ranks(DRAWN.into()),
        })
    }
}

/// Of so many flows that are drawn.
pub(super) fn ranks(drawn: usize) -> Ranks {
    Ranks {
        drawn,
        told: TOLD.max(drawn),
    }
}

/// A shard's share of the memory.
fn settings(memory: Bytes, widths: &[Time]) -> Settings {
    let share = memory.get() / SHARDS as u64;
    Settings {
        bin_widths_ns: widths.iter().map(|width| width.as_nanos()).collect(),
        flows_max: FLOWS_MAX,
        flows_max_bytes: (share / 4) as usize,
        tables_max_bytes: (share / 2) as usize,
        course_width_ns: widths[0].as_nanos(),
        ..Settings::default()
    }
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}
