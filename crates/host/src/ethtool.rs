// SPDX-License-Identifier: MIT OR Apache-2.0
//! What an interface's driver tells about itself through `SIOCETHTOOL`
//! (Linux `include/uapi/linux/ethtool.h`). The interface is one of the calling thread's network
//! namespace; asking takes no rights.

use serde::{Deserialize, Serialize};
use std::{
    io,
    net::{Ipv4Addr, UdpSocket},
    os::fd::AsRawFd,
};

/// Packets that a network card's rings hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rings {
    /// Receive ring as it is set.
    pub receive: u32,
    /// The most that the card allows.
    pub receive_max: u32,
    /// Transmit ring as it is set.
    pub transmit: u32,
    /// The most that the card allows.
    pub transmit_max: u32,
}

/// The offloads of an interface that bear on throughput, and whether each is on. One that the
/// kernel does not tell is left out.
pub fn offloads(name: &str) -> io::Result<Vec<(&'static str, bool)>> {
    // ETHTOOL_GRXCSUM, GTXCSUM, GSG, GTSO, GGSO, GGRO.
    const QUESTIONS: [(&str, u32); 6] = [
        ("rx-checksum", 0x14),
        ("tx-checksum", 0x16),
        ("scatter-gather", 0x18),
        ("tso", 0x1e),
        ("gso", 0x23),
        ("gro", 0x2b),
    ];
    let socket = socket()?;
    let known = |(offload, command)| {
        let [_, data] = ask(&socket, name, [command, 0])?;
        Some((offload, data != 0))
    };
    Ok(QUESTIONS.into_iter().filter_map(known).collect())
}

/// The rings of an interface; `None` if it has none, as virtual ones.
pub fn rings(name: &str) -> io::Result<Option<Rings>> {
    const GRINGPARAM: u32 = 0x10;
    // `struct ethtool_ringparam`: the command, four maxima, four values; of each four the first is
    // receive and the last transmit.
    let answer = ask(&socket()?, name, [GRINGPARAM, 0, 0, 0, 0, 0, 0, 0, 0]);
    Ok(answer.map(|words| Rings {
        receive: words[5],
        receive_max: words[1],
        transmit: words[8],
        transmit_max: words[4],
    }))
}

fn socket() -> io::Result<UdpSocket> {
    UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))
}

/// One question: 32-bit words of which the first is the command, answered in place.
fn ask<const N: usize>(socket: &UdpSocket, name: &str, mut words: [u32; N]) -> Option<[u32; N]> {
    // SAFETY: an ifreq is plain bytes; all zeros are a valid one.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    // The last byte stays NUL.
    let room = request.ifr_name.len() - 1;
    for (to, from) in request.ifr_name[..room].iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_data = words.as_mut_ptr().cast();
    // SAFETY: SIOCETHTOOL reads the request, and reads and writes the words that it points to, as
    // many as the structure of the command has, which the callers give; both live until after it.
    let answer = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL, &raw mut request) };
    (answer == 0).then_some(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_tells_its_offloads_and_a_missing_one_none() {
        let loopback = offloads("lo").unwrap();
        assert!(loopback.contains(&("scatter-gather", true)), "{loopback:?}");
        assert_eq!(offloads("nosuch0").unwrap(), []);
    }

    #[test]
    fn the_loopback_has_no_rings() {
        assert_eq!(rings("lo").unwrap(), None);
    }
}
