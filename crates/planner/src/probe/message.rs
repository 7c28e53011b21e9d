// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages between a probe and its responder, big-endian, in UDP:
//!
//! ```text
//! 0  magic "LHPP"   4  version 1   5  kind   6  zero (2)
//! 8  cookie (16)   24  number (4)  28  arrival at the responder, ns (8)   36 … padding
//! ```
//!
//! A question is never shorter than an answer ([`LEN`]), so nobody gets more than was sent in their
//! name; and a number is answered only with the cookie that was sent to its address.

use sha2::{Digest, Sha256};
use std::net::SocketAddr;

/// Bytes of an answer, and the least of a question.
pub(super) const LEN: usize = 36;

const MAGIC: [u8; 5] = *b"LHPP\x01";

/// What a message is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Asks for a cookie.
    Hello = 0,
    /// Has it.
    Cookie = 1,
    /// Asks when it came.
    Question = 2,
    /// Says so.
    Answer = 3,
}

pub(super) type Cookie = [u8; 16];

/// A message without its padding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Message {
    pub(super) kind: Kind,
    pub(super) cookie: Cookie,
    pub(super) number: u32,
    /// When a question came to the responder, by its clock.
    pub(super) arrival_ns: u64,
}

impl Message {
    pub(super) fn new(kind: Kind, cookie: Cookie, number: u32) -> Self {
        Self {
            kind,
            cookie,
            number,
            arrival_ns: 0,
        }
    }

    /// Writes it to the start of `bytes`, which is at least [`LEN`] long.
    pub(super) fn write(&self, bytes: &mut [u8]) {
        bytes[..5].copy_from_slice(&MAGIC);
        bytes[5..8].copy_from_slice(&[self.kind as u8, 0, 0]);
        bytes[8..24].copy_from_slice(&self.cookie);
        bytes[24..28].copy_from_slice(&self.number.to_be_bytes());
        bytes[28..LEN].copy_from_slice(&self.arrival_ns.to_be_bytes());
    }

    /// `None` of what is no message.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.get(..LEN)?;
        if bytes[..5] != MAGIC {
            return None;
        }
        let kind = match bytes[5] {
            0 => Kind::Hello,
            1 => Kind::Cookie,
            2 => Kind::Question,
            3 => Kind::Answer,
            _ => return None,
        };
        Some(Self {
            kind,
            cookie: bytes[8..24].try_into().ok()?,
            number: u32::from_be_bytes(bytes[24..28].try_into().ok()?),
            arrival_ns: u64::from_be_bytes(bytes[28..LEN].try_into().ok()?),
        })
    }
}

/// Makes cookies out of a secret, an address and the minute: nothing is kept for anybody.
#[derive(Debug)]
pub(super) struct Jar {
    secret: [u8; 32],
}

impl Jar {
    pub(super) fn new(secret: [u8; 32]) -> Self {
        Self { secret }
    }

    pub(super) fn cookie(&self, to: SocketAddr, minute: u64) -> Cookie {
        let mut digest = Sha256::new();
        digest.update(self.secret);
        digest.update(to.to_string());
        digest.update(minute.to_be_bytes());
        let mut cookie = Cookie::default();
        cookie.copy_from_slice(&digest.finalize()[..16]);
        cookie
    }

    /// Of this minute or the one before.
    pub(super) fn is_ours(&self, cookie: &Cookie, from: SocketAddr, minute: u64) -> bool {
        let before = minute.saturating_sub(1);
        [minute, before]
            .iter()
            .any(|&minute| self.cookie(from, minute) == *cookie)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_reads_as_it_was_written() {
        let message = Message {
            kind: Kind::Answer,
            cookie: [7; 16],
            number: 9,
            arrival_ns: 1 << 60,
        };
        let mut bytes = [0; 100];
        message.write(&mut bytes);
        assert_eq!(Message::read(&bytes), Some(message));
        assert_eq!(Message::read(&bytes[..LEN - 1]), None);
        bytes[5] = 4;
        assert_eq!(Message::read(&bytes), None);
    }

    #[test]
    fn a_cookie_is_good_for_its_address_and_two_minutes() {
        let jar = Jar::new([3; 32]);
        let [one, other] = ["192.0.2.1:5", "192.0.2.1:6"].map(|text| text.parse().unwrap());
        let cookie = jar.cookie(one, 10);
        assert!(jar.is_ours(&cookie, one, 10) && jar.is_ours(&cookie, one, 11));
        assert!(!jar.is_ours(&cookie, one, 12) && !jar.is_ours(&cookie, other, 10));
        assert!(!Jar::new([4; 32]).is_ours(&cookie, one, 10));
    }
}
