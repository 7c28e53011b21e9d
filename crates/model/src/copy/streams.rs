// SPDX-License-Identifier: MIT OR Apache-2.0
//! How many streams carry a copy.
//!
//! A stream moves a window a round trip at most, so a long path wants as many as fill it. How much it holds nobody says,
//! so the first number is a guess from what is known at once: the round trip, and the largest window that buffers
//! allow, or that is quickly back after a loss. From there it is tried: twice as many as long as that makes the whole faster, and
//! back again if it does not. A stream too many costs little: memory, and a share of the path that others lack.

use units::{BitRate, Time};

/// Streams before anything is known, and the least there are.
pub const STREAMS_MIN: usize = 4;
/// The most there are. 64 windows of 3 MB fill 4 Gbit/s at 350 ms; each costs either end 4 MiB and its socket's buffers.
pub const STREAMS_MAX: usize = 64;

/// The rate that the first guess is made for. Faster paths are found by trying.
const GUESSED_RATE: BitRate = BitRate::from_bits(1_000_000_000);
/// The window that the first guess gives a stream at most, in bytes, whatever buffers allow: CUBIC has 3 MB back some ten
/// seconds after a loss, and a stream of many times that only after as many more (RFC 9438 §4.2: the cube root of the
/// window, in seconds).
const GUESSED_WINDOW_MAX: u64 = 3_000_000;
/// A trial lasts so many round trips, for slow start takes about twelve of them to a window of 3 MB, and at least so long.
const TRIAL_ROUNDS: u64 = 16;
const TRIAL_MIN: Time = Time::from_millis(1500);
/// More streams stay if they bring so much more.
const GAIN: f64 = 1.05;
/// After a trial that brought nothing, so many trials' time goes by before the next.
const REST_TRIALS: u64 = 8;
/// The path, not the disks, is what a copy waits for if this share of streams has data waiting.
const WAITING: f64 = 0.7;

/// What a look at all streams shows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Look {
    /// Bytes that have been acknowledged on all streams since the beginning.
    pub acked_bytes: u64,
    /// The longest smoothed round trip of them.
    pub rtt: Time,
    /// The share of streams that have data which the path has not taken yet, 0 to 1.
    pub waiting: f64,
    /// Bytes that are still to be sent, if that is known.
    pub left_bytes: Option<u64>,
}

/// The number of streams, as it changes.
#[derive(Debug, Clone)]
pub struct Streams {
    count: usize,
    most: usize,
    trial: Option<Trial>,
    /// Before the number was raised: what there was, and its rate in bytes a second.
    before: Option<(usize, f64)>,
    /// No larger number is tried before then.
    rest_until: Time,
}

/// A while in which the number stays as it is: its first half fills windows, the second counts.
#[derive(Debug, Clone)]
struct Trial {
    began: Time,
    length: Time,
    /// When the second half began, and what had been acknowledged.
    half: Option<(Time, u64)>,
    looks: u32,
    waiting: f64,
}

/// The first guess: as many windows as a path of 1 Gbit/s holds, within [`STREAMS_MIN`] and `most`.
#[must_use]
pub fn guess(rtt: Time, window_bytes: u64, most: usize) -> usize {
    let path = GUESSED_RATE.bits() as f64 / 8.0 * rtt.as_secs_f64();
    let window = window_bytes.clamp(1, GUESSED_WINDOW_MAX);
    let streams = (path / window as f64).ceil() as usize;
    streams.clamp(STREAMS_MIN.min(most), most)
}

impl Streams {
    /// Begins with so many; never more than `most`.
    #[must_use]
    pub fn new(count: usize, most: usize) -> Self {
        Self {
            count: count.clamp(1, most.max(1)),
            most: most.max(1),
            trial: None,
            before: None,
            rest_until: Time::ZERO,
        }
    }

    /// How many there shall be.
    #[must_use]
    pub fn count(&self) -> usize {
        self.count
    }

    /// Takes in a look; how many there shall be from now on. Looks are a fraction of a second apart.
    pub fn look(&mut self, now: Time, look: &Look) -> usize {
        let trial = self.trial.get_or_insert_with(|| Trial::new(now, look.rtt));
        if let Some((rate, waiting)) = trial.look(now, look) {
            let length = trial.length;
            self.trial = None;
            // What ends before the next trial does gains nothing by more streams.
            let worth = look
                .left_bytes
                .is_none_or(|left| left as f64 > rate * length.as_secs_f64());
            self.conclude(now, length, rate, worth && waiting >= WAITING);
        }
        self.count
    }

    /// A trial has ended.
    fn conclude(&mut self, now: Time, length: Time, rate: f64, wants_more: bool) {
        let gained = self.before.is_none_or(|(_, before)| rate > before * GAIN);
        if let Some((count, _)) = self.before.take()
            && !gained
        {
            self.count = count;
            self.rest_until = now + length * REST_TRIALS;
        } else if wants_more && self.count < self.most && now >= self.rest_until {
            self.before = Some((self.count, rate));
            self.count = (self.count * 2).min(self.most);
        }
    }
}

