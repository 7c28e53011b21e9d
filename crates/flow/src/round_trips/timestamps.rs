// SPDX-License-Identifier: MIT OR Apache-2.0
//! TSvals that wait for their echo: round trips by time stamps (RFC 7323 §4).

use crate::bounds::{Bounds, bytes_of};
use std::collections::VecDeque;

/// When each TSval was first sent with numbers that are acknowledged. A TSval that was on a pure ACK
/// first is left out: its echo might answer that.
#[derive(Debug, Default)]
pub(crate) struct Timestamps {
    waiting: VecDeque<(u32, u64)>,
    newest: Option<u32>,
    echo: Option<u32>,
}

impl Timestamps {
    /// A packet carried `tsval`; `answered` is whether an ACK will come for it. When too many wait, the
    /// oldest is forgotten.
    #[inline]
    pub(crate) fn sent(&mut self, tsval: u32, at_ns: u64, answered: bool, bounds: &mut Bounds) {
        if self.newest.is_some_and(|newest| !is_newer(tsval, newest)) {
            return;
        }
        self.newest = Some(tsval);
        if answered {
            let most = bounds.settings.timestamps_max;
            if !bounds.has_room(&mut self.waiting, most) {
                self.waiting.pop_front();
            }
            if self.waiting.len() < self.waiting.capacity() {
                self.waiting.push_back((tsval, at_ns));
            }
        }
    }

    /// Whether `tsval` is newer than one before, and than all of them.
    pub(crate) fn is_newest(&self, tsval: u32) -> bool {
        self.newest.is_some_and(|newest| is_newer(tsval, newest))
    }

    /// Memory of the table.
    pub(crate) fn table_bytes(&self) -> usize {
        bytes_of(&self.waiting)
    }

    /// Whether the last ACK had this echo.
    #[inline]
    pub(crate) fn is_last_echo(&self, tsecr: u32) -> bool {
        self.echo == Some(tsecr)
    }

    /// An ACK echoes `tsecr`. When that was first sent, if this is its first echo.
    #[inline]
    pub(crate) fn echoed(&mut self, tsecr: u32) -> Option<u64> {
        self.echo = Some(tsecr);
        while let Some(&(tsval, at_ns)) = self.waiting.front() {
            if is_newer(tsval, tsecr) {
                return None;
            }
            self.waiting.pop_front();
            if tsval == tsecr {
                return Some(at_ns);
            }
        }
        None
    }
}

/// RFC 7323 §5.2, on numbers that wrap.
pub(crate) fn is_newer(tsval: u32, than: u32) -> bool {
    tsval.wrapping_sub(than).cast_signed() > 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Settings;

    fn room(timestamps_max: usize) -> Bounds {
        Bounds::new(Settings {
            timestamps_max,
            ..Settings::default()
        })
    }

    #[test]
    fn first_packet_to_first_echo() {
        let mut timestamps = Timestamps::default();
        timestamps.sent(7, 100, true, &mut room(8));
        timestamps.sent(7, 150, true, &mut room(8));
        timestamps.sent(8, 200, true, &mut room(8));
        assert_eq!(timestamps.echoed(7), Some(100));
        assert_eq!(timestamps.echoed(7), None);
        assert_eq!(timestamps.echoed(8), Some(200));
    }

    #[test]
    fn an_echo_ends_the_wait_of_older_ones() {
        let mut timestamps = Timestamps::default();
        for i in 0..4 {
            timestamps.sent(i, u64::from(i) * 10, true, &mut room(8));
        }
        assert_eq!(timestamps.echoed(2), Some(20));
        assert_eq!(timestamps.echoed(1), None);
        assert_eq!(timestamps.echoed(3), Some(30));
    }

    #[test]
    fn what_a_pure_ack_carried_first_is_no_sample() {
        let mut timestamps = Timestamps::default();
        timestamps.sent(5, 100, false, &mut room(8));
        timestamps.sent(5, 110, true, &mut room(8));
        assert_eq!(timestamps.echoed(5), None);
    }

    #[test]
    fn the_oldest_goes_when_too_many_wait() {
        let mut timestamps = Timestamps::default();
        for i in 0..5 {
            timestamps.sent(i, u64::from(i), true, &mut room(3));
        }
        assert_eq!(timestamps.waiting.len(), 3);
        assert_eq!(timestamps.echoed(1), None);
        assert_eq!(timestamps.echoed(2), Some(2));
    }

    #[test]
    fn time_stamps_wrap() {
        let mut timestamps = Timestamps::default();
        timestamps.sent(u32::MAX, 1, true, &mut room(8));
        timestamps.sent(0, 2, true, &mut room(8));
        assert_eq!(timestamps.echoed(0), Some(2));
    }
}
