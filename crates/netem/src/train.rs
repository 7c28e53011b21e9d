// SPDX-License-Identifier: MIT OR Apache-2.0
//! One direction of a link for trains of segments: the fates of [`Line`](super::Line), decided for
//! as many segments at once as share one.
//!
//! It serves simulations, where billions of segments pass. Delay, rate, queue limit and loss are
//! those of `Line`, to the nanosecond and for the same seed to the segment
//! (`tests/train.rs` holds them to it); for anything else a simulation needs a `Line`.

use super::{
    Drop,
    loss::LossProcess,
    random,
    setting::{Limit, Shape},
    transmitter::{BYTE_BIT_NANOS, Rate},
};
use longhaul_units::Time;
use std::collections::VecDeque;

/// Segments of one length that arrive at one instant, as a sender's super-packet does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Train {
    /// How many, at most [`Train::COUNT_MAX`].
    pub count: u32,
    /// Bytes of each from the IP header on, at most 65,535.
    pub len: u32,
}

impl Train {
    /// Keeps the sending time of a whole train inside 64 bits of bit-nanoseconds.
    pub const COUNT_MAX: u32 = 4096;
}

/// Neighbours of one train that share a fate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// They come out.
    Out(Departure),
    /// They don't.
    Lost {
        /// The first of them, counted from 0 in the train.
        first: u32,
        /// How many.
        count: u32,
        /// Why.
        cause: Drop,
    },
}

/// Neighbours of one train, and when each comes out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Departure {
    /// The first of them, counted from 0 in the train.
    pub first: u32,
    /// How many, at least 1.
    pub count: u32,
    /// When the first bit of the first would be out, were the wire infinitely fast.
    begin: Time,
    /// Bit-nanoseconds that were left over before it.
    carry: u64,
    /// Bit-nanoseconds of one segment at 1 bit/s.
    work: u64,
    bits: u64,
}

impl Departure {
    /// One segment, out at `at`.
    #[must_use]
    pub fn single(at: Time) -> Self {
        Self {
            first: 0,
            count: 1,
            begin: at,
            carry: 0,
            work: 0,
            bits: 1,
        }
    }

    /// When segment `index` of these is out, counted from 0.
    #[must_use]
    pub fn at(&self, index: u32) -> Time {
        self.begin + Time::from_nanos(self.after(index + 1) / self.bits)
    }

    /// When the last of these is out.
    #[must_use]
    pub fn last_at(&self) -> Time {
        self.at(self.count - 1)
    }

    /// How many of these are out by `now`.
    #[must_use]
    #[inline]
    pub fn out_by(&self, now: Time) -> u32 {
        if self.work == 0 {
            return if now < self.begin { 0 } else { self.count };
        }
        let nanos = now.since(self.begin).as_nanos();
        // Segment k is out once carry + k·work < (nanos + 1)·bits.
        let sent = u128::from(nanos + 1) * u128::from(self.bits) - 1;
        let done = sent.saturating_sub(u128::from(self.carry)) / u128::from(self.work);
        done.min(u128::from(self.count)) as u32
    }

    fn after(&self, count: u32) -> u64 {
        self.carry + u64::from(count) * self.work
    }
}

