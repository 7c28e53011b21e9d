// SPDX-License-Identifier: MIT OR Apache-2.0
//! A line for trains of segments, for simulations in which billions of segments pass.
//!
//! A [`TrainLine`] decides as [`Line`](super::Line) does, for as many neighbouring segments at once
//! as have the same outcome. Delay, rate, queue limit and loss are those of `Line`, to the nanosecond, and
//! for the same seed to the segment (`tests/netem/train.rs` compares them). For any other setting a
//! simulation needs a `Line`.

use super::{
    DropCause,
    loss::LossProcess,
    random,
    setting::{LinkConfig, QueueCapacity},
    transmitter::{BYTE_NS_AT_1_BPS, Rate},
};
use longhaul_units::Time;
use std::collections::VecDeque;

/// Segments of one length that arrive at one instant, as the segments of a sender's super-packet do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Train {
    /// Number of segments, at most [`Train::COUNT_MAX`].
    pub count: u32,
    /// Length of each segment in bytes from the IP header on, at most 65,535.
    pub len: u32,
}

impl Train {
    /// Most segments of a train. The sending time of the train at 1 bit/s, in ns, then fits into 64 bits.
    pub const COUNT_MAX: u32 = 4096;
}

/// The outcome of neighbouring segments of a train.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TrainVerdict {
    /// The segments come out.
    Out(Departure),
    /// The segments are lost.
    Lost {
        /// Position of the first of the segments in the train, from 0.
        first: u32,
        /// Number of segments, at least 1.
        count: u32,
        /// Cause of the loss.
        cause: DropCause,
    },
}

/// Neighbouring segments of a train, and the time at which each comes out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Departure {
    /// Position of the first of the segments in the train, from 0.
    pub first: u32,
    /// Number of segments, at least 1.
    pub count: u32,
    /// Time at which the first bit of the first segment would come out at an infinite rate.
    begin: Time,
    /// Sending time left over by the departure before, ns at 1 bit/s; less than `rate_bps`.
    carry: u64,
    /// Sending time of one segment at 1 bit/s, ns; 0 if the rate is unlimited.
    segment_ns_at_1_bps: u64,
    /// Rate in bits a second.
    rate_bps: u64,
}

impl Departure {
    /// A departure of one segment, which comes out at `at`.
    #[must_use]
    pub fn single(at: Time) -> Self {
        Self {
            first: 0,
            count: 1,
            begin: at,
            carry: 0,
            segment_ns_at_1_bps: 0,
            rate_bps: 1,
        }
    }

    /// Time at which segment `index` of this departure comes out, counted from 0.
    #[must_use]
    pub fn at(&self, index: u32) -> Time {
        self.begin + Time::from_nanos(self.ns_at_1_bps_until(index + 1) / self.rate_bps)
    }

    /// Time at which the last segment comes out.
    #[must_use]
    pub fn last_at(&self) -> Time {
        self.at(self.count - 1)
    }

    /// Number of segments that come out at or before `now`.
    #[must_use]
    #[inline]
    pub fn segments_out_by(&self, now: Time) -> u32 {
        if self.segment_ns_at_1_bps == 0 {
            return if now < self.begin { 0 } else { self.count };
        }
        let nanos = now.since(self.begin).as_nanos();
        // The k-th segment, counted from 1, is out once carry + k·segment_ns_at_1_bps < (nanos + 1)·rate_bps.
        let sent = u128::from(nanos + 1) * u128::from(self.rate_bps) - 1;
        let done =
            sent.saturating_sub(u128::from(self.carry)) / u128::from(self.segment_ns_at_1_bps);
        done.min(u128::from(self.count)) as u32
    }

    /// Sending time of the first `count` segments at 1 bit/s, ns, with the carry.
    fn ns_at_1_bps_until(&self, count: u32) -> u64 {
        self.carry + u64::from(count) * self.segment_ns_at_1_bps
    }
}

