// SPDX-License-Identifier: MIT OR Apache-2.0
//! `TCP_INFO` of a socket, with the fields that libc's older struct lacks.

use super::option::{PlainOption, get_option};
use serde::{Deserialize, Serialize};
use std::{io, os::fd::AsFd, time::Duration};

/// include/uapi/linux/tcp.h, `struct tcp_info`, up to `tcpi_rehash` (Linux 6.2). Older or newer
/// kernels fill less or have more; fields that are not filled stay zero.
#[repr(C)]
#[derive(Debug, Default, Clone, Copy)]
struct Raw {
    state: u8,
    ca_state: u8,
    retransmits: u8,
    probes: u8,
    backoff: u8,
    options: u8,
    wscale: u8,
    flags: u8,
    rto: u32,
    ato: u32,
    snd_mss: u32,
    rcv_mss: u32,
    unacked: u32,
    sacked: u32,
    lost: u32,
    retrans: u32,
    fackets: u32,
    last_data_sent: u32,
    last_ack_sent: u32,
    last_data_recv: u32,
    last_ack_recv: u32,
    pmtu: u32,
    rcv_ssthresh: u32,
    rtt: u32,
    rttvar: u32,
    snd_ssthresh: u32,
    snd_cwnd: u32,
    advmss: u32,
    reordering: u32,
    rcv_rtt: u32,
    rcv_space: u32,
    total_retrans: u32,
    pacing_rate: u64,
    max_pacing_rate: u64,
    bytes_acked: u64,
    bytes_received: u64,
    segs_out: u32,
    segs_in: u32,
    notsent_bytes: u32,
    min_rtt: u32,
    data_segs_in: u32,
    data_segs_out: u32,
    delivery_rate: u64,
    busy_time: u64,
    rwnd_limited: u64,
    sndbuf_limited: u64,
    delivered: u32,
    delivered_ce: u32,
    bytes_sent: u64,
    bytes_retrans: u64,
    dsack_dups: u32,
    reord_seen: u32,
    rcv_ooopack: u32,
    snd_wnd: u32,
    rcv_wnd: u32,
    rehash: u32,
}

/// `tcpi_delivery_rate_app_limited`, the first bit of the byte after the window scales (on
/// little-endian machines, the only ones supported).
const APP_LIMITED: u8 = 1;

/// State of a TCP connection, as its kernel socket reports it.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TcpInfo {
    /// Smoothed round-trip time in microseconds.
    pub rtt_us: u32,
    /// The smallest round-trip time seen, in microseconds; `u32::MAX` before the first sample.
    pub rtt_min_us: u32,
    /// Congestion window in segments.
    pub cwnd_segments: u32,
    /// Sender's segment size in bytes.
    pub mss_bytes: u32,
    /// Segments retransmitted since the start.
    pub retransmits: u32,
    /// The newest delivery-rate sample in bytes a second.
    pub delivery_rate_bytes_per_s: u64,
    /// Bytes sent and acknowledged.
    pub acked_bytes: u64,
    /// Bytes received in order.
    pub received_bytes: u64,
    /// Bytes in the send buffer that have not been sent yet.
    pub notsent_bytes: u32,
    /// Segments in flight.
    pub unacked_segments: u32,
    /// Time with data in flight or waiting, in microseconds.
    pub busy_us: u64,
    /// Part of it that the peer's receive window limited, in microseconds.
    pub rwnd_limited_us: u64,
    /// Part of it that the send buffer limited, in microseconds.
    pub sndbuf_limited_us: u64,
    /// Whether the application's data limited the delivery-rate sample.
    #[serde(default)]
    pub app_limited: bool,
    /// Segments in the network by the sender's estimate: without those that were selectively
    /// acknowledged or are considered lost (include/net/tcp.h, `tcp_packets_in_flight`).
    #[serde(default)]
    pub in_flight_segments: u32,
    /// Current pacing rate, in bytes a second; `u64::MAX` is no limit.
    #[serde(default)]
    pub pacing_rate_bytes_per_s: u64,
    /// Largest pacing rate (`SO_MAX_PACING_RATE`), in bytes a second; `u64::MAX` is no limit.
    #[serde(default)]
    pub max_pacing_rate_bytes_per_s: u64,
    /// Payload bytes sent, retransmitted ones included (Linux 4.19).
    #[serde(default)]
    pub sent_bytes: u64,
    /// Payload bytes retransmitted (Linux 4.19).
    #[serde(default)]
    pub retransmitted_bytes: u64,
    /// Retransmitted segments of which the receiver had a copy (DSACK, RFC 3708; Linux 4.19).
    #[serde(default)]
    pub duplicate_segments: u32,
    /// Receive window that the peer advertises, in bytes (Linux 5.4).
    #[serde(default)]
    pub send_window_bytes: u32,
    /// Receive window that this host advertises, in bytes (Linux 6.2; 0 before).
    #[serde(default)]
    pub receive_window_bytes: u32,
}

