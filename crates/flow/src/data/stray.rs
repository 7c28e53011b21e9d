// SPDX-License-Identifier: MIT OR Apache-2.0
//! Stray numbers: sequence numbers further from all numbers seen than any window reaches.
//!
//! A single one is damage, or belongs to another connection, and is ignored. If a second one continues the first, the
//! capture has a gap before both.

use crate::segment::WINDOW_MAX;

/// Greatest distance from a stray number to one that continues it. Of 256 random pairs of numbers, one pair is that near.
const CONTINUATION_MAX: u32 = (WINDOW_MAX >> 6) as u32;

/// Last stray number, of data or of an ACK.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct StrayNumber {
    /// Number on the wire.
    pub(crate) number: u32,
    /// Payload of its segment, bytes.
    pub(crate) payload: u32,
    /// Next expected number when the stray one was seen, as on the wire. Before the first stray number, this field and
    /// `number` are 0. A number that continues 0 is then not stray, so it is never confirmed by mistake.
    next: u32,
}

impl StrayNumber {
    /// Records that `number`, with `payload` bytes, is stray relative to `next`. Returns the stray number before it, if
    /// this one continues it and `next` has not changed since.
    pub(crate) fn confirm(&mut self, number: u32, payload: u32, next: u64) -> Option<Self> {
        let next = next as u32;
        let now = Self {
            number,
            payload,
            next,
        };
        let before = std::mem::replace(self, now);
        let is_shortly_after = (1..=CONTINUATION_MAX).contains(&number.wrapping_sub(before.number));
        let is_continuation = before.next == next && is_shortly_after;
        is_continuation.then(|| {
            *self = Self::default(); // The number is confirmed.
            before
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEXT: u64 = (1 << 33) + 7;
    const FAR: u32 = 3 << 30;

    #[test]
    fn confirms_only_continuation() {
        let confirmed_by = |number| {
            let mut stray = StrayNumber::default();
            assert!(stray.confirm(FAR, 10, NEXT).is_none());
            stray.confirm(number, 10, NEXT).map(|first| first.number)
        };
        let first = Some(FAR);
        assert_eq!(confirmed_by(FAR + 10), first);
        assert_eq!(confirmed_by(FAR + (1 << 24)), first);
        assert_eq!(confirmed_by(FAR + (1 << 24) + 1), None);
        assert_eq!([FAR, FAR - 10].map(confirmed_by), [None; 2]);
    }

    #[test]
    fn forgets_confirmed_stray_number() {
        let mut stray = StrayNumber::default();
        assert!(stray.confirm(FAR, 10, NEXT).is_none());
        assert!(stray.confirm(FAR + 10, 10, NEXT).is_some());
        assert!(stray.confirm(FAR + 20, 10, NEXT).is_none());
    }

    #[test]
    fn rejects_continuation_after_flow_advanced() {
        let mut stray = StrayNumber::default();
        assert!(stray.confirm(FAR, 10, NEXT).is_none());
        assert!(stray.confirm(FAR + 10, 10, NEXT + 1).is_none());
        assert!(stray.confirm(FAR + 20, 10, NEXT + 1).is_some());
    }
}
