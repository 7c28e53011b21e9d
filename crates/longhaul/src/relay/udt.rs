// SPDX-License-Identifier: MIT OR Apache-2.0
//! Legs over UDT: what a profile means for them, and the ports that they come and go by.

use super::{failure::Failure, profile::Profile};
use host::tcp_info::TcpInfo;
use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::{Arc, Mutex, PoisonError},
};
use udt::{Config, Mode, Report, congestion::Native};

pub(crate) use udt::socket::{Socket, Stream};

/// Bytes that a buffer has if the profile does not say: 1 Gbit/s over 380 ms. A ring of the system's memory, which gives it
/// when it is first used.
const BUFFER: usize = 48 << 20;

/// Bytes of a packet with all headers, if the profile does not say: Ethernet's.
const MSS: u32 = 1500;

/// What a profile asks for that UDT has not.
pub(crate) fn problem(profile: &Profile) -> Option<&'static str> {
    let options = &profile.options;
    let asked = [
        ("congestion_control", options.congestion_control.is_some()),
        ("pacing_rate", options.pacing_rate.is_some()),
        ("notsent_lowat", options.notsent_lowat.is_some()),
        ("keepalive", options.keepalive.is_some()),
        ("dscp", options.dscp.is_some()),
        ("initial_window", options.initial_window.is_some()),
    ];
    let lacked = asked.into_iter().find(|(_, asked)| *asked);
    lacked.map(|(name, _)| name)
}

/// Takes a UDP port that other relays may connect to.
pub(crate) fn listen(at: SocketAddr, profile: &Profile) -> io::Result<Socket> {
    let socket = bind(at, profile)?;
    socket.listen();
    Ok(socket)
}

fn bind(at: SocketAddr, profile: &Profile) -> io::Result<Socket> {
    let control = |first: udt::Seq, window| {
        let native = Native::new(first, window, first.get().into());
        Box::new(native) as Box<dyn udt::congestion::Control>
    };
    Socket::bind(at, config(profile), Box::new(control))
}

fn config(profile: &Profile) -> Config {
    let options = &profile.options;
    let mss = options.mss.unwrap_or(MSS);
    let packets = |bytes: Option<usize>| {
        let packets = bytes.unwrap_or(BUFFER) / mss as usize;
        u32::try_from(packets).unwrap_or(u32::MAX).max(32)
    };
    let silence = options.user_timeout.map(units::Time::from);
    Config {
        mode: Mode::Stream,
        mss,
        send_packets: packets(options.send_buffer),
        receive_packets: packets(options.receive_buffer),
        silence: silence.unwrap_or(Config::default().silence),
    }
}

/// The port that legs to a peer leave by, taken when the first one does.
#[derive(Debug, Default)]
pub(crate) struct Departure(Mutex<Option<Arc<Socket>>>);

impl Departure {
    pub(crate) async fn connect(
        &self,
        to: SocketAddr,
        profile: &Profile,
    ) -> Result<Stream, Failure> {
        let socket = self.socket(to, profile);
        let connected = match socket {
            Ok(socket) => socket.connect(to).await,
            Err(error) => Err(error),
        };
        connected.map_err(|error| match error.kind() {
            io::ErrorKind::TimedOut => Failure::TimedOut,
            io::ErrorKind::ConnectionRefused => Failure::Refused,
            _ => {
                // The next leg takes another: this one may be broken.
                self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
                Failure::from_connect(&error)
            }
        })
    }

    fn socket(&self, to: SocketAddr, profile: &Profile) -> io::Result<Arc<Socket>> {
        let mut socket = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(socket) = &*socket {
            return Ok(socket.clone());
        }
        let any = match to.ip() {
            IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        };
        let taken = Arc::new(bind((any, 0).into(), profile)?);
        Ok(socket.insert(taken).clone())
    }
}

/// Memory that a connection holds for data, in bytes.
pub(crate) fn held_bytes(report: &Report) -> u64 {
    let packets = u64::from(report.unsent) + u64::from(report.under_way) + u64::from(report.unread);
    packets * report.payload_max as u64
}

/// The same in the terms of TCP, by which legs are judged and shown: packets are its segments. What TCP_INFO has
/// beyond that is not known.
pub(crate) fn tcp_terms(report: &Report) -> TcpInfo {
    let bytes = |packets: u64| packets * report.payload_max as u64;
    let window = |packets: u32| bytes(packets.into()).try_into().unwrap_or(u32::MAX);
    let rate = |packets: f64| (packets * report.payload_max as f64) as u64;
    let microseconds = report.rtt.as_nanos() / 1000;
    TcpInfo {
        rtt_us: microseconds.try_into().unwrap_or(u32::MAX),
        rtt_min_us: u32::MAX,
        cwnd_segments: report.window,
        mss_bytes: report.payload_max as u32,
        retransmits: report.counts.sent_again.try_into().unwrap_or(u32::MAX),
        delivery_rate_bytes_per_s: rate(report.arrival),
        acked_bytes: report.acked_bytes,
        received_bytes: report.read_bytes,
        notsent_bytes: window(report.unsent),
        unacked_segments: report.under_way,
        busy_us: 0,
        rwnd_limited_us: 0,
        sndbuf_limited_us: 0,
        app_limited: report.unsent == 0,
        in_flight_segments: report.under_way,
        pacing_rate_bytes_per_s: rate(report.rate),
        max_pacing_rate_bytes_per_s: u64::MAX,
        sent_bytes: bytes(report.counts.sent),
        retransmitted_bytes: bytes(report.counts.sent_again),
        duplicate_segments: 0,
        send_window_bytes: window(report.flow_window),
        receive_window_bytes: window(report.room),
    }
}
