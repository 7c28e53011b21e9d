// SPDX-License-Identifier: MIT OR Apache-2.0
//! `result.json`: the result of an analysis. The page, the terminal and users' scripts read nothing else, so names
//! and units in it are stable.
//!
//! Names end in units: `_ns` (for points in time: since 1970, UTC), `_bytes`, `_bps` (bits a second); no unit
//! means a count. Optional parts are absent, never null.

pub(super) mod analysis_report;
pub(super) mod chart_series;
pub(super) mod largest_flows;
pub(super) mod largest_udp_flows;
pub(super) mod line_formatter;
pub(super) mod packet_windows;

use longhaul_flow::{
    record::{Flow, TwoPointComparison},
    segment::CapturePoint,
    udp::UdpFlow,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Version of this format. It increases when a member is removed or changes its meaning, but not when one is
/// added.
pub(crate) const SCHEMA: u32 = 2;

/// Maximum number of damaged parts that are listed for each file. Further ones are counted.
pub(crate) const DAMAGES_MAX: usize = 100;

/// Content of `result.json`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Analysis {
    /// [`SCHEMA`] of the version that wrote it.
    pub(crate) schema: u32,
    /// Version of longhaul that wrote it.
    pub(crate) longhaul: String,
    /// Widths of the bins of the series, ns, ascending.
    pub bins_ns: Vec<u64>,
    /// Capture files, in the order of the command line.
    pub(crate) files: Vec<CaptureFile>,
    /// Capture points. A flow's `capture_point` is an index of this list.
    pub capture_points: Vec<CapturePointInfo>,
    /// The largest flows, most payload first.
    pub flows: Vec<Flow>,
    /// Comparisons of flows that were captured at two points.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) two_point_comparisons: Vec<TwoPointComparison>,
    /// Sum of all other flows.
    pub(crate) remainder: Remainder,
    /// The largest UDP flows, most payload first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) udp_flows: Vec<UdpFlow>,
    /// Sum of all other UDP flows.
    #[serde(default, skip_serializing_if = "UdpRemainder::is_empty")]
    pub(crate) udp_remainder: UdpRemainder,
    /// Other files in the directory: series, and the flows summed in `remainder`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) other_files: Vec<String>,
}

impl Analysis {
    /// Returns the number of UDP flows, and how many of them are of QUIC.
    pub(crate) fn udp_flow_counts(&self) -> (u64, u64) {
        let quic = self.udp_flows.iter().filter(|flow| flow.quic.is_some());
        (
            self.udp_flows.len() as u64 + self.udp_remainder.flows,
            quic.count() as u64 + self.udp_remainder.quic_flows,
        )
    }

    /// Returns the name of a capture point, if there is more than one.
    pub(crate) fn capture_point_name(&self, capture_point: CapturePoint) -> Option<&str> {
        let point = self.capture_points.get(capture_point.0 as usize)?;
        (self.capture_points.len() > 1).then_some(point.name.as_str())
    }
}

/// Capture file.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct CaptureFile {
    /// Path, as on the command line.
    pub(crate) name: String,
    /// Format, `pcap` or `pcapng`, and compression.
    pub(crate) format: String,
    /// Number of bytes read, uncompressed.
    pub(crate) bytes: u64,
    /// Number of packets.
    pub(crate) packets: u64,
    /// Time of the first packet. Absent in an empty file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) first_ns: Option<u64>,
    /// Time of the last packet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) last_ns: Option<u64>,
    /// Packets that the capturing kernel dropped, if the file has this counter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) kernel_drops: Option<u64>,
    /// Sentences about parts of the file that were analysed otherwise than they are written.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) warnings: Vec<String>,
    /// Damaged parts, at most [`DAMAGES_MAX`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) damages: Vec<Damage>,
    /// Number of damaged parts that are not listed.
    #[serde(default)]
    pub(crate) unlisted_damages: u64,
    /// Number of packets that were not analysed, by reason.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) skipped: BTreeMap<String, u64>,
}

/// Damaged part of a file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Damage {
    /// Position, in bytes from the beginning of the file.
    pub(crate) at_byte: u64,
    /// Description for the user.
    pub(crate) description: String,
}

/// Capture point: an interface of a file, or of files that continue each other.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CapturePointInfo {
    /// The interface's name in the file, or the file's name.
    pub name: String,
    /// Index in `files` of the first file.
    pub(crate) file: usize,
    /// The interface's number in that file.
    pub(crate) interface: u32,
    /// Number of packets analysed.
    pub(crate) packets: u64,
}

/// Sum of the flows that are not listed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Remainder {
    /// Number of flows.
    pub(crate) flows: u64,
    /// Packets of both directions.
    pub(crate) packets: u64,
    /// IP bytes on the wire of both directions.
    pub(crate) wire_bytes: u64,
    /// Payload of both directions, each byte counted once.
    pub(crate) unique_bytes: u64,
}

/// Sum of the UDP flows that are not listed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct UdpRemainder {
    /// Number of flows.
    pub(crate) flows: u64,
    /// Number of flows of QUIC among them.
    pub(crate) quic_flows: u64,
    /// Packets of both directions.
    pub(crate) packets: u64,
    /// IP bytes on the wire of both directions.
    pub(crate) wire_bytes: u64,
    /// Payload of both directions.
    pub(crate) payload_bytes: u64,
}

impl UdpRemainder {
    fn is_empty(&self) -> bool {
        self.flows == 0
    }
}
