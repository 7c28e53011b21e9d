// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checked flags, and how memory is shared out.
//!
//! A flow that is under way takes [`FLOW_BYTES`] and its course; [`Settings`] says what may come to that
//! for what is in flight. So `--memory` sets how many flows are looked at at once, and how long a
//! course may be; series and flows that are over are written as the analysis goes.

use super::{args::Args, crew::SHARDS};
use crate::{
    exit::Refusal,
    tap::{report::Ranks, series::Format},
};
use anyhow::Result;
use model::tap::Settings;
use units::{Bytes, Time};

/// Width of the coarse bins.
const COARSE: Time = Time::from_secs(1);
/// Widths that the fine bins may have.
const BIN_MIN: Time = Time::from_micros(10);
/// Least memory.
const MEMORY_MIN: Bytes = Bytes::new(16_000_000);
/// A flow that is under way: counts, distributions, two widths of bins and the shortest course.
const FLOW_BYTES: u64 = 16 << 10;
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

/// A shard's share of the memory: each flow may take the least there is.
fn settings(memory: Bytes, widths: &[Time]) -> Settings {
    let flows = memory.get() / FLOW_BYTES / SHARDS as u64;
    Settings {
        bin_widths_ns: widths.iter().map(|width| width.as_nanos()).collect(),
        flows_max: flows.max(1) as usize,
        ..Settings::default()
    }
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}
