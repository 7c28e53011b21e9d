// SPDX-License-Identifier: MIT OR Apache-2.0
//! TSvals that await their echo: round trips by timestamps (RFC 7323 §4).

use crate::memory_budget::{MemoryBudget, capacity_bytes};
use crate::segment::is_newer;
use std::collections::VecDeque;

/// Time when each TSval was first sent with numbers that need an ACK. A TSval that a pure ACK carried first is left
/// out: an echo might answer that ACK.
#[derive(Debug, Default)]
pub(crate) struct Timestamps {
    pending: VecDeque<(u32, u64)>,
    newest: Option<u32>,
    last_echo: Option<u32>,
}

impl Timestamps {
    /// Records a packet with `tsval`; `is_answered` is true if an ACK will answer it. If too many are pending, the oldest
    /// is dropped.
    #[inline]
    pub(crate) fn record_sent(
        &mut self,
        tsval: u32,
        at_ns: u64,
        is_answered: bool,
        budget: &mut MemoryBudget,
    ) {
        if self.newest.is_some_and(|newest| !is_newer(tsval, newest)) {
            return;
        }
        self.newest = Some(tsval);
        if is_answered {
            let most = budget.settings.timestamps_max;
            if !budget.ensure_room(&mut self.pending, most) {
                self.pending.pop_front();
            }
            if self.pending.len() < self.pending.capacity() {
                self.pending.push_back((tsval, at_ns));
            }
        }
    }

    /// Forgets the TSvals that await their echo.
    pub(crate) fn forget_pending(&mut self) {
        self.pending.clear();
    }

    /// Returns whether `tsval` is older than the newest so far.
    pub(crate) fn is_outdated(&self, tsval: u32) -> bool {
        self.newest.is_some_and(|newest| is_newer(newest, tsval))
    }

    /// Returns whether `tsval` is newer than all before; false for the first.
    pub(crate) fn is_newest(&self, tsval: u32) -> bool {
        self.newest.is_some_and(|newest| is_newer(tsval, newest))
    }

    /// Returns the memory of the table, bytes.
    pub(crate) fn table_bytes(&self) -> usize {
        capacity_bytes(&self.pending)
    }

    /// Returns whether the last ACK had this echo.
    #[inline]
    pub(crate) fn is_last_echo(&self, tsecr: u32) -> bool {
        self.last_echo == Some(tsecr)
    }

    /// Takes in an ACK that echoes `tsecr`. Returns the time when that was first sent, if this is its first echo.
    #[inline]
    pub(crate) fn take_echo(&mut self, tsecr: u32) -> Option<u64> {
        self.last_echo = Some(tsecr);
        while let Some(&(tsval, at_ns)) = self.pending.front() {
            if is_newer(tsval, tsecr) {
                return None;
            }
            self.pending.pop_front();
            if tsval == tsecr {
                return Some(at_ns);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Settings;

    fn budget(timestamps_max: usize) -> MemoryBudget {
        MemoryBudget::new(Settings {
            timestamps_max,
            ..Settings::default()
        })
    }

    #[test]
    fn measures_first_packet_to_first_echo() {
        let mut timestamps = Timestamps::default();
        timestamps.record_sent(7, 100, true, &mut budget(8));
        timestamps.record_sent(7, 150, true, &mut budget(8));
        timestamps.record_sent(8, 200, true, &mut budget(8));
        assert_eq!(timestamps.take_echo(7), Some(100));
        assert_eq!(timestamps.take_echo(7), None);
        assert_eq!(timestamps.take_echo(8), Some(200));
    }

    #[test]
    fn echo_removes_older_tsvals() {
        let mut timestamps = Timestamps::default();
        for i in 0..4 {
            timestamps.record_sent(i, u64::from(i) * 10, true, &mut budget(8));
        }
        assert_eq!(timestamps.take_echo(2), Some(20));
        assert_eq!(timestamps.take_echo(1), None);
        assert_eq!(timestamps.take_echo(3), Some(30));
    }

    #[test]
    fn skips_tsval_first_sent_on_pure_ack() {
        let mut timestamps = Timestamps::default();
        timestamps.record_sent(5, 100, false, &mut budget(8));
        timestamps.record_sent(5, 110, true, &mut budget(8));
        assert_eq!(timestamps.take_echo(5), None);
    }

    #[test]
    fn drops_oldest_tsval_beyond_bound() {
        let mut timestamps = Timestamps::default();
        for i in 0..5 {
            timestamps.record_sent(i, u64::from(i), true, &mut budget(3));
        }
        assert_eq!(timestamps.pending.len(), 3);
        assert_eq!(timestamps.take_echo(1), None);
        assert_eq!(timestamps.take_echo(2), Some(2));
    }

    #[test]
    fn handles_wrapping_timestamps() {
        let mut timestamps = Timestamps::default();
        timestamps.record_sent(u32::MAX, 1, true, &mut budget(8));
        timestamps.record_sent(0, 2, true, &mut budget(8));
        assert_eq!(timestamps.take_echo(0), Some(2));
    }
}
