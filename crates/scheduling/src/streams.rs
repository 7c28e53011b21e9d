// SPDX-License-Identifier: MIT OR Apache-2.0
//! How many streams carry a copy.
//!
//! A stream moves a window a round trip at most, so a long path wants as many as fill it. How much it holds nobody says,
//! so the first number is a guess from what is known at once: the round trip, and the largest window that buffers
//! allow, or that is quickly back after a loss. From there it is tried: twice as many as long as that makes the whole faster, and
//! back again if it does not. Where a queue stands the path is full already, and nothing is tried: more streams would only take
//! what others have, and those that come to a full path stay slow, which everybody waits for at the end. Where none stands and the
//! path has carried more before, losses hold windows small, and more of them help at once.

use longhaul_units::{BitRate, Time};

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
/// So many round trips count, and at least so long. When the number has changed as many go by before them, for slow start
/// takes about eight to fill a gigabit by sixteen streams.
const COUNTED_ROUNDS: u64 = 8;
const COUNTED_MIN: Time = Time::from_millis(750);
/// More streams stay if they bring so much more.
const GAIN: f64 = 1.05;
/// Otherwise they go one in so many at a time: what they have under way the others have to grow into.
const STEPS_BACK: usize = 8;
/// After a trial that brought nothing, so many trials' time goes by before the next,
const REST_TRIALS: u64 = 16;
/// but for a rate that has fallen below this share of the best.
const FALLEN: f64 = 0.85;
/// The path, not the disks, is what a copy waits for if this share of streams has data waiting.
const WAITING: f64 = 0.7;
/// A queue stands where this share of streams sees one.
const QUEUED: f64 = 0.5;
/// Which a stream does whose round trips last so many times as long as the shortest of them, and so much longer: what a
/// host's scheduling and delayed acknowledgements add is less.
const QUEUED_RATIO: f64 = 1.25;
const QUEUED_MIN: Time = Time::from_millis(4);

/// What a look at all streams shows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Look {
    /// Bytes that have been acknowledged on all streams since the beginning.
    pub acked_bytes: u64,
    /// The longest round trip of them without what waits in queues.
    pub rtt: Time,
    /// The share of streams that have data which the path has not taken yet, 0 to 1.
    pub waiting: f64,
    /// The share of streams that see a queue ([`sees_queue`]), 0 to 1.
    pub queued: f64,
    /// Bytes that are still to be sent, if that is known.
    pub left_bytes: Option<u64>,
}

/// The number of streams, as it changes.
#[derive(Debug, Clone)]
pub struct Streams {
    count: usize,
    most: usize,
    trial: Option<Trial>,
    /// There are new streams, whose windows are not what they will be.
    grown: bool,
    /// It was raised, which has to prove itself.
    raised: Option<Raised>,
    /// It was raised for nothing, and goes back to this.
    enough: Option<usize>,
    /// The best rate since a trial last brought nothing.
    best: f64,
    /// No larger number is tried before then, unless the rate falls.
    rest_until: Time,
}

/// More streams than before.
#[derive(Debug, Clone, Copy)]
struct Raised {
    /// How many there were.
    from: usize,
    /// It stays if there are more bytes a second than that.
    beyond: f64,
}

/// A while in which the number stays as it is.
#[derive(Debug, Clone)]
struct Trial {
    began: Time,
    /// For windows to fill, before it counts.
    filling: Time,
    length: Time,
    /// When it began to count, and what had been acknowledged.
    counts_from: Option<(Time, u64)>,
    looks: u32,
    waiting: f64,
    queued: f64,
}

/// What a trial showed.
#[derive(Debug)]
struct Shown {
    /// Bytes a second.
    rate: f64,
    /// Shares of streams, over its second half.
    waiting: f64,
    queued: f64,
}

