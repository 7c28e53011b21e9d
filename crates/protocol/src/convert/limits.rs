// SPDX-License-Identifier: MIT OR Apache-2.0
//! TLV with the limits of a request: hops and times. It also has facts about the client, its host and DSCP, and the
//! group that further connections may join.

use super::group::Stripes;
use std::time::Duration;

/// Maximum number of relays that one message may name, and that it may pass.
pub const HOPS_MAX: usize = 16;

/// Private TLV with these fields. Zeros at the end are omitted.
///
/// | bytes | field |
/// |---|---|
/// | 1 | number of relays that may still be passed |
/// | 1 | [`Request::reply_delay`], in units of 10 ms |
/// | 2 | [`Request::timeout`], in units of 10 ms |
/// | 1 | bit 0: [`Request::is_client_remote`]; the six bits above it: [`Request::dscp`] |
/// | 17 | [`Request::stripes`]: the group's id, and its largest number of connections; bit 7 of this: [`Stripes::automatic`] |
///
/// The first versions ignore all bytes after the first one as padding. A version that does not know the group refuses
/// connections that join it.
///
/// [`Request::reply_delay`]: super::Request::reply_delay
/// [`Request::timeout`]: super::Request::timeout
/// [`Request::is_client_remote`]: super::Request::is_client_remote
/// [`Request::dscp`]: super::Request::dscp
/// [`Request::stripes`]: super::Request::stripes
pub(super) const HOP_LIMIT: u8 = 0xC2;
const CLIENT_REMOTE_FLAG: u8 = 1;
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
    pub(super) stripes: Option<Stripes>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            hop_limit: HOPS_MAX as u8,
            reply_delay: Duration::ZERO,
            timeout: Duration::ZERO,
            is_client_remote: false,
            dscp: 0,
            stripes: None,
        }
    }
}

/// Position of the group in the TLV.
const STRIPES_AT: usize = 5;

impl Limits {
    pub(super) fn encode(&self) -> Vec<u8> {
        let units = self.timeout.as_millis() / REPLY_DELAY_UNIT.as_millis();
        let [high, low] = u16::try_from(units).unwrap_or(u16::MAX).to_be_bytes();
        let dscp = (self.dscp & DSCP_MAX) << DSCP_SHIFT;
        let flags = dscp | (CLIENT_REMOTE_FLAG * u8::from(self.is_client_remote));
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
        match self.stripes {
            Some(stripes) => [&value[..], &stripes.encode()].concat(),
            None => value[..len].to_vec(),
        }
    }

    /// Parses the value. Bytes after the known fields are ignored.
    pub(super) fn parse(value: &[u8]) -> Option<Self> {
        let (&hop_limit, &reply_delay) = (value.first()?, value.get(1)?);
        let byte = |at: usize| value.get(at).copied().unwrap_or(0);
        let timeout = u16::from_be_bytes([byte(2), byte(3)]);
        let duration = |units: u16| REPLY_DELAY_UNIT * u32::from(units);
        Some(Self {
            hop_limit,
            reply_delay: duration(reply_delay.into()),
            timeout: duration(timeout),
            is_client_remote: byte(4) & CLIENT_REMOTE_FLAG != 0,
            dscp: (byte(4) >> DSCP_SHIFT) & DSCP_MAX,
            stripes: value.get(STRIPES_AT..).and_then(Stripes::parse),
        })
    }
}

fn reply_delay_byte(reply_delay: Duration) -> u8 {
    let units = reply_delay.as_millis() / REPLY_DELAY_UNIT.as_millis();
    units.try_into().unwrap_or(u8::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::convert::{Request, message::WORD, request::tests::example};

    /// The first versions ignore the byte as padding, and send zero.
    #[test]
    fn encodes_the_reply_delay_in_former_padding() {
        let bytes = |reply_delay| {
            let request = Request {
                reply_delay,
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
