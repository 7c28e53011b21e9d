// SPDX-License-Identifier: MIT OR Apache-2.0
//! `result.json`: what an analysis says. The page, the terminal and other people's scripts read this
//! and nothing else, so names and units here do not change lightly.
//!
//! Names end in units: `_ns` (of moments: since 1970, UTC), `_bytes`, `_bps` (bits a second); no unit
//! means a count. Optional parts are absent, never null.

pub(super) mod by_line;
pub(super) mod course;
pub(super) mod excerpts;
pub(super) mod finished;
pub(super) mod largest;

use longhaul_flow::{
    record::{BothEnds, Flow},
    segment::Vantage,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Version of this format. It grows when something that was there is gone or means something else;
/// what is added does not change it.
pub(crate) const SCHEMA: u32 = 1;

/// Damages that are told apart for each file; more are counted.
pub(crate) const DAMAGES_MAX: usize = 100;

/// The whole file.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Analysis {
    /// [`SCHEMA`] of the version that wrote it.
    pub(crate) schema: u32,
    /// Version of longhaul that wrote it.
    pub(crate) longhaul: String,
    /// Widths of the bins of the series, ns, ascending.
    pub bins_ns: Vec<u64>,
    /// What was read, in the order of the command line.
    pub(crate) files: Vec<CaptureFile>,
    /// Where packets were seen; a flow's `vantage` is an index.
    pub vantages: Vec<VantagePoint>,
    /// The largest flows, most payload first.
    pub flows: Vec<Flow>,
    /// Flows that were seen at two places, compared.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) both_ends: Vec<BothEnds>,
    /// All others, summed.
    pub(crate) others: Others,
    /// Files beside this one: series, and what `others` says.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) raw: Vec<String>,
}

impl Analysis {
    /// What people call this place, if there is more than one.
    pub(crate) fn place(&self, vantage: Vantage) -> Option<&str> {
        let point = self.vantages.get(vantage.0 as usize)?;
        (self.vantages.len() > 1).then_some(point.name.as_str())
    }
}

/// One capture.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct CaptureFile {
    /// As on the command line.
    pub(crate) name: String,
    /// `pcap` or `pcapng`, and what it was packed with.
    pub(crate) format: String,
    /// Bytes that were read.
    pub(crate) bytes: u64,
    /// Packets in it.
    pub(crate) packets: u64,
    /// The first packet's time. Absent in an empty file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) first_ns: Option<u64>,
    /// The last packet's time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) last_ns: Option<u64>,
    /// Packets that the capturing kernel dropped, if the file says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) kernel_drops: Option<u64>,
    /// What was unsound, at most [`DAMAGES_MAX`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) damages: Vec<Damage>,
    /// Damages beyond those.
    #[serde(default)]
    pub(crate) damages_more: u64,
    /// Packets that were not analysed, by reason.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) left_out: BTreeMap<String, u64>,
}

/// Something in a file that is not as it should be.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Damage {
    /// Where, in bytes from the file's beginning.
    pub(crate) at_byte: u64,
    /// What, in words.
    pub(crate) what: String,
}

/// Where packets were seen: an interface of a file, or of files that continue each other.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VantagePoint {
    /// The interface's name in the file, or the file's name.
    pub name: String,
    /// Index of the first file.
    pub(crate) file: usize,
    /// The interface's number in that file.
    pub(crate) interface: u32,
    /// Packets that were analysed.
    pub(crate) packets: u64,
}

/// Flows that are not told one by one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Others {
    /// How many.
    pub(crate) flows: u64,
    /// Packets of both directions.
    pub(crate) packets: u64,
    /// IP bytes on the wire of both directions.
    pub(crate) wire_bytes: u64,
    /// Payload of both directions, counted once.
    pub(crate) unique_bytes: u64,
}
