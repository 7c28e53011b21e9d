// SPDX-License-Identifier: MIT OR Apache-2.0
//! Properties of an interface that its driver reports through `SIOCETHTOOL` (Linux `include/uapi/linux/ethtool.h`).
//! Interfaces are looked up in the calling thread's network namespace. No privileges are needed.

use serde::{Deserialize, Serialize};
use std::{
    io,
    net::{Ipv4Addr, UdpSocket},
    os::fd::AsRawFd,
};

/// Sizes of a network card's rings, in packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rings {
    /// Current size of the receive ring.
    pub receive: u32,
    /// Largest size of the receive ring that the card allows.
    pub receive_max: u32,
    /// Current size of the transmit ring.
    pub transmit: u32,
    /// Largest size of the transmit ring that the card allows.
    pub transmit_max: u32,
}

/// Returns the offloads of an interface that affect throughput, and whether each is on. Offloads that the kernel does
/// not report are left out.
pub fn offloads(name: &str) -> io::Result<Vec<(&'static str, bool)>> {
    // ETHTOOL_GRXCSUM, GTXCSUM, GSG, GTSO, GGSO, GGRO.
    const QUERIES: [(&str, u32); 6] = [
        ("rx-checksum", 0x14),
        ("tx-checksum", 0x16),
        ("scatter-gather", 0x18),
        ("tso", 0x1e),
        ("gso", 0x23),
        ("gro", 0x2b),
    ];
    let socket = socket()?;
    let state = |(offload, command)| {
        let [_, data] = query(&socket, name, [command, 0])?;
        Some((offload, data != 0))
    };
    Ok(QUERIES.into_iter().filter_map(state).collect())
}

/// Returns the rings of an interface. `None` if it has none: virtual interfaces have none.
pub fn rings(name: &str) -> io::Result<Option<Rings>> {
    const GRINGPARAM: u32 = 0x10;
    // `struct ethtool_ringparam`: the command, four maxima, and four current sizes. The first of each four is for
    // receive, the last for transmit.
    let answer = query(&socket()?, name, [GRINGPARAM, 0, 0, 0, 0, 0, 0, 0, 0]);
    Ok(answer.map(|words| Rings {
        receive: words[5],
        receive_max: words[1],
        transmit: words[8],
        transmit_max: words[4],
    }))
}

/// Returns `N` of the PTP clock (`/dev/ptpN`) with which the network card timestamps every packet that it receives.
/// `None` if the interface can't do that (virtual interfaces can't), or is not configured to (`hwstamp_ctl -r 1`).
pub fn receive_clock(name: &str) -> io::Result<Option<u32>> {
    const GET_TS_INFO: u32 = 0x41;
    let socket = socket()?;
    // `struct hwtstamp_config`: flags, transmit type, receive filter.
    let timestamps_all = interface_ioctl(&socket, libc::SIOCGHWTSTAMP, name, [0; 3])
        .is_some_and(|[_, _, filter]| filter == libc::HWTSTAMP_FILTER_ALL);
    // `struct ethtool_ts_info`: command, capabilities, clock (or -1), and eight more words.
    let mut request = [0; 11];
    request[0] = GET_TS_INFO;
    let answer = query(&socket, name, request).filter(|_| timestamps_all);
    Ok(answer
        .map(|words| words[2])
        .filter(|clock| *clock as i32 >= 0))
}

fn socket() -> io::Result<UdpSocket> {
    UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))
}

/// Sends one query of 32-bit words. The first word is the command. Returns the words of the answer; `None` if the query
/// fails.
fn query<const N: usize>(socket: &UdpSocket, name: &str, words: [u32; N]) -> Option<[u32; N]> {
    interface_ioctl(socket, libc::SIOCETHTOOL, name, words)
}

/// Calls an ioctl(2) of an interface. The ioctl reads and writes a structure of `N` words. Returns them; `None` on
/// failure.
fn interface_ioctl<const N: usize>(
    socket: &UdpSocket,
    request_code: libc::c_ulong,
    name: &str,
    mut words: [u32; N],
) -> Option<[u32; N]> {
    // SAFETY: an ifreq is plain bytes; all zeros are a valid one.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    // The last byte stays NUL.
    let name_len_max = request.ifr_name.len() - 1;
    for (to, from) in request.ifr_name[..name_len_max]
        .iter_mut()
        .zip(name.bytes())
    {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_data = words.as_mut_ptr().cast();
    // SAFETY: the ioctl reads the request, and reads and writes the words that it points to. The callers give as many
    // words as the command's structure has. Request and words outlive the call.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), request_code, &raw mut request) };
    (result == 0).then_some(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_offloads_of_the_loopback_and_none_of_a_missing_interface() {
        let loopback = offloads("lo").unwrap();
        assert!(loopback.contains(&("scatter-gather", true)), "{loopback:?}");
        assert_eq!(offloads("nosuch0").unwrap(), []);
    }

    #[test]
    fn loopback_has_no_receive_clock() {
        assert_eq!(receive_clock("lo").unwrap(), None);
    }

    #[test]
    fn loopback_has_no_rings() {
        assert_eq!(rings("lo").unwrap(), None);
    }
}