/// Whether the path of a stream holds more than it carries, by its smoothed round trip and the shortest that it has seen.
#[must_use]
pub fn sees_queue(rtt: Time, rtt_min: Time) -> bool {
    rtt > rtt_min + QUEUED_MIN && rtt.as_secs_f64() > rtt_min.as_secs_f64() * QUEUED_RATIO
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
            grown: true,
            raised: None,
            enough: None,
            best: 0.0,
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
        let trial = self
            .trial
            .get_or_insert_with(|| Trial::new(now, look.rtt, self.grown));
        if let Some(shown) = trial.look(now, look) {
            let before = self.count;
            self.trial = None;
            self.conclude(now, look, &shown);
            self.grown = self.count > before;
        }
        self.count
    }

    /// A trial has ended.
    fn conclude(&mut self, now: Time, look: &Look, shown: &Shown) {
        let rate = shown.rate;
        self.judge(now, look, rate);
        self.best = self.best.max(rate);
        let fallen = rate < self.best * FALLEN;
        match self.enough {
            Some(enough) if !fallen => self.step_back(enough),
            _ if (fallen || now >= self.rest_until) && wants_more(look, shown) => self.raise(rate),
            _ => {}
        }
    }

    /// What brought nothing is taken back.
    fn judge(&mut self, now: Time, look: &Look, rate: f64) {
        if let Some(raised) = self.raised.take()
            && rate <= raised.beyond
        {
            self.enough = Some(raised.from);
            self.best = rate;
            self.rest_until = now + counted(look.rtt) * 2 * REST_TRIALS;
        }
    }

    fn step_back(&mut self, enough: usize) {
        self.count = (self.count - self.count.div_ceil(STEPS_BACK)).max(enough);
        self.enough = (self.count > enough).then_some(enough);
    }

    fn raise(&mut self, rate: f64) {
        if self.count == self.most {
            return;
        }
        let (gain, least) = (rate * GAIN, self.best * FALLEN);
        self.raised = Some(Raised {
            from: self.count,
            // Windows that go on to wear away hide what more of them bring: near the best again is enough.
            beyond: if rate < least { gain.min(least) } else { gain },
        });
        self.enough = None;
        self.count = (self.count * 2).min(self.most);
    }
}

/// Whether more streams may bring more: the path is what is waited for, it is not full, and there is enough left that a trial
/// is worth it.
fn wants_more(look: &Look, shown: &Shown) -> bool {
    let trial = shown.rate * 2.0 * counted(look.rtt).as_secs_f64();
    let worth = look.left_bytes.is_none_or(|left| left as f64 > trial);
    worth && shown.waiting >= WAITING && shown.queued < QUEUED
}

/// How long a trial counts.
fn counted(rtt: Time) -> Time {
    (rtt * COUNTED_ROUNDS).max(COUNTED_MIN)
}

impl Trial {
    fn new(began: Time, rtt: Time, grown: bool) -> Self {
        let counted = counted(rtt);
        let filling = if grown { counted } else { Time::ZERO };
        Self {
            began,
            filling,
            length: filling + counted,
            counts_from: None,
            looks: 0,
            waiting: 0.0,
            queued: 0.0,
        }
    }

