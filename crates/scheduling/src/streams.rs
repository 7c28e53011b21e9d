// SPDX-License-Identifier: MIT OR Apache-2.0
//! The number of streams that carry a copy.
//!
//! A stream moves at most a window each round trip, so a long path needs as many streams as fill it. The path's
//! capacity is unknown. So the first number is a guess from two values that are known at once: the round-trip time, and
//! the largest window that buffers allow or that recovers quickly after a loss.
//!
//! Trials adjust the number from there. It doubles as long as that makes the copy faster, and goes back if it does not.
//!
//! - If the path has a standing queue, it is full, and no larger number is tried. More streams would only take
//!   bandwidth from other traffic. New streams on a full path stay slow, and the copy waits for them at its end.
//! - If it has none and has carried more before, losses keep windows small, and more streams help at once.

use longhaul_units::{BitRate, Time};

/// The smallest number of streams, and the number before anything is known.
pub const STREAMS_MIN: usize = 4;
/// The largest number of streams. 64 windows of 3 MB fill 4 Gbit/s at 350 ms. Memory at either end: 4 MiB and the
/// socket's buffers for each stream.
pub const STREAMS_MAX: usize = 64;

/// The rate that the first guess assumes. Trials find the number for faster paths.
const GUESSED_RATE: BitRate = BitRate::from_bits(1_000_000_000);
/// The largest window of a stream that the first guess assumes, in bytes, whatever buffers allow. CUBIC recovers a
/// window of 3 MB some ten seconds after a loss. A larger window takes longer (RFC 9438 §4.2: the cube root of the
/// window, in seconds).
const GUESSED_WINDOW_MAX: u64 = 3_000_000;
/// Round trips that a trial measures. After an increase, as many pass before the measurement: slow start takes about
/// eight to fill a gigabit with sixteen streams.
const MEASURED_ROUND_TRIPS: u64 = 8;
/// The shortest measurement of a trial.
const MEASURED_MIN: Time = Time::from_millis(750);
/// Factor by which the rate must rise for additional streams to stay.
const GAIN_MIN: f64 = 1.05;
/// Additional streams that brought no gain are removed step by step: one of this many streams after each trial. The
/// other streams need time to take over the bandwidth of those that are removed.
const DECREASE_DIVISOR: usize = 8;
/// The pause after an increase without gain, in lengths of a trial with its warm-up.
const PAUSE_TRIALS: u64 = 16;
/// The share of the best rate below which the rate counts as fallen. Then an increase is tried despite the pause.
const RATE_FALLEN: f64 = 0.85;
/// The smallest share of streams with unsent data from which on a copy waits for the path, not for disks.
const WAITING_MIN: f64 = 0.7;
/// The smallest share of streams that see a queue from which on the path has a standing queue.
const QUEUED_MIN: f64 = 0.5;
/// A stream sees a queue if its round-trip time exceeds the shortest by this factor and by [`QUEUE_DELAY_MIN`].
/// Scheduling on hosts and delayed acknowledgements add less.
const QUEUE_RTT_RATIO: f64 = 1.25;
const QUEUE_DELAY_MIN: Time = Time::from_millis(4);

/// A sample of all streams.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StreamSample {
    /// Bytes acknowledged on all streams since the start of the copy.
    pub acked_bytes: u64,
    /// The longest round-trip time of any stream, without queueing delay.
    pub rtt: Time,
    /// The share of streams that have unsent data in their sockets, 0 to 1.
    pub waiting: f64,
    /// The share of streams that see a queue ([`sees_queue`]), 0 to 1.
    pub queued: f64,
    /// Bytes that are still to be sent, if known.
    pub remaining_bytes: Option<u64>,
}

/// The number of streams, adjusted by trials.
#[derive(Debug, Clone)]
pub struct StreamCount {
    count: usize,
    count_max: usize,
    trial: Option<Trial>,
    /// Whether the next trial begins with new streams, whose windows still grow.
    has_new_streams: bool,
    /// The latest increase, until a trial shows whether it brought a gain.
    increase: Option<Increase>,
    /// The number to go back to, after an increase without gain.
    decrease_to: Option<usize>,
    /// The best rate since the latest increase without gain, in bytes a second.
    best_rate: f64,
    /// Time before which no larger number is tried, unless the rate falls.
    paused_until: Time,
}

/// An increase of the number of streams.
#[derive(Debug, Clone, Copy)]
struct Increase {
    /// Number of streams before.
    count_before: usize,
    /// Bytes a second that must be exceeded for the increase to stay.
    rate_to_exceed: f64,
}

