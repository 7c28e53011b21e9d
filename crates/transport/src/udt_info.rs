// SPDX-License-Identifier: MIT OR Apache-2.0
//! Conversion of UDT statistics to `TCP_INFO`, in which this program evaluates and shows connections.

use longhaul_linux::tcp_info::TcpInfo;
use longhaul_udt::Stats;
use longhaul_units::Time;

/// Payload of a packet on Ethernet in bytes, to convert limits from bytes to packets.
pub const PACKET_PAYLOAD_LEN: u32 = 1456;

/// Returns the memory of a connection's data buffers, in bytes.
pub fn buffered_bytes(stats: &Stats) -> u64 {
    let packets = u64::from(stats.unsent) + u64::from(stats.unacked) + u64::from(stats.unread);
    packets * stats.payload_max as u64
}

/// Returns statistics as `TCP_INFO`, with packets as segments. Fields without a counterpart in UDT have neutral values.
pub fn tcp_info(stats: &Stats) -> TcpInfo {
    let bytes = |packets: u64| packets * stats.payload_max as u64;
    let window = |packets: u32| bytes(packets.into()).try_into().unwrap_or(u32::MAX);
    let rate = |packets: f64| (packets * stats.payload_max as f64) as u64;
    TcpInfo {
        rtt_us: microseconds(stats.rtt),
        rtt_min_us: stats.rtt_min.map_or(u32::MAX, microseconds),
        cwnd_segments: stats.window,
        mss_bytes: stats.payload_max as u32,
        retransmits: stats.counts.retransmitted.try_into().unwrap_or(u32::MAX),
        delivery_rate_bytes_per_s: rate(stats.arrival_rate),
        acked_bytes: stats.acked_bytes,
        received_bytes: stats.read_bytes,
        notsent_bytes: window(stats.unsent),
        unacked_segments: stats.unacked,
        busy_us: stats.busy.as_nanos() / 1000,
        rwnd_limited_us: 0,
        sndbuf_limited_us: 0,
        app_limited: stats.unsent == 0,
        in_flight_segments: stats.unacked,
        pacing_rate_bytes_per_s: rate(stats.pacing_rate),
        max_pacing_rate_bytes_per_s: u64::MAX,
        sent_bytes: bytes(stats.counts.sent),
        retransmitted_bytes: bytes(stats.counts.retransmitted),
        duplicate_segments: 0,
        send_window_bytes: window(stats.flow_window),
        receive_window_bytes: window(stats.receive_buffer_free),
    }
}

fn microseconds(time: Time) -> u32 {
    (time.as_nanos() / 1000).try_into().unwrap_or(u32::MAX)
}