    /// At its end, what it showed.
    fn look(&mut self, now: Time, look: &Look) -> Option<Shown> {
        let lasted = now.since(self.began);
        if lasted < self.filling {
            return None;
        }
        let (from, acked) = *self.counts_from.get_or_insert((now, look.acked_bytes));
        self.looks += 1;
        self.waiting += look.waiting;
        self.queued += look.queued;
        if lasted < self.length || now == from {
            return None;
        }
        let bytes = look.acked_bytes.saturating_sub(acked);
        let looks = f64::from(self.looks);
        Some(Shown {
            rate: bytes as f64 / now.since(from).as_secs_f64(),
            waiting: self.waiting / looks,
            queued: self.queued / looks,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MBIT: f64 = 1e6 / 8.0;

    /// A path that carries so many bytes a second, of which each stream gets a window a round trip.
    #[derive(Clone, Copy)]
    struct Path {
        rate: f64,
        window: f64,
        rtt: Time,
        /// In BDP. Where there is hardly any, packets that are too many are lost.
        queue: f64,
    }

    const GIGABIT: Path = Path {
        rate: 1000.0 * MBIT,
        window: 1e6,
        rtt: Time::from_millis(350),
        queue: 0.1,
    };

    /// A copy over it.
    struct Copy {
        path: Path,
        /// What the disks give.
        source: f64,
        size: Option<u64>,
        streams: Streams,
        now: Time,
        acked: f64,
        /// The most streams there were.
        most: usize,
    }

    impl Copy {
        fn over(path: Path, streams: Streams) -> Self {
            Self {
                path,
                source: f64::INFINITY,
                size: None,
                most: streams.count(),
                streams,
                now: Time::ZERO,
                acked: 0.0,
            }
        }

        /// How many streams there are after so many seconds more, and the most that were.
        fn run(&mut self, seconds: u64) -> (usize, usize) {
            let end = self.now + Time::from_secs(seconds);
            while self.now < end {
                self.step(Time::from_millis(250));
            }
            (self.streams.count(), self.most)
        }

        fn step(&mut self, step: Time) {
            let Path {
                rate,
                window,
                rtt,
                queue,
            } = self.path;
            let carry = self.streams.count() as f64 * window / rtt.as_secs_f64();
            // What windows hold beyond the path waits in its queue.
            let queued = rtt.as_secs_f64() * (carry / rate - 1.0).clamp(0.0, queue);
            self.acked += carry.min(rate).min(self.source) * step.as_secs_f64();
            self.now += step;
            let look = Look {
                acked_bytes: self.acked as u64,
                rtt,
                waiting: if self.source > carry.min(rate) {
                    1.0
                } else {
                    0.1
                },
                queued: f64::from(sees_queue(rtt + Time::from_secs_f64(queued), rtt)),
                left_bytes: self.size.map(|size| size.saturating_sub(self.acked as u64)),
            };
            self.most = self.most.max(self.streams.look(self.now, &look));
        }
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
        let (count, most) = Copy::over(GIGABIT, Streams::new(4, 256)).run(120);
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
            ..GIGABIT
        };
        let mut copy = Copy::over(path, Streams::new(4, 64));
        let counts: Vec<usize> = (0..120).map(|_| copy.run(1).0).collect();
        assert_eq!(copy.most, 8);
        let at_four = counts.iter().filter(|count| **count == 4).count();
        assert!(at_four > 80, "{counts:?}");
    }

    /// What bench/copy showed at 350 ms: 15 more streams came to a full path, and the last blocks were theirs.
    #[test]
    fn where_a_queue_stands_no_number_is_tried() {
        let most = |window| {
            let path = Path {
                window,
                queue: 1.0,
                ..GIGABIT
            };
            Copy::over(path, Streams::new(15, 64)).run(120).1
        };
        assert_eq!(most(5e6), 15);
        assert_eq!(most(1e6), 60, "15 leave it half empty");
    }

    /// Slow start has filled the path, a trial has shown that more bring nothing, and then losses wear windows away.
    #[test]
    fn where_losses_wear_windows_away_more_streams_come_soon() {
        let path = Path {
            window: 5e6,
            ..GIGABIT
        };
        let mut copy = Copy::over(path, Streams::new(15, 64));
        assert_eq!(copy.run(40), (15, 30));
        let mut worst = f64::INFINITY;
        for _ in 0..60 {
            copy.path.window = (copy.path.window * 0.95).max(8e5);
            let acked = copy.acked;
            copy.run(1);
            worst = (copy.acked - acked).min(worst);
        }
        assert!(copy.streams.count() >= 55);
        assert!(worst > 0.6 * path.rate, "{worst}");
    }

    /// As where others have taken half of the path.
    #[test]
    fn where_more_bring_nothing_although_the_rate_has_fallen_they_are_tried_once() {
        let path = Path {
            window: 5e6,
            ..GIGABIT
        };
        let mut copy = Copy::over(path, Streams::new(15, 64));
        copy.run(40);
        copy.path.rate /= 2.0;
        let mut tried = 0;
        for _ in 0..60 {
            let before = copy.streams.count();
            tried += usize::from(copy.run(1).0 > before);
        }
        assert_eq!((tried, copy.streams.count()), (1, 15));
    }

    #[test]
    fn what_hosts_add_is_no_queue() {
        let sees = |rtt, rtt_min| sees_queue(Time::from_micros(rtt), Time::from_micros(rtt_min));
        assert!(!sees(3_000, 100) && !sees(23_000, 20_000) && !sees(400_000, 350_000));
        assert!(sees(5_000, 100) && sees(30_000, 20_000) && sees(450_000, 350_000));
    }

    #[test]
    fn a_disk_that_is_slower_than_the_path_asks_for_none() {
        let path = Path {
            rtt: Time::from_millis(100),
            ..GIGABIT
        };
        let mut copy = Copy::over(path, Streams::new(4, 64));
        copy.source = 100.0 * MBIT;
        assert_eq!(copy.run(60), (4, 4));
    }

    #[test]
    fn what_is_almost_done_asks_for_none() {
        let most = |size| {
            let mut copy = Copy::over(GIGABIT, Streams::new(4, 64));
            copy.size = Some(size);
            copy.run(12).1
        };
        // Twelve seconds by four streams, and a trial takes six.
        assert_eq!(most(130_000_000), 4);
        assert_eq!(most(1_300_000_000), 16);
    }

    #[test]
    fn a_path_that_grows_faster_is_found_again() {
        let path = Path {
            rate: 100.0 * MBIT,
            rtt: Time::from_millis(100),
            ..GIGABIT
        };
        let mut copy = Copy::over(path, Streams::new(4, 64));
        copy.run(60);
        copy.path.rate *= 4.0;
        let (count, _) = copy.run(120);
        assert!(count >= 5, "{count}");
    }
}