/// A setting that only a [`Line`](super::Line) can follow, as the error of [`TrainLine::new`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0} is decided segment by segment")]
pub struct UnsupportedSetting(pub &'static str);

/// A direction of a link, for trains of segments.
#[derive(Debug)]
pub struct TrainLine {
    config: LinkConfig,
    queue_capacity: QueueCapacity,
    loss: LossProcess,
    /// Rate in bits a second; `None` if unlimited.
    rate_bps: Option<u64>,
    /// Sending time left over by the last departure, ns at 1 bit/s.
    carry: u64,
    queue: VecDeque<QueuedDeparture>,
    /// Bytes of the unsent segments of `queue`, with the segment in service. Segments of the head that
    /// were sent since the last [`count_sent`](Self::count_sent) are still in the number.
    bytes: u64,
    /// Number of the same segments.
    segments: u64,
}

/// Segments that are not all sent yet, with the times at which they leave the transmitter.
#[derive(Debug)]
struct QueuedDeparture {
    departure: Departure,
    len: u32,
    /// Time at which the last segment is sent.
    end: Time,
    /// Number of segments counted as sent.
    sent: u32,
}

impl TrainLine {
    /// A line that decides as a [`Line`](super::Line) with the same `config` and `seed`.
    ///
    /// # Errors
    ///
    /// A setting that only a `Line` can follow.
    pub fn new(config: LinkConfig, seed: u64) -> Result<Self, UnsupportedSetting> {
        if let Some(setting) = unsupported_setting(&config) {
            return Err(UnsupportedSetting(setting));
        }
        let rate_bps = config.rate.mean().map(longhaul_units::BitRate::bits);
        Ok(Self {
            loss: LossProcess::new(&config.loss, random::stream(seed, "loss")),
            queue_capacity: config.queue_capacity(),
            rate_bps,
            carry: 0,
            queue: VecDeque::new(),
            bytes: 0,
            segments: 0,
            config,
        })
    }

    /// Accepts a train that arrives at `now`, which must not be before the previous call's. Emits the
    /// outcomes of its segments at once and in order, although their times lie in the future.
    pub fn offer(&mut self, now: Time, train: Train, mut emit: impl FnMut(TrainVerdict)) {
        debug_assert!(train.count <= Train::COUNT_MAX);
        self.advance(now);
        let mut next = 0;
        while next < train.count {
            let rest = train.count - next;
            let lost = self.loss.first_lost(rest);
            let passed = lost.unwrap_or(rest);
            if passed > 0 {
                self.admit(
                    now,
                    next,
                    Train {
                        count: passed,
                        ..train
                    },
                    &mut emit,
                );
            }
            next += passed;
            if lost.is_some() {
                emit(lost_at(next, 1, DropCause::Loss));
                next += 1;
            }
        }
    }

    /// Bytes that wait for the transmitter at `now`, without the segment in service.
    pub fn backlog_bytes(&mut self, now: Time) -> u64 {
        self.advance(now);
        self.count_sent(now);
        self.bytes - self.bytes_in_service()
    }

    /// Settings of the line.
    #[must_use]
    pub fn config(&self) -> &LinkConfig {
        &self.config
    }

    /// Removes departures that are sent whole by `now`.
    fn advance(&mut self, now: Time) {
        while let Some(head) = self.queue.front().filter(|head| head.end <= now) {
            let count = head.departure.count - head.sent;
            self.bytes -= u64::from(count) * u64::from(head.len);
            self.segments -= u64::from(count);
            self.queue.pop_front();
        }
    }

    /// Counts the segments of the head that are sent by `now`.
    fn count_sent(&mut self, now: Time) {
        let Some(head) = self.queue.front_mut() else {
            return;
        };
        let sent = head.departure.segments_out_by(now);
        let newly_sent = u64::from(sent - head.sent);
        head.sent = sent;
        self.bytes -= newly_sent * u64::from(head.len);
        self.segments -= newly_sent;
    }

    /// Bytes of the segment in service; 0 if the transmitter is idle.
    fn bytes_in_service(&self) -> u64 {
        self.queue.front().map_or(0, |head| u64::from(head.len))
    }

    /// Queues as many segments of `train` as the limit allows, and drops the others. `first` is the position of the
    /// first.
    fn admit(&mut self, now: Time, first: u32, train: Train, emit: &mut impl FnMut(TrainVerdict)) {
        let admitted = match self.rate_bps {
            None => train.count,
            Some(_) => self.segments_that_fit(now, train),
        };
        if admitted > 0 {
            emit(TrainVerdict::Out(
                self.send(now, first, admitted, train.len),
            ));
        }
        if admitted < train.count {
            emit(lost_at(
                first + admitted,
                train.count - admitted,
                DropCause::Overflow,
            ));
        }
    }

    /// Number of segments of `train` that the queue takes, and one more if the transmitter is idle.
    fn segments_that_fit(&mut self, now: Time, train: Train) -> u32 {
        let len = u64::from(train.len);
        // The counts are upper bounds here: segments of the head may be sent already.
        let fits_whole = self.bytes + len * u64::from(train.count) <= self.queue_capacity.bytes
            && self.segments + u64::from(train.count) <= self.queue_capacity.packets as u64;
        if fits_whole {
            return train.count;
        }
        self.count_sent(now);
        let idle = u64::from(self.queue.is_empty());
        let waiting = self.segments - u64::from(!self.queue.is_empty());
        let bytes = self.bytes - self.bytes_in_service();
        let room = (self.queue_capacity.bytes.saturating_sub(bytes) / len)
            .min((self.queue_capacity.packets as u64).saturating_sub(waiting));
        (room + idle).min(train.count.into()) as u32
    }

    /// Sends `count` segments of `len` bytes behind those in the queue, and returns when they come out.
    fn send(&mut self, now: Time, first: u32, count: u32, len: u32) -> Departure {
        let begin = self.queue.back().map_or(now, |last| last.end);
        let mut departure = Departure {
            first,
            count,
            begin,
            carry: self.carry,
            segment_ns_at_1_bps: u64::from(len + self.config.overhead) * BYTE_NS_AT_1_BPS,
            rate_bps: self.rate_bps.unwrap_or(1),
        };
        match self.rate_bps {
            None => departure.segment_ns_at_1_bps = 0,
            Some(_) => self.enqueue(departure, len),
        }
        departure.begin += self.config.delay;
        departure
    }

    fn enqueue(&mut self, departure: Departure, len: u32) {
        let ns_at_1_bps = departure.ns_at_1_bps_until(departure.count);
        self.carry = ns_at_1_bps % departure.rate_bps;
        self.bytes += u64::from(departure.count) * u64::from(len);
        self.segments += u64::from(departure.count);
        self.queue.push_back(QueuedDeparture {
            departure,
            len,
            end: departure.begin + Time::from_nanos(ns_at_1_bps / departure.rate_bps),
            sent: 0,
        });
    }
}

fn lost_at(first: u32, count: u32, cause: DropCause) -> TrainVerdict {
    TrainVerdict::Lost {
        first,
        count,
        cause,
    }
}

/// The first setting that a [`TrainLine`] can't follow.
fn unsupported_setting(config: &LinkConfig) -> Option<&'static str> {
    use super::queue::discipline::QueueDiscipline;
    [
        (matches!(config.rate, Rate::Trace(_)), "a trace"),
        (!config.jitter.is_none(), "jitter"),
        (config.aqm != QueueDiscipline::Tail, "an AQM"),
        (config.duplicate.get() > 0.0, "duplication"),
        (config.corrupt.get() > 0.0, "corruption"),
        (config.reorder.probability.get() > 0.0, "reordering"),
        (config.ack.thin > 0, "ACK thinning"),
        (config.ack.rate.is_some(), "ACK pacing"),
    ]
    .into_iter()
    .find_map(|(is_set, setting)| is_set.then_some(setting))
}
