// SPDX-License-Identifier: MIT OR Apache-2.0
//! Send buffers beyond the kernel's bound.
//!
//! The kernel enlarges a send buffer with the congestion window, up to the third value of `net.ipv4.tcp_wmem`. With
//! CAP_NET_ADMIN a process may go on from there by the same rule (SO_SNDBUFFORCE), also for sockets of other processes.

use super::{socket, tcp_info::TcpInfo};
use std::{io, os::fd::AsFd, time::Duration};

/// Round-trip time from which on a window matters. Below it, a host with default settings carries more than 3 Gbit/s.
pub const RTT_MIN: Duration = Duration::from_millis(5);

/// Linux's default for the third value of `net.ipv4.tcp_wmem`, in bytes.
pub const KERNEL_DEFAULT: u64 = 4 << 20;

/// Largest send buffer that [`enlarge`] sets, in bytes: 1 Gbit/s at 250 ms, twice over for the kernel's bookkeeping, and
/// twice for the growth of a round trip.
const MAX: u64 = 128 << 20;

/// Enlarges the send buffer of a TCP socket if its congestion window will soon outgrow the kernel's bound. Returns the
/// new size in bytes, as the kernel counts it.
///
/// # Errors
///
/// EPERM without CAP_NET_ADMIN.
pub fn enlarge(socket: &impl AsFd, info: &TcpInfo) -> io::Result<Option<u64>> {
    let Some(bytes) = wanted(info) else {
        return Ok(None);
    };
    if socket::send_buffer(socket)? >= bytes {
        return Ok(None);
    }
    socket::force_send_buffer(socket, bytes).map(|()| Some(bytes))
}

/// Returns the send buffer that a connection needs, in bytes, if it may need more than the kernel gives by itself: four
/// congestion windows. Half of it is for the growth of one round trip, and the other half holds the window with the
/// kernel's bookkeeping (`tcp_sndbuf_expand`, net/ipv4/tcp_input.c).
fn wanted(info: &TcpInfo) -> Option<u64> {
    let window = info.cwnd_bytes();
    let wanted = (4 * window).min(MAX);
    (wanted > KERNEL_DEFAULT && info.base_rtt() >= RTT_MIN).then_some(wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(rtt_us: u32, cwnd_segments: u32) -> TcpInfo {
        TcpInfo {
            rtt_us,
            rtt_min_us: rtt_us,
            cwnd_segments,
            mss_bytes: 1000,
            ..TcpInfo::default()
        }
    }

    #[test]
    fn a_window_that_outgrows_the_default_buffer_wants_four_times_its_size() {
        let default_windows = (KERNEL_DEFAULT / 4000) as u32;
        assert_eq!(wanted(&info(100_000, default_windows)), None);
        assert_eq!(wanted(&info(100_000, 2000)), Some(8_000_000));
        assert_eq!(wanted(&info(100_000, 50_000)), Some(MAX));
        assert_eq!(wanted(&info(4_000, 2000)), None, "a short path");
        let queued = TcpInfo {
            rtt_us: 50_000,
            ..info(100, 2000)
        };
        assert_eq!(wanted(&queued), None, "a queue makes it no long path");
    }
}
