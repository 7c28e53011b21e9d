// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checked flags, and how memory is shared out.
//!
//! Half of `--memory` is for tables (what is in flight, courses), which all flows of a shard share, a
//! quarter for all the rest of flows that are under way; what is left is for loads and for the flows that
//! the result tells. Series and all other flows are written as the analysis goes, so none of this grows
//! with the capture.

use super::{args::Args, crew::SHARDS};
use crate::flow::Settings;
use crate::{report::Ranks, series::Format};
use anyhow::Result;
use longhaul_command::exit::Refusal;
use longhaul_units::{Bytes, Time};

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
    pub(super) threads: usize,
    pub(super) widths: Vec<Time>,
    pub(super) formats: Vec<Format>,
    pub(super) ranks: Ranks,
    /// Of one shard.
    pub(super) settings: Settings,
}

impl Config {
    /// Refuses what cannot be meant.
    ///
    /// # Errors
    /// A refusal that names the flag.
    pub(super) fn check(args: &Args) -> Result<Self> {
        if !(BIN_MIN..=COARSE).contains(&args.bin) {
            return Err(Refusal::usage(format!(
                "--bin is {}, but must be {BIN_MIN} to {COARSE}",
                args.bin.exact()
            )));
        }
        if args.memory < MEMORY_MIN {
            return Err(Refusal::usage(format!(
                "--memory is {}, but must be {MEMORY_MIN} at least",
                args.memory.exact()
            )));
        }
        let mut widths = vec![args.bin, COARSE];
        widths.dedup();
        let formats = [(args.csv, Format::Csv), (args.parquet, Format::Parquet)];
        let drawn = usize::from(args.flows);
        Ok(Self {
            threads: args.threads.map_or_else(cores, usize::from),
            settings: settings(args.memory, &widths),
            widths,
            formats: formats
                .iter()
                .filter(|(asked, _)| *asked)
                .map(|(_, format)| *format)
                .collect(),
            ranks: Ranks {
                drawn,
                told: TOLD.max(drawn),
            },
        })
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
