// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages between a probe and its responder, big-endian, in UDP:
//!
//! ```text
//! 0  magic "LHPP"   4  version 1   5  kind   6  zero (2)
//! 8  cookie (16)   24  number (4)  28  arrival at the responder, ns (8)   36 … padding
//! ```
//!
//! A request is never shorter than a reply ([`LEN`]), so the responder does not amplify traffic to spoofed
//! addresses. A request gets a reply only with the cookie that was sent to its address.

use sha2::{Digest, Sha256};
use std::net::SocketAddr;

/// Bytes of a reply, and the least of a request.
pub(super) const LEN: usize = 36;

const MAGIC: [u8; 5] = *b"LHPP\x01";

/// Kind of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Request for a cookie.
    Hello = 0,
    /// Reply with a cookie.
    Cookie = 1,
    /// Request for its arrival time.
    Request = 2,
    /// Reply with the arrival time.
    Reply = 3,
}

pub(super) type Cookie = [u8; 16];

/// Message without its padding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Message {
    pub(super) kind: Kind,
    pub(super) cookie: Cookie,
    pub(super) number: u32,
    /// Arrival of a request at the responder, by its clock.
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

    /// Writes the message to the start of `bytes`, which is at least [`LEN`] long.
    pub(super) fn write(&self, bytes: &mut [u8]) {
        bytes[..5].copy_from_slice(&MAGIC);
        bytes[5..8].copy_from_slice(&[self.kind as u8, 0, 0]);
        bytes[8..24].copy_from_slice(&self.cookie);
        bytes[24..28].copy_from_slice(&self.number.to_be_bytes());
        bytes[28..LEN].copy_from_slice(&self.arrival_ns.to_be_bytes());
    }

    /// Parses a message; `None` if the bytes are not one.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.get(..LEN)?;
        if bytes[..5] != MAGIC {
            return None;
        }
        let kind = match bytes[5] {
            0 => Kind::Hello,
            1 => Kind::Cookie,
            2 => Kind::Request,
            3 => Kind::Reply,
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

/// Generator of cookies from a secret, an address and the minute, without state for clients.
#[derive(Debug)]
pub(super) struct CookieGenerator {
    secret: [u8; 32],
}

impl CookieGenerator {
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

    /// Whether the cookie is of this minute or the one before.
    pub(super) fn is_valid(&self, cookie: &Cookie, from: SocketAddr, minute: u64) -> bool {
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
    fn message_round_trips() {
        let message = Message {
            kind: Kind::Reply,
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
    fn cookie_is_valid_for_its_address_and_two_minutes() {
        let jar = CookieGenerator::new([3; 32]);
        let [one, other] = ["192.0.2.1:5", "192.0.2.1:6"].map(|text| text.parse().unwrap());
        let cookie = jar.cookie(one, 10);
        assert!(jar.is_valid(&cookie, one, 10) && jar.is_valid(&cookie, one, 11));
        assert!(!jar.is_valid(&cookie, one, 12) && !jar.is_valid(&cookie, other, 10));
        assert!(!CookieGenerator::new([4; 32]).is_valid(&cookie, one, 10));
    }
}
