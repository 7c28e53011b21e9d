// SPDX-License-Identifier: MIT OR Apache-2.0
//! How far a request may go, how long it may take and where it comes from.

use std::time::Duration;

/// The most relays that one message may name, and the most that it passes.
pub const HOPS_MAX: usize = 16;

/// Private TLV: relays that may still be passed, one byte, [`Request::reply_delay`] in tens of
/// milliseconds, one byte, [`Request::timeout`] in tens of milliseconds, two bytes, and one byte of
/// flags: [`Request::is_client_remote`] is bit 0, [`Request::dscp`] the six bits above it. The first versions ignore
/// all bytes after the reply timeout as padding. Zeros at the end are omitted.
///
/// [`Request::reply_delay`]: super::Request::reply_delay
/// [`Request::timeout`]: super::Request::timeout
/// [`Request::is_client_remote`]: super::Request::is_client_remote
/// [`Request::dscp`]: super::Request::dscp
pub(super) const HOP_LIMIT: u8 = 0xC2;
const FROM_ELSEWHERE: u8 = 1;
const DSCP_SHIFT: u32 = 1;
const DSCP_MAX: u8 = 63;

/// Largest value that a request can carry in [`Request::reply_delay`](super::Request::reply_delay).
pub const REPLY_DELAY_MAX: Duration = REPLY_DELAY_UNIT.saturating_mul(u8::MAX as u32);
pub(super) const REPLY_DELAY_UNIT: Duration = Duration::from_millis(10);

/// Contents of [`HOP_LIMIT`].
pub(super) struct Limits {
    pub(super) hop_limit: u8,
    pub(super) reply_delay: Duration,
    pub(super) timeout: Duration,
    pub(super) is_client_remote: bool,
    pub(super) dscp: u8,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            hop_limit: HOPS_MAX as u8,
            reply_delay: Duration::ZERO,
            timeout: Duration::ZERO,
            is_client_remote: false,
            dscp: 0,
        }
    }
}

impl Limits {
    pub(super) fn encode(&self) -> Vec<u8> {
        let tens = self.timeout.as_millis() / REPLY_DELAY_UNIT.as_millis();
        let [high, low] = u16::try_from(tens).unwrap_or(u16::MAX).to_be_bytes();
        let dscp = (self.dscp & DSCP_MAX) << DSCP_SHIFT;
        let flags = dscp | (FROM_ELSEWHERE * u8::from(self.is_client_remote));
        let value = [
            self.hop_limit,
            reply_delay_byte(self.reply_delay),
            high,
            low,
            flags,
        ];
        let len = match value[2..] {
            [0, 0, 0] => 2,
            [.., 0] => 4,
            _ => 5,
        };
        value[..len].to_vec()
    }

    /// Bytes behind those that are known say nothing.
    pub(super) fn parse(value: &[u8]) -> Option<Self> {
        let (&hop_limit, &reply_delay) = (value.first()?, value.get(1)?);
        let byte = |at: usize| value.get(at).copied().unwrap_or(0);
        let timeout = u16::from_be_bytes([byte(2), byte(3)]);
        let in_tens = |tens: u16| REPLY_DELAY_UNIT * u32::from(tens);
        Some(Self {
            hop_limit,
            reply_delay: in_tens(reply_delay.into()),
            timeout: in_tens(timeout),
            is_client_remote: byte(4) & FROM_ELSEWHERE != 0,
            dscp: (byte(4) >> DSCP_SHIFT) & DSCP_MAX,
        })
    }
}

fn reply_delay_byte(reply_delay: Duration) -> u8 {
    let tens = reply_delay.as_millis() / REPLY_DELAY_UNIT.as_millis();
    tens.try_into().unwrap_or(u8::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::convert::{Request, message::WORD, request::tests::example};

    /// Old relays take the byte for padding, and send zero.
    #[test]
    fn encodes_the_reply_delay_in_former_padding() {
        let bytes = |patience| {
            let request = Request {
                reply_delay: patience,
                ..Request::new("192.0.2.5:80".parse().unwrap(), vec![])
            };
            request.encode()[24..].to_vec()
        };
        assert_eq!(bytes(Duration::ZERO), [0xC2, 1, 16, 0]);
        assert_eq!(bytes(Duration::from_millis(1019)), [0xC2, 1, 16, 101]);
        assert_eq!(bytes(REPLY_DELAY_MAX), [0xC2, 1, 16, 255]);
        assert_eq!(bytes(Duration::from_secs(3600)), [0xC2, 1, 16, 255]);
    }

    /// The most that a request can say.
    const TIME_MAX: Duration = Duration::from_millis(655_350);

    /// Old relays read the first two bytes only.
    #[test]
    fn encodes_the_timeout_after_bytes_that_old_relays_read() {
        let time = Duration::from_secs(10);
        let request = Request {
            timeout: time,
            ..example()
        };
        let bytes = request.encode();
        assert_eq!(Request::parse(&bytes).unwrap().unwrap().0, request);
        assert!(
            bytes.ends_with(&[0xC2, 2, 16, 0, 3, 232, 0, 0]),
            "{bytes:?}"
        );
        let long = Request {
            timeout: TIME_MAX * 2,
            ..example()
        };
        let parsed = Request::parse(&long.encode()).unwrap().unwrap().0;
        assert_eq!(parsed.timeout, TIME_MAX);
    }

    #[test]
    fn omits_the_flag_of_a_remote_client_unless_it_is_set() {
        let request = Request {
            is_client_remote: true,
            ..example()
        };
        let bytes = request.encode();
        assert_eq!(Request::parse(&bytes).unwrap().unwrap().0, request);
        assert_eq!(bytes.len(), example().encode().len() + WORD);
    }
}
