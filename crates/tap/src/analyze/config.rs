// SPDX-License-Identifier: MIT OR Apache-2.0
//! Configuration of an analysis, validated, and the split of its memory.
//!
//! Half of `--memory` is for tables (packets in flight, time series), which all flows of a shard share. A
//! quarter is for the other state of open flows. The last quarter is for batches and for the flows in the
//! result, and a part of it for UDP flows. Series and all other flows are written during the analysis, so memory does not grow with the
//! capture.

use super::worker_pool::SHARDS;
use crate::{report::FlowLimits, series::Format};
use anyhow::Result;
use longhaul_command::exit::Refusal;
use longhaul_flow::Settings;
use longhaul_packet::tunnel::UdpTunnels;
use longhaul_units::{Bytes, Time};
use std::path::PathBuf;

/// Default width of the fine bins.
pub(super) const DEFAULT_BIN: Time = Time::from_millis(1);
/// Default memory.
pub(super) const DEFAULT_MEMORY: Bytes = Bytes::new(1_000_000_000);
/// Default number of flows with charts.
pub(super) const DEFAULT_CHARTED_FLOWS: u16 = 20;
/// Width of the coarse bins.
const COARSE_BIN: Time = Time::from_secs(1);
/// Smallest width of the fine bins.
const BIN_MIN: Time = Time::from_micros(10);
/// Smallest amount of memory.
const MEMORY_MIN: Bytes = Bytes::new(16_000_000);
/// Most flows of a shard. Usually the memory limit is reached first; this bound matters with 16 GB of memory or more.
const FLOWS_MAX: usize = 1 << 16;
/// Number of flows in `result.json`, unless more flows have charts.
const LISTED_FLOWS_MIN: usize = 1000;
/// Share of the memory for open UDP flows.
const UDP_SHARE: u64 = 64;

/// Configuration of an analysis.
#[derive(Debug)]
pub(super) struct Config {
    /// Capture files.
    pub(super) files: Vec<PathBuf>,
    /// Output directory, if any.
    pub(super) out: Option<PathBuf>,
    /// Whether the result goes to standard output as JSON.
    pub(super) json: bool,
    pub(super) threads: usize,
    /// Bin widths, the fine one first.
    pub(super) widths: Vec<Time>,
    /// Formats of the series files.
    pub(super) formats: Vec<Format>,
    pub(super) flow_limits: FlowLimits,
    /// Tunnels in UDP that are read.
    pub(super) udp_tunnels: UdpTunnels,
    /// Analysis settings of one shard.
    pub(super) settings: Settings,
    /// Memory of open UDP flows, bytes.
    pub(super) udp_memory_max_bytes: usize,
}

impl Config {
    /// Returns the configuration of an analysis that writes no file and uses a thread a core.
    ///
    /// # Errors
    /// Refuses a value that is out of range, and names its flag.
    pub(super) fn new(files: Vec<PathBuf>, bin: Time, memory: Bytes) -> Result<Self> {
        if !(BIN_MIN..=COARSE_BIN).contains(&bin) {
            return Err(Refusal::usage(format!(
                "--bin-width is {}, but must be {BIN_MIN} to {COARSE_BIN}",
                bin.exact()
            )));
        }
        if memory < MEMORY_MIN {
            return Err(Refusal::usage(format!(
                "--memory is {}, but must be {MEMORY_MIN} at least",
                memory.exact()
            )));
        }
        let mut widths = vec![bin, COARSE_BIN];
        widths.dedup();
        Ok(Self {
            files,
            out: None,
            json: false,
            threads: core_count(),
            settings: settings(memory, &widths),
            udp_memory_max_bytes: (memory.get() / UDP_SHARE) as usize,
            widths,
            formats: Vec::new(),
            flow_limits: flow_limits(DEFAULT_CHARTED_FLOWS.into()),
            udp_tunnels: UdpTunnels::default(),
        })
    }
}

/// Returns the limits for this number of flows with charts.
pub(super) fn flow_limits(charted: usize) -> FlowLimits {
    FlowLimits {
        charted,
        listed: LISTED_FLOWS_MIN.max(charted),
    }
}

/// Returns the settings of one shard, with its share of the memory.
fn settings(memory: Bytes, widths: &[Time]) -> Settings {
    let share = memory.get() / SHARDS as u64;
    Settings {
        bin_widths_ns: widths.iter().map(|width| width.as_nanos()).collect(),
        flows_max: FLOWS_MAX,
        flows_max_bytes: (share / 4) as usize,
        tables_max_bytes: (share / 2) as usize,
        time_series_width_ns: widths[0].as_nanos(),
        ..Settings::default()
    }
}

fn core_count() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}
