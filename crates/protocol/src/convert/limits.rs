// SPDX-License-Identifier: MIT OR Apache-2.0
//! How far a request may go, how long it may take and where it comes from.

use std::time::Duration;

/// The most relays that one message may name, and the most that it passes.
pub const HOPS_MAX: usize = 16;

/// Private TLV: relays that may still be passed, one byte, [`Request::patience`] in tens of
/// milliseconds, one byte, [`Request::time`] in tens of milliseconds, two bytes, and one byte of
/// flags: [`Request::from_elsewhere`] is 1, [`Request::dscp`] has the six bits above it. The first versions take what is behind the patience for padding,
/// and zeros at the end are left out.
///
/// [`Request::patience`]: super::Request::patience
/// [`Request::time`]: super::Request::time
/// [`Request::from_elsewhere`]: super::Request::from_elsewhere
/// [`Request::dscp`]: super::Request::dscp
pub(super) const HOP_LIMIT: u8 = 0xC2;
const FROM_ELSEWHERE: u8 = 1;
const DSCP_SHIFT: u32 = 1;
const DSCP_MAX: u8 = 63;

/// The most that a request can say with [`Request::patience`](super::Request::patience).
pub const PATIENCE_MAX: Duration = PATIENCE_UNIT.saturating_mul(u8::MAX as u32);
pub(super) const PATIENCE_UNIT: Duration = Duration::from_millis(10);

/// What [`HOP_LIMIT`] says.
pub(super) struct Limits {
    pub(super) hop_limit: u8,
    pub(super) patience: Duration,
    pub(super) time: Duration,
    pub(super) from_elsewhere: bool,
    pub(super) dscp: u8,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            hop_limit: HOPS_MAX as u8,
            patience: Duration::ZERO,
            time: Duration::ZERO,
            from_elsewhere: false,
            dscp: 0,
        }
    }
}

impl Limits {
    pub(super) fn encode(&self) -> Vec<u8> {
        let tens = self.time.as_millis() / PATIENCE_UNIT.as_millis();
        let [high, low] = u16::try_from(tens).unwrap_or(u16::MAX).to_be_bytes();
        let dscp = (self.dscp & DSCP_MAX) << DSCP_SHIFT;
        let flags = dscp | (FROM_ELSEWHERE * u8::from(self.from_elsewhere));
        let value = [
            self.hop_limit,
            patience_byte(self.patience),
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
        let (&hop_limit, &patience) = (value.first()?, value.get(1)?);
        let byte = |at: usize| value.get(at).copied().unwrap_or(0);
        let time = u16::from_be_bytes([byte(2), byte(3)]);
        let in_tens = |tens: u16| PATIENCE_UNIT * u32::from(tens);
        Some(Self {
            hop_limit,
            patience: in_tens(patience.into()),
            time: in_tens(time),
            from_elsewhere: byte(4) & FROM_ELSEWHERE != 0,
            dscp: (byte(4) >> DSCP_SHIFT) & DSCP_MAX,
        })
    }
}

fn patience_byte(patience: Duration) -> u8 {
    let tens = patience.as_millis() / PATIENCE_UNIT.as_millis();
    tens.try_into().unwrap_or(u8::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::convert::{Request, message::WORD, request::tests::example};

    /// Relays that know no patience take the byte for padding, and say zero.
    #[test]
    fn patience_is_where_padding_was() {
        let bytes = |patience| {
            let request = Request {
                patience,
                ..Request::new("192.0.2.5:80".parse().unwrap(), vec![])
            };
            request.encode()[24..].to_vec()
        };
        assert_eq!(bytes(Duration::ZERO), [0xC2, 1, 16, 0]);
        assert_eq!(bytes(Duration::from_millis(1019)), [0xC2, 1, 16, 101]);
        assert_eq!(bytes(PATIENCE_MAX), [0xC2, 1, 16, 255]);
        assert_eq!(bytes(Duration::from_secs(3600)), [0xC2, 1, 16, 255]);
    }

    /// The most that a request can say.
    const TIME_MAX: Duration = Duration::from_millis(655_350);

    /// Relays that know no time look at the first two bytes only.
    #[test]
    fn time_is_behind_what_others_look_at() {
        let time = Duration::from_secs(10);
        let request = Request { time, ..example() };
        let bytes = request.encode();
        assert_eq!(Request::parse(&bytes).unwrap().unwrap().0, request);
        assert!(
            bytes.ends_with(&[0xC2, 2, 16, 0, 3, 232, 0, 0]),
            "{bytes:?}"
        );
        let long = Request {
            time: TIME_MAX * 2,
            ..example()
        };
        let parsed = Request::parse(&long.encode()).unwrap().unwrap().0;
        assert_eq!(parsed.time, TIME_MAX);
    }

    #[test]
    fn who_is_from_elsewhere_costs_nothing_but_where_it_is_said() {
        let request = Request {
            from_elsewhere: true,
            ..example()
        };
        let bytes = request.encode();
        assert_eq!(Request::parse(&bytes).unwrap().unwrap().0, request);
        assert_eq!(bytes.len(), example().encode().len() + WORD);
    }
}