/// Why a [`Shape`] needs a [`Line`](super::Line).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0} is decided segment by segment")]
pub struct NotForTrains(pub &'static str);

/// One direction of a link.
#[derive(Debug)]
pub struct TrainLine {
    shape: Shape,
    limit: Limit,
    loss: LossProcess,
    /// Bits a second; `None` takes everything at once.
    bits: Option<u64>,
    carry: u64,
    queue: VecDeque<Waiting>,
    /// Bytes and segments of `queue`, with the segment that is being sent and, where the head was
    /// not looked at since, with what has left of it.
    bytes: u64,
    segments: u64,
}

/// Segments that are not all sent yet, with their times at the transmitter.
#[derive(Debug)]
struct Waiting {
    departure: Departure,
    len: u32,
    /// When the last of them is sent.
    end: Time,
    /// How many have left already.
    left: u32,
}

impl TrainLine {
    /// A line that decides as `Line::new` does with the same `seed`.
    pub fn new(shape: Shape, seed: u64) -> Result<Self, NotForTrains> {
        if let Some(what) = segment_by_segment(&shape) {
            return Err(NotForTrains(what));
        }
        let bits = shape.rate.mean().map(longhaul_units::BitRate::bits);
        Ok(Self {
            loss: LossProcess::new(&shape.loss, random::stream(seed, "loss")),
            limit: shape.limit(),
            bits,
            carry: 0,
            queue: VecDeque::new(),
            bytes: 0,
            segments: 0,
            shape,
        })
    }

    /// A train arrives, not before the one offered before it. What becomes of it is said at once
    /// and in order, though it lies in the future.
    pub fn offer(&mut self, now: Time, train: Train, mut emit: impl FnMut(Fate)) {
        debug_assert!(train.count <= Train::COUNT_MAX);
        self.advance(now);
        let mut next = 0;
        while next < train.count {
            let rest = train.count - next;
            let lost = self.loss.first_lost(rest);
            let kept = lost.unwrap_or(rest);
            if kept > 0 {
                self.admit(
                    now,
                    next,
                    Train {
                        count: kept,
                        ..train
                    },
                    &mut emit,
                );
            }
            next += kept;
            if lost.is_some() {
                emit(lost_at(next, 1, Drop::Loss));
                next += 1;
            }
        }
    }

    /// Bytes that wait for the transmitter at `now`, without the segment that is being sent.
    pub fn backlog_bytes(&mut self, now: Time) -> u64 {
        self.advance(now);
        self.look_at_head(now);
        self.bytes - self.serving()
    }

    /// What is set.
    #[must_use]
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Gives up what has been sent.
    fn advance(&mut self, now: Time) {
        while let Some(head) = self.queue.front().filter(|head| head.end <= now) {
            let count = head.departure.count - head.left;
            self.bytes -= u64::from(count) * u64::from(head.len);
            self.segments -= u64::from(count);
            self.queue.pop_front();
        }
    }

    /// Counts what has left of the head.
    fn look_at_head(&mut self, now: Time) {
        let Some(head) = self.queue.front_mut() else {
            return;
        };
        let left = head.departure.out_by(now);
        let gone = u64::from(left - head.left);
        head.left = left;
        self.bytes -= gone * u64::from(head.len);
        self.segments -= gone;
    }

    /// Bytes of the segment that is being sent.
    fn serving(&self) -> u64 {
        self.queue.front().map_or(0, |head| u64::from(head.len))
    }

    /// Queues as many as find room.
    fn admit(&mut self, now: Time, first: u32, train: Train, emit: &mut impl FnMut(Fate)) {
        let fit = match self.bits {
            None => train.count,
            Some(_) => self.room(now, train),
        };
        if fit > 0 {
            emit(Fate::Out(self.send(now, first, fit, train.len)));
        }
        if fit < train.count {
            emit(lost_at(first + fit, train.count - fit, Drop::Overflow));
        }
    }

    /// How many of `train` may wait, with one more where the transmitter is idle.
    fn room(&mut self, now: Time, train: Train) -> u32 {
        let len = u64::from(train.len);
        let fits_anyway = self.bytes + len * u64::from(train.count) <= self.limit.bytes
            && self.segments + u64::from(train.count) <= self.limit.packets as u64;
        if fits_anyway {
            return train.count;
        }
        self.look_at_head(now);
        let idle = u64::from(self.queue.is_empty());
        let waiting = self.segments - u64::from(!self.queue.is_empty());
        let bytes = self.bytes - self.serving();
        let room = (self.limit.bytes.saturating_sub(bytes) / len)
            .min((self.limit.packets as u64).saturating_sub(waiting));
        (room + idle).min(train.count.into()) as u32
    }

    fn send(&mut self, now: Time, first: u32, count: u32, len: u32) -> Departure {
        let begin = self.queue.back().map_or(now, |last| last.end);
        let mut departure = Departure {
            first,
            count,
            begin,
            carry: self.carry,
            work: u64::from(len + self.shape.overhead) * BYTE_BIT_NANOS,
            bits: self.bits.unwrap_or(1),
        };
        match self.bits {
            None => departure.work = 0,
            Some(_) => self.queue_up(departure, len),
        }
        departure.begin += self.shape.delay;
        departure
    }

    fn queue_up(&mut self, departure: Departure, len: u32) {
        let work = departure.after(departure.count);
        self.carry = work % departure.bits;
        self.bytes += u64::from(departure.count) * u64::from(len);
        self.segments += u64::from(departure.count);
        self.queue.push_back(Waiting {
            departure,
            len,
            end: departure.begin + Time::from_nanos(work / departure.bits),
            left: 0,
        });
    }
}

fn lost_at(first: u32, count: u32, cause: Drop) -> Fate {
    Fate::Lost {
        first,
        count,
        cause,
    }
}

/// The first setting that trains can't have.
fn segment_by_segment(shape: &Shape) -> Option<&'static str> {
    use super::queue::discipline::Discipline;
    [
        (matches!(shape.rate, Rate::Trace(_)), "a trace"),
        (!shape.jitter.is_none(), "jitter"),
        (shape.rule != Discipline::Tail, "a queue rule"),
        (shape.duplicate.get() > 0.0, "duplication"),
        (shape.corrupt.get() > 0.0, "corruption"),
        (shape.reorder.probability.get() > 0.0, "reordering"),
        (shape.ack.thin > 0, "ACK thinning"),
        (shape.ack.pace.is_some(), "ACK pacing"),
    ]
    .into_iter()
    .find_map(|(set, what)| set.then_some(what))
}
