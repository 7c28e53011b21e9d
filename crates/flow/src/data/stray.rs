// SPDX-License-Identifier: MIT OR Apache-2.0
//! Numbers that are further from all that was seen than any window reaches.
//!
//! One alone is damage, or a packet of another connection or of nobody's: it is not looked at. When a second goes on
//! behind it, both come behind a gap of the capture.

use crate::segment::WINDOW_MAX;

/// How far behind a stray number the next may be that goes on from it: of two that are damaged, one in 256 is.
const CONTINUATION_MAX: u32 = (WINDOW_MAX >> 6) as u32;

/// The last number that strayed, of data or of an ACK.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct StrayNumber {
    /// It, on the wire.
    pub(crate) number: u32,
    /// Bytes that came with it.
    pub(crate) payload: u32,
    /// What was to be sent next when it came, on the wire. Before any came it is 0, as `number` is, and what goes on
    /// behind that does not stray.
    next: u32,
}

impl StrayNumber {
    /// `number`, with `payload` bytes, strays from `next`. Returns the one before, if this goes on behind it and
    /// nothing else moved `next` since.
    pub(crate) fn confirm(&mut self, number: u32, payload: u32, next: u64) -> Option<Self> {
        let next = next as u32;
        let now = Self {
            number,
            payload,
            next,
        };
        let before = std::mem::replace(self, now);
        let goes_on = (1..=CONTINUATION_MAX).contains(&number.wrapping_sub(before.number));
        let follows = before.next == next && goes_on;
        follows.then(|| {
            *self = Self::default(); // It strays no longer.
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
    fn only_what_goes_on_follows() {
        let follows = |number| {
            let mut stray = StrayNumber::default();
            assert!(stray.confirm(FAR, 10, NEXT).is_none());
            stray.confirm(number, 10, NEXT).map(|first| first.number)
        };
        let first = Some(FAR);
        assert_eq!(follows(FAR + 10), first);
        assert_eq!(follows(FAR + (1 << 24)), first);
        assert_eq!(follows(FAR + (1 << 24) + 1), None);
        assert_eq!([FAR, FAR - 10].map(follows), [None; 2]);
    }

    #[test]
    fn what_was_followed_is_forgotten() {
        let mut stray = StrayNumber::default();
        assert!(stray.confirm(FAR, 10, NEXT).is_none());
        assert!(stray.confirm(FAR + 10, 10, NEXT).is_some());
        assert!(stray.confirm(FAR + 20, 10, NEXT).is_none());
    }

    #[test]
    fn nothing_follows_once_the_flow_went_on() {
        let mut stray = StrayNumber::default();
        assert!(stray.confirm(FAR, 10, NEXT).is_none());
        assert!(stray.confirm(FAR + 10, 10, NEXT + 1).is_none());
        assert!(stray.confirm(FAR + 20, 10, NEXT + 1).is_some());
    }
}