/// A period with a constant number of streams, in which their rate is measured.
#[derive(Debug, Clone)]
struct Trial {
    start: Time,
    /// Time for windows to fill, before the measurement.
    warmup: Time,
    /// Time of the warm-up and the measurement.
    length: Time,
    /// The time when the measurement began, and the bytes acknowledged by then.
    measured_from: Option<(Time, u64)>,
    /// Samples in the measurement.
    samples: u32,
    /// Sums of [`StreamSample::waiting`] and [`StreamSample::queued`] over these samples.
    waiting: f64,
    queued: f64,
}

/// The result of a trial.
#[derive(Debug)]
struct TrialResult {
    /// Bytes a second.
    rate: f64,
    /// Means of [`StreamSample::waiting`] and [`StreamSample::queued`].
    waiting: f64,
    queued: f64,
}

/// Whether the path of a stream has a standing queue, by its smoothed round-trip time and the shortest that it has
/// seen.
#[must_use]
pub fn sees_queue(rtt: Time, rtt_min: Time) -> bool {
    rtt > rtt_min + QUEUE_DELAY_MIN && rtt.as_secs_f64() > rtt_min.as_secs_f64() * QUEUE_RTT_RATIO
}

/// The first guess of the number of streams: as many windows as a path of 1 Gbit/s holds, from [`STREAMS_MIN`] to
/// `max`.
#[must_use]
pub fn guess(rtt: Time, window_bytes: u64, max: usize) -> usize {
    let path = GUESSED_RATE.bits() as f64 / 8.0 * rtt.as_secs_f64();
    let window = window_bytes.clamp(1, GUESSED_WINDOW_MAX);
    let streams = (path / window as f64).ceil() as usize;
    streams.clamp(STREAMS_MIN.min(max), max)
}

impl StreamCount {
    /// Begins with `count` streams. Their number never exceeds `max`.
    #[must_use]
    pub fn new(count: usize, max: usize) -> Self {
        Self {
            count: count.clamp(1, max.max(1)),
            count_max: max.max(1),
            trial: None,
            has_new_streams: true,
            increase: None,
            decrease_to: None,
            best_rate: 0.0,
            paused_until: Time::ZERO,
        }
    }

    /// The number of streams that there should be.
    #[must_use]
    pub fn count(&self) -> usize {
        self.count
    }

    /// Evaluates a sample, and returns the number of streams that there should be from now on. Call this several times
    /// a second.
    pub fn update(&mut self, now: Time, sample: &StreamSample) -> usize {
        let trial = self
            .trial
            .get_or_insert_with(|| Trial::new(now, sample.rtt, self.has_new_streams));
        if let Some(result) = trial.add(now, sample) {
            let before = self.count;
            self.trial = None;
            self.adjust(now, sample, &result);
            self.has_new_streams = self.count > before;
        }
        self.count
    }

    /// Adjusts the number at the end of a trial.
    fn adjust(&mut self, now: Time, sample: &StreamSample, result: &TrialResult) {
        let rate = result.rate;
        self.check_increase(now, sample, rate);
        self.best_rate = self.best_rate.max(rate);
        let has_fallen = rate < self.best_rate * RATE_FALLEN;
        let may_increase = has_fallen || now >= self.paused_until;
        match self.decrease_to {
            Some(target) if !has_fallen => self.decrease(target),
            _ if may_increase && more_may_help(sample, result) => self.increase(rate),
            _ => {}
        }
    }

    /// Begins to undo the latest increase if it brought no gain.
    fn check_increase(&mut self, now: Time, sample: &StreamSample, rate: f64) {
        if let Some(increase) = self.increase.take()
            && rate <= increase.rate_to_exceed
        {
            self.decrease_to = Some(increase.count_before);
            self.best_rate = rate;
            self.paused_until = now + measurement_time(sample.rtt) * 2 * PAUSE_TRIALS;
        }
    }

    fn decrease(&mut self, target: usize) {
        self.count = (self.count - self.count.div_ceil(DECREASE_DIVISOR)).max(target);
        self.decrease_to = (self.count > target).then_some(target);
    }

    fn increase(&mut self, rate: f64) {
        if self.count == self.count_max {
            return;
        }
        let (gain, near_best) = (rate * GAIN_MIN, self.best_rate * RATE_FALLEN);
        self.increase = Some(Increase {
            count_before: self.count,
            // If windows shrink during the trial, they hide the gain of additional streams. Then it is enough that the
            // rate is near the best rate again.
            rate_to_exceed: if rate < near_best {
                gain.min(near_best)
            } else {
                gain
            },
        });
        self.decrease_to = None;
        self.count = (self.count * 2).min(self.count_max);
    }
}