impl TcpInfo {
    /// Reads the TCP_INFO of a socket.
    pub fn of(socket: impl AsFd) -> io::Result<Self> {
        let raw: Raw = get_option(socket, libc::IPPROTO_TCP, libc::TCP_INFO)?;
        Ok(raw.into())
    }

    /// Returns the congestion window in bytes.
    pub fn cwnd_bytes(&self) -> u64 {
        u64::from(self.cwnd_segments) * u64::from(self.mss_bytes)
    }

    /// Returns the round-trip time of the path without the queues on it.
    pub fn base_rtt(&self) -> Duration {
        Duration::from_micros(self.rtt_us.min(self.rtt_min_us).into())
    }
}

impl From<Raw> for TcpInfo {
    fn from(raw: Raw) -> Self {
        Self {
            rtt_us: raw.rtt,
            rtt_min_us: raw.min_rtt,
            cwnd_segments: raw.snd_cwnd,
            mss_bytes: raw.snd_mss,
            retransmits: raw.total_retrans,
            delivery_rate_bytes_per_s: raw.delivery_rate,
            acked_bytes: raw.bytes_acked,
            received_bytes: raw.bytes_received,
            notsent_bytes: raw.notsent_bytes,
            unacked_segments: raw.unacked,
            busy_us: raw.busy_time,
            rwnd_limited_us: raw.rwnd_limited,
            sndbuf_limited_us: raw.sndbuf_limited,
            app_limited: raw.flags & APP_LIMITED != 0,
            in_flight_segments: raw.in_flight(),
            pacing_rate_bytes_per_s: raw.pacing_rate,
            max_pacing_rate_bytes_per_s: raw.max_pacing_rate,
            sent_bytes: raw.bytes_sent,
            retransmitted_bytes: raw.bytes_retrans,
            duplicate_segments: raw.dsack_dups,
            send_window_bytes: raw.snd_wnd,
            receive_window_bytes: raw.rcv_wnd,
        }
    }
}

impl Raw {
    fn in_flight(&self) -> u32 {
        let left = self.sacked + self.lost;
        (self.unacked + self.retrans).saturating_sub(left)
    }
}

// SAFETY: integers only, no padding, so any bytes the kernel writes make a value.
unsafe impl PlainOption for Raw {}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        io::{Read, Write},
        net::{TcpListener, TcpStream},
    };

    #[test]
    fn layout_matches_the_kernel() {
        assert_eq!(std::mem::offset_of!(Raw, pacing_rate), 104);
        assert_eq!(std::mem::offset_of!(Raw, delivery_rate), 160);
        assert_eq!(std::mem::offset_of!(Raw, sndbuf_limited), 184);
        assert_eq!(std::mem::offset_of!(Raw, snd_wnd), 228);
        assert_eq!(size_of::<Raw>(), 240);
    }

    #[test]
    fn in_flight_includes_retransmits_and_excludes_sacked_segments() {
        let raw = Raw {
            unacked: 10,
            sacked: 3,
            lost: 2,
            retrans: 1,
            flags: 0b101,
            ..Raw::default()
        };
        let info = TcpInfo::from(raw);
        assert_eq!(info.in_flight_segments, 6);
        assert!(info.app_limited);
    }

    #[test]
    fn counts_bytes_of_a_connection() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        client.write_all(&[0; 1000]).unwrap();
        server.read_exact(&mut [0; 1000]).unwrap();
        assert_eq!(TcpInfo::of(&server).unwrap().received_bytes, 1000);
        let info = TcpInfo::of(&client).unwrap();
        assert!(info.cwnd_segments > 0);
        assert_eq!((info.sent_bytes, info.retransmitted_bytes), (1000, 0));
        assert!(info.send_window_bytes > 1000);
        assert!(info.app_limited, "the sender had only 1000 bytes");
    }
}
