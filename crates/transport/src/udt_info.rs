// SPDX-License-Identifier: MIT OR Apache-2.0
//! How a connection fares, in the terms of TCP, in which this program judges and shows connections.

use longhaul_linux::tcp_info::TcpInfo;
use longhaul_udt::Stats;
use longhaul_units::Time;

/// Bytes that a packet carries on an Ethernet, for who counts in packets what was said in bytes.
pub const PACKET_PAYLOAD_LEN: u32 = 1456;

/// Memory that a connection holds for data, in bytes.
pub fn buffered_bytes(report: &Stats) -> u64 {
    let packets = u64::from(report.unsent) + u64::from(report.unacked) + u64::from(report.unread);
    packets * report.payload_max as u64
}

/// What TCP_INFO would say: packets are segments. What it has beyond that is not known.
pub fn tcp_info(report: &Stats) -> TcpInfo {
    let bytes = |packets: u64| packets * report.payload_max as u64;
    let window = |packets: u32| bytes(packets.into()).try_into().unwrap_or(u32::MAX);
    let rate = |packets: f64| (packets * report.payload_max as f64) as u64;
    TcpInfo {
        rtt_us: microseconds(report.rtt),
        rtt_min_us: report.rtt_min.map_or(u32::MAX, microseconds),
        cwnd_segments: report.window,
        mss_bytes: report.payload_max as u32,
        retransmits: report.counts.retransmitted.try_into().unwrap_or(u32::MAX),
        delivery_rate_bytes_per_s: rate(report.arrival_rate),
        acked_bytes: report.acked_bytes,
        received_bytes: report.read_bytes,
        notsent_bytes: window(report.unsent),
        unacked_segments: report.unacked,
        busy_us: report.busy.as_nanos() / 1000,
        rwnd_limited_us: 0,
        sndbuf_limited_us: 0,
        app_limited: report.unsent == 0,
        in_flight_segments: report.unacked,
        pacing_rate_bytes_per_s: rate(report.pacing_rate),
        max_pacing_rate_bytes_per_s: u64::MAX,
        sent_bytes: bytes(report.counts.sent),
        retransmitted_bytes: bytes(report.counts.retransmitted),
        duplicate_segments: 0,
        send_window_bytes: window(report.flow_window),
        receive_window_bytes: window(report.receive_buffer_free),
    }
}

fn microseconds(time: Time) -> u32 {
    (time.as_nanos() / 1000).try_into().unwrap_or(u32::MAX)
}