/// Whether more streams may raise the rate: the copy waits for the path, the path is not full, and enough is left to be
/// sent that a trial is worth it.
fn more_may_help(sample: &StreamSample, result: &TrialResult) -> bool {
    let trial_bytes = result.rate * 2.0 * measurement_time(sample.rtt).as_secs_f64();
    let is_worth_it = sample
        .remaining_bytes
        .is_none_or(|left| left as f64 > trial_bytes);
    is_worth_it && result.waiting >= WAITING_MIN && result.queued < QUEUED_MIN
}

/// The length of a trial's measurement, without its warm-up.
fn measurement_time(rtt: Time) -> Time {
    (rtt * MEASURED_ROUND_TRIPS).max(MEASURED_MIN)
}

impl Trial {
    fn new(start: Time, rtt: Time, has_new_streams: bool) -> Self {
        let measurement = measurement_time(rtt);
        let warmup = if has_new_streams {
            measurement
        } else {
            Time::ZERO
        };
        Self {
            start,
            warmup,
            length: warmup + measurement,
            measured_from: None,
            samples: 0,
            waiting: 0.0,
            queued: 0.0,
        }
    }

    /// Adds a sample, and returns the result when the trial has ended.
    fn add(&mut self, now: Time, sample: &StreamSample) -> Option<TrialResult> {
        let elapsed = now.since(self.start);
        if elapsed < self.warmup {
            return None;
        }
        let (from, acked) = *self.measured_from.get_or_insert((now, sample.acked_bytes));
        self.samples += 1;
        self.waiting += sample.waiting;
        self.queued += sample.queued;
        if elapsed < self.length || now == from {
            return None;
        }
        let bytes = sample.acked_bytes.saturating_sub(acked);
        let samples = f64::from(self.samples);
        Some(TrialResult {
            rate: bytes as f64 / now.since(from).as_secs_f64(),
            waiting: self.waiting / samples,
            queued: self.queued / samples,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MBIT: f64 = 1e6 / 8.0;

    /// A path of `rate` bytes a second, on which each stream sends a window of `window` bytes each round trip.
    #[derive(Clone, Copy)]
    struct Path {
        rate: f64,
        window: f64,
        rtt: Time,
        /// Length of the queue in BDP. If it is short, excess packets are lost.
        queue: f64,
    }

    const GIGABIT: Path = Path {
        rate: 1000.0 * MBIT,
        window: 1e6,
        rtt: Time::from_millis(350),
        queue: 0.1,
    };

    /// A copy over a path.
    struct Copy {
        path: Path,
        /// Bytes a second that the source's disks deliver.
        source: f64,
        size: Option<u64>,
        streams: StreamCount,
        now: Time,
        acked: f64,
        /// The largest number of streams so far.
        peak_count: usize,
    }

    impl Copy {
        fn over(path: Path, streams: StreamCount) -> Self {
            Self {
                path,
                source: f64::INFINITY,
                size: None,
                peak_count: streams.count(),
                streams,
                now: Time::ZERO,
                acked: 0.0,
            }
        }

        /// Runs for `seconds` more. Returns the number of streams at the end, and the largest number so far.
        fn run(&mut self, seconds: u64) -> (usize, usize) {
            let end = self.now + Time::from_secs(seconds);
            while self.now < end {
                self.step(Time::from_millis(250));
            }
            (self.streams.count(), self.peak_count)
        }

        fn step(&mut self, step: Time) {
            let Path {
                rate,
                window,
                rtt,
                queue,
            } = self.path;
            let offered = self.streams.count() as f64 * window / rtt.as_secs_f64();
            // Data in windows beyond the path's capacity waits in its queue.
            let queued = rtt.as_secs_f64() * (offered / rate - 1.0).clamp(0.0, queue);
            self.acked += offered.min(rate).min(self.source) * step.as_secs_f64();
            self.now += step;
            let sample = StreamSample {
                acked_bytes: self.acked as u64,
                rtt,
                waiting: if self.source > offered.min(rate) {
                    1.0
                } else {
                    0.1
                },
                queued: f64::from(sees_queue(rtt + Time::from_secs_f64(queued), rtt)),
                remaining_bytes: self.size.map(|size| size.saturating_sub(self.acked as u64)),
            };
            self.peak_count = self.peak_count.max(self.streams.update(self.now, &sample));
        }
    }

    #[test]
    fn guess_fills_a_gigabit_with_the_given_windows() {
        let guess = |ms, window| guess(Time::from_millis(ms), window, STREAMS_MAX);
        assert_eq!(guess(350, 3_000_000), 15);
        assert_eq!(guess(350, 64 << 20), 15, "a loss would cost minutes");
        assert_eq!(guess(20, 3 << 20), STREAMS_MIN);
        assert_eq!(guess(350, 64 << 10), STREAMS_MAX);
        assert_eq!(guess(0, 0), STREAMS_MIN);
        assert_eq!(super::guess(Time::from_millis(350), 1, 2), 2);
    }

    #[test]
    fn adds_streams_until_the_path_is_full() {
        let (count, peak_count) = Copy::over(GIGABIT, StreamCount::new(4, 256)).run(120);
        // 44 windows fill the path; the last trial, of 128, brought no gain.
        assert!((44..=64).contains(&count), "{count}");
        assert_eq!(peak_count, 128);
    }

    #[test]
    fn keeps_the_number_if_more_streams_bring_no_gain() {
        let path = Path {
            rate: 100.0 * MBIT,
            window: 1e7,
            rtt: Time::from_millis(20),
            ..GIGABIT
        };
        let mut copy = Copy::over(path, StreamCount::new(4, 64));
        let counts: Vec<usize> = (0..120).map(|_| copy.run(1).0).collect();
        assert_eq!(copy.peak_count, 8);
        let at_four = counts.iter().filter(|count| **count == 4).count();
        assert!(at_four > 80, "{counts:?}");
    }

    /// Regression test. In bench/copy at 350 ms, 15 more streams were opened on a full path, and the copy waited for
    /// their last blocks.
    #[test]
    fn tries_no_more_streams_while_a_queue_stands() {
        let peak_count = |window| {
            let path = Path {
                window,
                queue: 1.0,
                ..GIGABIT
            };
            Copy::over(path, StreamCount::new(15, 64)).run(120).1
        };
        assert_eq!(peak_count(5e6), 15);
        assert_eq!(peak_count(1e6), 60, "15 leave it half empty");
    }

    /// Slow start has filled the path, a trial has shown that more streams bring no gain, and then losses shrink
    /// windows.
    #[test]
    fn adds_streams_soon_when_losses_shrink_windows() {
        let path = Path {
            window: 5e6,
            ..GIGABIT
        };
        let mut copy = Copy::over(path, StreamCount::new(15, 64));
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

    /// Other traffic has taken half of the path.
    #[test]
    fn tries_more_streams_once_after_a_fall_of_the_rate() {
        let path = Path {
            window: 5e6,
            ..GIGABIT
        };
        let mut copy = Copy::over(path, StreamCount::new(15, 64));
        copy.run(40);
        copy.path.rate /= 2.0;
        let mut increases = 0;
        for _ in 0..60 {
            let before = copy.streams.count();
            increases += usize::from(copy.run(1).0 > before);
        }
        assert_eq!((increases, copy.streams.count()), (1, 15));
    }

    #[test]
    fn delays_of_hosts_are_no_queue() {
        let sees = |rtt, rtt_min| sees_queue(Time::from_micros(rtt), Time::from_micros(rtt_min));
        assert!(!sees(3_000, 100) && !sees(23_000, 20_000) && !sees(400_000, 350_000));
        assert!(sees(5_000, 100) && sees(30_000, 20_000) && sees(450_000, 350_000));
    }

    #[test]
    fn adds_no_streams_for_a_disk_slower_than_the_path() {
        let path = Path {
            rtt: Time::from_millis(100),
            ..GIGABIT
        };
        let mut copy = Copy::over(path, StreamCount::new(4, 64));
        copy.source = 100.0 * MBIT;
        assert_eq!(copy.run(60), (4, 4));
    }

    #[test]
    fn adds_no_streams_for_an_almost_finished_copy() {
        let peak_count = |size| {
            let mut copy = Copy::over(GIGABIT, StreamCount::new(4, 64));
            copy.size = Some(size);
            copy.run(12).1
        };
        // Four streams need twelve seconds for the smaller copy, and a trial takes six.
        assert_eq!(peak_count(130_000_000), 4);
        assert_eq!(peak_count(1_300_000_000), 16);
    }

    #[test]
    fn adds_streams_when_the_path_becomes_faster() {
        let path = Path {
            rate: 100.0 * MBIT,
            rtt: Time::from_millis(100),
            ..GIGABIT
        };
        let mut copy = Copy::over(path, StreamCount::new(4, 64));
        copy.run(60);
        copy.path.rate *= 4.0;
        let (count, _) = copy.run(120);
        assert!(count >= 5, "{count}");
    }
}
