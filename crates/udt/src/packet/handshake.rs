// SPDX-License-Identifier: MIT OR Apache-2.0
//! The body of a handshake packet (draft-gg-udt-03 §4.2, type 0): 48 bytes.

use crate::packet::number::Seq;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// What either end says of itself before a connection is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Handshake {
    /// Of the protocol: 4.
    pub version: u32,
    /// What is carried; both ends must say the same.
    pub mode: u32,
    /// The first packet's number. A listener takes the one that connects' for its own.
    pub first: Seq,
    /// The largest packet in bytes, with the headers of IP and UDP (28, with IPv6, too).
    pub mss: u32,
    /// Packets that may be on their way, at the most.
    pub flow_window_max: u32,
    /// Where in the handshake it is.
    pub step: Step,
    /// The sender's name for the connection.
    pub socket: u32,
    /// What a listener wants to see again (§5.1).
    pub cookie: u32,
    /// The other end's address, as this one sees it.
    pub peer: IpAddr,
}

/// The request type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// 1: asks for a cookie, or brings one.
    Request,
    /// 0: both ends connect to each other.
    Rendezvous,
    /// −1: asks with the cookie; and the answer to that, after which the connection is open.
    Response,
    /// −2: the last one of a rendezvous.
    Agreement,
    /// 1002, and whatever else there is above it: no.
    Refusal(u32),
}

/// Bytes of it.
pub const LEN: usize = 48;

impl Handshake {
    /// Of the protocol.
    pub const VERSION: u32 = 4;
    /// What an end says that does not take what is offered (UDT4's code).
    pub const REFUSED: u32 = 1002;

    /// Reads a body; `None` if it is too short. What comes after it is passed over.
    #[must_use]
    pub fn read(body: &[u8]) -> Option<Self> {
        let body = body.first_chunk::<LEN>()?;
        let word = |n: usize| {
            u32::from_be_bytes([
                body[4 * n],
                body[4 * n + 1],
                body[4 * n + 2],
                body[4 * n + 3],
            ])
        };
        Some(Self {
            version: word(0),
            mode: word(1),
            first: Seq::new(word(2)),
            mss: word(3),
            flow_window_max: word(4),
            step: Step::from_word(word(5))?,
            socket: word(6),
            cookie: word(7),
            peer: address([word(8), word(9), word(10), word(11)]),
        })
    }

    /// Appends the body.
    pub fn write(&self, to: &mut Vec<u8>) {
        let words = [
            self.version,
            self.mode,
            self.first.get(),
            self.mss,
            self.flow_window_max,
            self.step.to_word(),
            self.socket,
            self.cookie,
        ];
        to.extend(words.iter().flat_map(|word| word.to_be_bytes()));
        to.extend(
            address_words(self.peer)
                .iter()
                .flat_map(|word| word.to_be_bytes()),
        );
    }
}

impl Step {
    fn from_word(word: u32) -> Option<Self> {
        match word as i32 {
            1 => Some(Self::Request),
            0 => Some(Self::Rendezvous),
            -1 => Some(Self::Response),
            -2 => Some(Self::Agreement),
            1_000.. => Some(Self::Refusal(word)),
            _ => None,
        }
    }

    fn to_word(self) -> u32 {
        match self {
            Self::Request => 1,
            Self::Rendezvous => 0,
            Self::Response => -1i32 as u32,
            Self::Agreement => -2i32 as u32,
            Self::Refusal(code) => code,
        }
    }
}

/// UDT4 copies the address as it is in memory and then swaps each word like any other, so on the wire its bytes are
/// the other way round where libudt runs on a little-endian machine, and so are ours. (Nobody acts on it.)
fn address_words(address: IpAddr) -> [u32; 4] {
    let word = |bytes: &[u8]| u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    match address {
        IpAddr::V4(address) => [word(&address.octets()), 0, 0, 0],
        IpAddr::V6(address) => {
            let octets = address.octets();
            [0, 4, 8, 12].map(|at| word(&octets[at..]))
        }
    }
}

/// An address of which all but the first word is 0 is one of IPv4, for nothing else tells.
fn address(words: [u32; 4]) -> IpAddr {
    match words {
        [first, 0, 0, 0] => Ipv4Addr::from(first.to_le_bytes()).into(),
        _ => {
            let mut octets = [0; 16];
            for (bytes, word) in octets.chunks_exact_mut(4).zip(words) {
                bytes.copy_from_slice(&word.to_le_bytes());
            }
            Ipv6Addr::from(octets).into()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn handshake(step: Step, peer: &str) -> Handshake {
        Handshake {
            version: 4,
            mode: 1,
            first: Seq::new(77),
            mss: 1500,
            flow_window_max: 25_600,
            step,
            socket: 5,
            cookie: 0xdead_beef,
            peer: peer.parse().unwrap(),
        }
    }

    #[test]
    fn it_is_read_as_written() {
        let steps = [
            Step::Request,
            Step::Rendezvous,
            Step::Response,
            Step::Agreement,
            Step::Refusal(1002),
        ];
        for step in steps {
            for peer in ["127.0.0.1", "2001:db8::7"] {
                let mut bytes = Vec::new();
                handshake(step, peer).write(&mut bytes);
                assert_eq!(bytes.len(), LEN);
                assert_eq!(Handshake::read(&bytes), Some(handshake(step, peer)));
                assert_eq!(Handshake::read(&bytes[..LEN - 1]), None);
            }
        }
    }

    #[test]
    fn an_address_is_the_other_way_round() {
        let mut bytes = Vec::new();
        handshake(Step::Request, "127.0.0.1").write(&mut bytes);
        assert_eq!(bytes[32..36], [1, 0, 0, 127]);
    }
}
