// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which parcels go a second time. At the end of a copy everybody waits for the slowest stream, whose window losses may have
//! left so small that its last block takes longer than all that was before: streams that have nothing left to carry take it
//! over. Whichever copy arrives first counts.

use super::{Ledger, Parcel, ledger::Flight, work::PARCEL_LEN};
use longhaul_units::Time;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// A second copy is worth it if the first one needs so many times as long as it, and so many seconds longer: streams are
/// looked at some times a second.
const WORTH: f64 = 1.5;
const WORTH_MIN_S: f64 = 0.5;

/// What a stream carries now: its window a round trip.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pace {
    /// The window, in bytes.
    pub window_bytes: u64,
    /// The smoothed round trip.
    pub rtt: Time,
    /// Bytes a second that it may send, whatever its window; `u64::MAX` if nothing holds it back.
    pub most_bytes_per_s: u64,
}

/// A stream, since when the first of what it has under way has it for itself, and all of that.
type Busy<'a> = (u64, Time, &'a VecDeque<Flight>);

/// What was sent a second time and is still under way. Memory: a parcel or two for each stream.
#[derive(Debug, Default)]
pub struct Stragglers {
    repeated: BTreeSet<Parcel>,
}

impl Stragglers {
    /// What the streams that have nothing under way had better carry, too, now that nothing else is left for them; the
    /// latest first, one for each of them at most and none ever a third time. Streams without a pace are passed over.
    pub fn repeat(
        &mut self,
        ledger: &Ledger,
        paces: &BTreeMap<u64, Pace>,
        now: Time,
    ) -> Vec<Parcel> {
        let busy: Vec<Busy<'_>> = ledger.under_way().collect();
        self.forget(&busy);
        let idle: Vec<Pace> = paces
            .iter()
            .filter(|(stream, _)| ledger.is_idle(**stream))
            .map(|(_, pace)| *pace)
            .collect();
        let Some(usual) = usual(idle.clone()) else {
            return Vec::new();
        };
        let mut late: Vec<(f64, &Parcel)> = busy
            .iter()
            .flat_map(|busy| late(busy, paces.get(&busy.0), usual, now))
            .filter(|(_, parcel)| !self.repeated.contains(*parcel))
            .collect();
        late.sort_by(|(a, _), (b, _)| b.total_cmp(a));
        late.truncate(idle.len());
        let late: Vec<Parcel> = late.into_iter().map(|(_, parcel)| parcel.clone()).collect();
        self.repeated.extend(late.iter().cloned());
        late
    }

    /// What has come by now.
    fn forget(&mut self, busy: &[Busy<'_>]) {
        let flights = || busy.iter().flat_map(|(.., flights)| flights.iter());
        self.repeated
            .retain(|parcel| flights().any(|flight| flight.parcel == *parcel));
    }

    /// Whether a parcel is on its way for the second time.
    #[must_use]
    pub fn has_repeated(&self, parcel: &Parcel) -> bool {
        self.repeated.contains(parcel)
    }
}

/// What an idle stream carries, as the one in the middle of them does.
fn usual(mut idle: Vec<Pace>) -> Option<Pace> {
    let middle = idle.len() / 2;
    let block = |pace: &Pace| pace.seconds_for(PARCEL_LEN);
    idle.sort_by(|a, b| block(a).total_cmp(&block(b)));
    idle.get(middle).copied()
}

/// What a stream has under way that would come sooner by one of the usual pace, and how many seconds it needs.
fn late<'a>(
    (_, since, flights): &Busy<'a>,
    pace: Option<&Pace>,
    usual: Pace,
    now: Time,
) -> Vec<(f64, &'a Parcel)> {
    let Some(pace) = pace else {
        return Vec::new();
    };
    let mut ahead = 0;
    let left = flights.iter().map(|Flight { parcel, bytes }| {
        ahead += bytes;
        let left = pace.seconds_left(ahead, now.since(*since));
        let instead = usual.seconds_for(*bytes);
        let worth = left > WORTH * instead && left > instead + WORTH_MIN_S;
        worth.then_some((left, parcel))
    });
    left.flatten().collect()
}

impl Pace {
    /// Until so many bytes have come and that was said.
    fn seconds_for(&self, bytes: u64) -> f64 {
        let rtt = self.rtt.as_secs_f64();
        let rate = self.window_bytes as f64 / rtt.max(1e-6);
        bytes as f64 / rate.min(self.most_bytes_per_s as f64).max(1.0) + rtt
    }

