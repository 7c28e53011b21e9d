// SPDX-License-Identifier: MIT OR Apache-2.0
//! Live output without a terminal: plain lines, or JSON.

use super::{
    flow_sampler::{FlowSample, Snapshot},
    history::{
        DisplayRow, History, SortKey, format_packets_per_ack, format_rate, format_rtt,
        packets_per_ack, rtt_ns,
    },
};
use jiff::Timestamp;
use longhaul_flow::bin::Bin;
use longhaul_units::Bytes;
use serde::Serialize;
use std::io::{self, Write};

/// Maximum number of flows per second in plain lines; JSON has all flows.
const LINES_MAX: usize = 10;

/// JSON record of a flow and second; an idle direction is null.
#[derive(Serialize)]
struct Record<'a> {
    at: String,
    interface: &'a str,
    client: String,
    server: String,
    upload: Option<DirectionRecord>,
    download: Option<DirectionRecord>,
}

/// Data of one direction and the ACKs for it, in one second.
#[derive(Serialize)]
struct DirectionRecord {
    data_bps: u64,
    data_segments: u32,
    acked_bps: u64,
    acks: u32,
    packets_per_ack: Option<f64>,
    duplicate_acks: u32,
    ack_diff_max_bytes: u32,
    retransmissions: u32,
    retransmitted_bytes: u64,
    rtt_ns: Option<u64>,
    rtt_min_ns: Option<u64>,
    in_flight_max_bytes: u64,
    window_min_bytes: Option<u32>,
}

impl DirectionRecord {
    fn of(bin: &Bin) -> Option<Self> {
        (!bin.is_empty()).then(|| Self {
            data_bps: bin.data_bytes.saturating_mul(8),
            data_segments: bin.data_segments,
            acked_bps: bin.acked_bytes.saturating_mul(8),
            acks: bin.acks,
            packets_per_ack: packets_per_ack(bin),
            duplicate_acks: bin.duplicate_acks,
            ack_diff_max_bytes: bin.ack_diff_max,
            retransmissions: bin.retransmissions,
            retransmitted_bytes: bin.retransmitted_bytes,
            rtt_ns: rtt_ns(bin),
            rtt_min_ns: (bin.rtt_samples > 0).then_some(bin.rtt_min_ns),
            in_flight_max_bytes: bin.in_flight_max,
            window_min_bytes: bin.window_min,
        })
    }
}

/// Writes a JSON line for every flow of a second.
pub(super) fn write_json(
    snapshot: &Snapshot,
    interfaces: &[String],
    out: &mut impl Write,
) -> io::Result<()> {
    for sample in &snapshot.flows {
        let record = record(snapshot, sample, &interfaces[snapshot.interface]);
        writeln!(out, "{}", serde_json::to_string(&record)?)?;
    }
    out.flush()
}

fn record<'a>(snapshot: &Snapshot, sample: &FlowSample, interface: &'a str) -> Record<'a> {
    Record {
        at: format_time(snapshot.second),
        interface,
        client: sample.endpoints[0].to_string(),
        server: sample.endpoints[1].to_string(),
        upload: DirectionRecord::of(&sample.directions[0]),
        download: DirectionRecord::of(&sample.directions[1]),
    }
}

fn format_time(second: u64) -> String {
    let at = Timestamp::from_second(second as i64);
    at.map_or_else(|_| second.to_string(), |at| at.to_string())
}

/// Writes a line for each of the fastest flows of one interface.
pub(super) fn write_plain(
    snapshot: &Snapshot,
    history: &History,
    out: &mut impl Write,
) -> io::Result<()> {
    let rows = history.rows(SortKey::Rate);
    let active = |row: &&DisplayRow<'_>| row.id.0 == snapshot.interface && !row.now.is_empty();
    for row in rows.iter().filter(active).take(LINES_MAX) {
        writeln!(out, "{}", line(snapshot, row))?;
    }
    out.flush()
}

fn line(snapshot: &Snapshot, row: &DisplayRow<'_>) -> String {
    let now = &row.now;
    format!(
        "{} {} {} → {}: {}, {} ACK/s, {} packets per ACK, {} retransmissions, RTT {}, {} in flight",
        format_time(snapshot.second),
        row.interface,
        row.sender,
        row.receiver,
        format_rate(now.data_bytes),
        now.acks,
        format_packets_per_ack(now),
        now.retransmissions,
        format_rtt(now),
        Bytes::new(now.in_flight_max),
    )
}

#[cfg(test)]
mod tests {
    use super::super::history::tests::{sample, snapshot};
    use super::*;

    #[test]
    fn prints_a_second_as_lines_and_json() {
        let names = ["eth0".to_owned()];
        let snapshot = snapshot(1_700_000_000, vec![sample(1, 144_800, 50), sample(2, 1, 0)]);
        let mut history = History::new(&names);
        history.add(snapshot.clone());
        let mut out = Vec::new();
        write_plain(&snapshot, &history, &mut out).unwrap();
        write_json(&snapshot, &names, &mut out).unwrap();
        insta::assert_snapshot!(String::from_utf8(out).unwrap());
    }
}