impl Trial {
    fn new(began: Time, rtt: Time) -> Self {
        Self {
            began,
            length: (rtt * TRIAL_ROUNDS).max(TRIAL_MIN),
            half: None,
            looks: 0,
            waiting: 0.0,
        }
    }

    /// At its end: bytes a second, and the share of streams that had data waiting.
    fn look(&mut self, now: Time, look: &Look) -> Option<(f64, f64)> {
        let lasted = now.since(self.began);
        if lasted * 2 < self.length {
            return None;
        }
        let (half, acked) = *self.half.get_or_insert((now, look.acked_bytes));
        self.looks += 1;
        self.waiting += look.waiting;
        if lasted < self.length || now == half {
            return None;
        }
        let bytes = look.acked_bytes.saturating_sub(acked);
        let rate = bytes as f64 / now.since(half).as_secs_f64();
        Some((rate, self.waiting / f64::from(self.looks)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MBIT: f64 = 1e6 / 8.0;

    /// A path that carries so many bytes a second, of which each stream gets a window a round trip.
    struct Path {
        rate: f64,
        window: f64,
        rtt: Time,
    }

    /// What a copy of so many seconds came to: how many streams there were at its end, and the most.
    fn run(path: &Path, source: f64, seconds: u64, streams: &mut Streams) -> (usize, usize) {
        run_with(path, source, seconds, streams, None)
    }

    fn run_with(
        path: &Path,
        source: f64,
        seconds: u64,
        streams: &mut Streams,
        size: Option<u64>,
    ) -> (usize, usize) {
        let (mut acked, mut most) = (0.0, 0);
        let step = Time::from_millis(250);
        let mut now = Time::ZERO;
        while now < Time::from_secs(seconds) {
            let streams_carry = streams.count() as f64 * path.window / path.rtt.as_secs_f64();
            let path_carries = streams_carry.min(path.rate);
            acked += path_carries.min(source) * step.as_secs_f64();
            now += step;
            let look = Look {
                acked_bytes: acked as u64,
                rtt: path.rtt,
                waiting: if source > path_carries { 1.0 } else { 0.1 },
                left_bytes: size.map(|size| size.saturating_sub(acked as u64)),
            };
            most = most.max(streams.look(now, &look));
        }
        (streams.count(), most)
    }

    #[test]
    fn the_guess_fills_a_gigabit_with_the_windows_that_there_are() {
        let guess = |ms, window| guess(Time::from_millis(ms), window, STREAMS_MAX);
        assert_eq!(guess(350, 3_000_000), 15);
        assert_eq!(guess(350, 64 << 20), 15, "a loss would cost minutes");
        assert_eq!(guess(20, 3 << 20), STREAMS_MIN);
        assert_eq!(guess(350, 64 << 10), STREAMS_MAX);
        assert_eq!(guess(0, 0), STREAMS_MIN);
        assert_eq!(super::guess(Time::from_millis(350), 1, 2), 2);
    }

    #[test]
    fn there_come_as_many_as_fill_the_path_and_no_more() {
        let path = Path {
            rate: 1000.0 * MBIT,
            window: 1e6,
            rtt: Time::from_millis(350),
        };
        let (count, most) = run(&path, f64::INFINITY, 120, &mut Streams::new(4, 256));
        // 44 windows fill it; the last trial is one of more that brought nothing.
        assert!((44..=64).contains(&count), "{count}");
        assert_eq!(most, 128);
    }

    #[test]
    fn where_one_more_brings_nothing_the_number_stays() {
        let path = Path {
            rate: 100.0 * MBIT,
            window: 1e7,
            rtt: Time::from_millis(20),
        };
        let (count, most) = run(&path, f64::INFINITY, 60, &mut Streams::new(4, 64));
        assert_eq!((count, most), (4, 8));
    }

    #[test]
    fn a_disk_that_is_slower_than_the_path_asks_for_none() {
        let path = Path {
            rate: 1000.0 * MBIT,
            window: 1e6,
            rtt: Time::from_millis(100),
        };
        let (count, most) = run(&path, 100.0 * MBIT, 60, &mut Streams::new(4, 64));
        assert_eq!((count, most), (4, 4));
    }

    #[test]
    fn what_is_almost_done_asks_for_none() {
        let path = Path {
            rate: 1000.0 * MBIT,
            window: 1e6,
            rtt: Time::from_millis(350),
        };
        // Twelve seconds by four streams, and a trial takes six.
        let size = Some(130_000_000);
        let (_, most) = run_with(&path, f64::INFINITY, 12, &mut Streams::new(4, 64), size);
        assert_eq!(most, 4);
        let size = Some(1_300_000_000);
        let (_, most) = run_with(&path, f64::INFINITY, 12, &mut Streams::new(4, 64), size);
        assert_eq!(most, 16);
    }

    #[test]
    fn a_path_that_grows_faster_is_found_again() {
        let mut path = Path {
            rate: 100.0 * MBIT,
            window: 1e6,
            rtt: Time::from_millis(100),
        };
        let mut streams = Streams::new(4, 64);
        run(&path, f64::INFINITY, 60, &mut streams);
        path.rate *= 4.0;
        let (count, _) = run(&path, f64::INFINITY, 120, &mut streams);
        assert!(count >= 5, "{count}");
    }
}