    /// The same, of bytes that have been under way for a while. Those that should have come long ago will take as long
    /// again: what holds them up is not in the window.
    fn seconds_left(&self, bytes: u64, since: Time) -> f64 {
        (self.seconds_for(bytes) - since.as_secs_f64()).abs()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn block(block: u64) -> Parcel {
        Parcel::Block { file: 1, block }
    }

    /// Over 350 ms.
    fn pace(window_bytes: u64) -> Pace {
        Pace {
            window_bytes,
            rtt: Time::from_millis(350),
            most_bytes_per_s: u64::MAX,
        }
    }

    /// Streams with so many blocks under way each, since time zero.
    fn ledger(blocks: &[u64]) -> Ledger {
        let mut ledger = Ledger::default();
        let mut next = 0;
        for (stream, count) in (0..).zip(blocks) {
            for _ in 0..*count {
                ledger
                    .sent(stream, block(next), 4 * MIB, Time::ZERO)
                    .unwrap();
                next += 1;
            }
        }
        ledger
    }

    fn paces(windows: &[u64]) -> BTreeMap<u64, Pace> {
        (0..)
            .zip(windows.iter().map(|window| pace(*window)))
            .collect()
    }

    #[test]
    fn who_has_nothing_takes_over_what_is_latest() {
        let ledger = ledger(&[2, 1, 0, 0]);
        // The first stream takes 14 s a block, the second 1.8, the others 1.1.
        let paces = paces(&[100_000, MIB, 2 * MIB, 2 * MIB]);
        let mut stragglers = Stragglers::default();
        let now = Time::from_millis(500);
        assert_eq!(
            stragglers.repeat(&ledger, &paces, now),
            [block(1), block(0)]
        );
        assert!(stragglers.has_repeated(&block(0)) && !stragglers.has_repeated(&block(2)));
        assert_eq!(stragglers.repeat(&ledger, &paces, now), [], "once");
    }

    #[test]
    fn nobody_takes_over_what_comes_as_soon() {
        let now = Time::from_millis(500);
        let repeat = |blocks: &[u64], windows: &[u64]| {
            Stragglers::default().repeat(&ledger(blocks), &paces(windows), now)
        };
        assert_eq!(repeat(&[1, 0], &[2 * MIB, 2 * MIB]), []);
        assert_eq!(repeat(&[1, 0], &[MIB, 2 * MIB]), []);
        assert_eq!(repeat(&[1, 1], &[100_000, 2 * MIB]), [], "nobody is idle");
        assert_eq!(repeat(&[1, 0], &[100_000, 100_000]), [], "all are slow");
        assert_eq!(repeat(&[1, 0], &[100_000]), [], "of one nothing is known");
    }

    #[test]
    fn what_comes_in_a_moment_is_waited_for() {
        let mut paces = paces(&[100_000, 2 * MIB]);
        for pace in paces.values_mut() {
            pace.rtt = Time::from_millis(4);
        }
        let late = Stragglers::default().repeat(&ledger(&[1, 0]), &paces, Time::ZERO);
        assert_eq!(late, []);
    }

    #[test]
    fn one_that_has_stalled_is_late_however_large_its_window() {
        let (ledger, paces) = (ledger(&[1, 0]), paces(&[2 * MIB, 2 * MIB]));
        let repeat = |seconds| {
            let now = Time::from_secs(seconds);
            Stragglers::default().repeat(&ledger, &paces, now)
        };
        // It should have come after 1.05 s.
        assert_eq!((repeat(1), repeat(2)), (vec![], vec![]));
        assert_eq!(repeat(3), [block(0)]);
    }

    #[test]
    fn one_that_is_held_back_is_as_slow_as_it_may_be() {
        let ledger = ledger(&[1, 0]);
        let mut paces = paces(&[2 * MIB, 2 * MIB]);
        paces.get_mut(&0).unwrap().most_bytes_per_s = 100_000;
        let late = Stragglers::default().repeat(&ledger, &paces, Time::ZERO);
        assert_eq!(late, [block(0)]);
    }

    #[test]
    fn what_has_come_is_forgotten() {
        let mut ledger = ledger(&[1, 0]);
        let paces = paces(&[100_000, 2 * MIB]);
        let mut stragglers = Stragglers::default();
        assert_eq!(stragglers.repeat(&ledger, &paces, Time::ZERO), [block(0)]);
        ledger.received(0, 1, Time::ZERO).unwrap();
        assert_eq!(stragglers.repeat(&ledger, &paces, Time::ZERO), []);
        assert!(!stragglers.has_repeated(&block(0)));
    }
}
