// SPDX-License-Identifier: MIT OR Apache-2.0
//! CoDel and RED while the rate changes, beside references that are fed with the same arrivals. A reference is a queue in
//! exact arithmetic, with the pseudocode of RFC 8289 §5 or with RED as Floyd and Jacobson describe it.

use longhaul_netem::{Event, Line, LinkConfig, Schedule, Segment, Setting, random};
use longhaul_units::Time;
use rand::Rng;
use std::collections::VecDeque;

const MTU: u32 = 1500;
const MS: u64 = 1_000_000;
/// Sending time of a segment at 1 bit/s, ns.
const SEGMENT_WORK: u128 = MTU as u128 * 8 * 1_000_000_000;

/// AQM of the reference. A segment is its number and the time of its arrival.
trait ReferenceAqm {
    fn admits(&mut self, now: u64, backlog: u64, idle_since: Option<u64>) -> bool;
    /// Takes the next segment to send from the queue; adds those that it drops to `drops`.
    fn dequeue(
        &mut self,
        now: u64,
        queue: &mut VecDeque<(usize, u64)>,
        drops: &mut Vec<usize>,
    ) -> Option<usize>;
}

/// Rate changes: each at a time in ns, in bit/s.
type Changes = Vec<(u64, u64)>;

/// Returns the numbers of the segments that the AQM drops from `arrivals`, at a rate that begins with the first of
/// `changes`.
fn reference_drops(arrivals: &[u64], changes: &Changes, aqm: &mut impl ReferenceAqm) -> Vec<usize> {
    let (mut queue, mut drops) = (VecDeque::new(), Vec::new());
    let mut changes = changes.iter().copied().peekable();
    let mut rate = changes.next().unwrap().1;
    let mut arrivals = arrivals.iter().copied().enumerate().peekable();
    // Work left in service at `since`; the last bit leaves at the nanosecond below since + work/rate.
    let mut service: Option<(u64, u128)> = None;
    let (mut carry, mut idle_since) = (0_u128, Some(0));
    loop {
        let finish = service.map(|(since, work)| since + (work / u128::from(rate)) as u64);
        let change = changes.peek().map(|(at, _)| *at);
        let arrival = arrivals.peek().map(|(_, at)| *at);
        let Some(now) = [change, finish, arrival].into_iter().flatten().min() else {
            return drops;
        };
        if change == Some(now) {
            let (_, new) = changes.next().unwrap();
            service = service
                .map(|(since, work)| (now, work - u128::from(now - since) * u128::from(rate)));
            if service.is_none() {
                carry = 0;
            }
            rate = new;
            continue;
        }
        if finish == Some(now) {
            carry = service.take().unwrap().1 % u128::from(rate);
        } else {
            let (number, _) = arrivals.next().unwrap();
            if aqm.admits(now, queue.len() as u64 * u64::from(MTU), idle_since) {
                queue.push_back((number, now));
            } else {
                drops.push(number);
            }
        }
        if service.is_none() {
            let next = aqm.dequeue(now, &mut queue, &mut drops);
            service = next.map(|_| (now, SEGMENT_WORK + carry));
            idle_since = match service {
                Some(_) => None,
                None => idle_since.or(Some(now)),
            };
        }
    }
}

/// CoDel as RFC 8289 §5.5 and §5.6 write it, in nanoseconds.
#[derive(Default)]
struct Rfc8289 {
    dropping: bool,
    drop_next: f64,
    first_above_time: f64,
    count: u32,
    last_count: u32,
}

const TARGET: f64 = 5e6;
const INTERVAL: f64 = 1e8;

impl Rfc8289 {
    fn dodequeue(&mut self, now: f64, queue: &mut VecDeque<(usize, u64)>) -> (Option<usize>, bool) {
        let Some((number, enqueued)) = queue.pop_front() else {
            self.first_above_time = 0.0;
            return (None, false);
        };
        let backlog = queue.len() as u64 * u64::from(MTU);
        let mut ok_to_drop = false;
        if now - (enqueued as f64) < TARGET || backlog <= u64::from(MTU) {
            self.first_above_time = 0.0;
        } else if self.first_above_time == 0.0 {
            self.first_above_time = now + INTERVAL;
        } else if now >= self.first_above_time {
            ok_to_drop = true;
        }
        (Some(number), ok_to_drop)
    }

    fn control_law(&self, t: f64) -> f64 {
        t + (INTERVAL / f64::from(self.count).sqrt()).round()
    }
}

impl ReferenceAqm for Rfc8289 {
    fn admits(&mut self, _: u64, _: u64, _: Option<u64>) -> bool {
        true
    }

    fn dequeue(
        &mut self,
        now: u64,
        queue: &mut VecDeque<(usize, u64)>,
        drops: &mut Vec<usize>,
    ) -> Option<usize> {
        let now = now as f64;
        let (mut segment, mut ok_to_drop) = self.dodequeue(now, queue);
        if self.dropping {
            if !ok_to_drop {
                self.dropping = false;
            }
            while now >= self.drop_next && self.dropping {
                drops.extend(segment);
                self.count += 1;
                (segment, ok_to_drop) = self.dodequeue(now, queue);
                if ok_to_drop {
                    self.drop_next = self.control_law(self.drop_next);
                } else {
                    self.dropping = false;
                }
            }
        } else if ok_to_drop {
            drops.extend(segment);
            (segment, _) = self.dodequeue(now, queue);
            self.dropping = true;
            let delta = self.count - self.last_count;
            self.count = if delta > 1 && now - self.drop_next < 16.0 * INTERVAL {
                delta
            } else {
                1
            };
            self.drop_next = self.control_law(now);
            self.last_count = self.count;
        }
        segment
    }
}

/// RED with the line's own random numbers.
struct FloydJacobson<R> {
    rng: R,
    mean: f64,
    count: f64,
}

impl<R: Rng> ReferenceAqm for FloydJacobson<R> {
    fn admits(&mut self, _: u64, backlog: u64, idle_since: Option<u64>) -> bool {
        // The tests keep the queue busy after the first arrival, at which an idle queue has the mean 0.
        if idle_since.is_none() {
            self.mean += 0.002 * (backlog as f64 - self.mean);
        }
        let (min, max, p) = (30e3, 90e3, 0.1);
        let p_b = match self.mean {
            mean if mean < min => 0.0,
            mean if mean < max => p * (mean - min) / (max - min),
            mean => (p + (1.0 - p) * (mean - max) / max).min(1.0),
        };
        if p_b == 0.0 {
            self.count = 0.0;
            return true;
        }
        let drops = random::unit(&mut self.rng) * (1.0 - self.count * p_b) < p_b;
        self.count = if drops { 0.0 } else { self.count + 1.0 };
        !drops
    }

    fn dequeue(
        &mut self,
        _: u64,
        queue: &mut VecDeque<(usize, u64)>,
        _: &mut Vec<usize>,
    ) -> Option<usize> {
        queue.pop_front().map(|(number, _)| number)
    }
}

/// Full segments at 12 Mbit/s for 8 s.
fn arrivals() -> Vec<u64> {
    (1..8_000).map(|number| number * MS).collect()
}

/// 10 and `other` Mbit/s by turns.
fn alternating(other_bps: u64, every_ms: u64) -> Changes {
    let rate = |turn| if turn % 2 == 0 { 10_000_000 } else { other_bps };
    let turns = 8_000 / every_ms;
    (0..turns)
        .map(|turn| (turn * every_ms * MS + turn.min(1), rate(turn)))
        .collect()
}

/// The ways in which a rate changes.
#[derive(Debug, Clone, Copy)]
enum By {
    Schedule,
    Set,
}

/// Returns the numbers of the segments that a line drops, in order.
fn line_drops(aqm: &str, changes: &Changes, by: By) -> Vec<usize> {
    let mut config = LinkConfig::default();
    let first = changes[0].1.to_string();
    let rate = |bps: &str| Setting::parse("rate", &format!("{bps}bit")).unwrap();
    config.apply(rate(&first));
    for (key, value) in [("queue", "9000p"), ("aqm", aqm)] {
        config.apply(Setting::parse(key, value).unwrap());
    }
    let mut schedule = Schedule::default();
    if matches!(by, By::Schedule) {
        for (at, bps) in &changes[1..] {
            schedule
                .add_text(&format!("{at}ns: rate {bps}bit"))
                .unwrap();
        }
    }
    let mut line = Line::new(config, schedule, 1, Time::ZERO);
    let mut sets = changes[1..]
        .iter()
        .filter(|_| matches!(by, By::Set))
        .peekable();
    let mut drops = Vec::new();
    let mut note = |event| {
        if let Event::Drop { segment, .. } = event {
            drops.push(segment.packet as usize);
        }
    };
    for (number, at) in arrivals().into_iter().enumerate() {
        while let Some((when, bps)) = sets.next_if(|(when, _)| *when <= at) {
            line.set(Time::from_nanos(*when), rate(&bps.to_string()), &mut note);
        }
        let segment = Segment {
            packet: number as u64,
            index: 0,
            last: true,
            len: MTU,
        };
        line.offer(Time::from_nanos(at), segment, None, &mut note);
    }
    line.poll(Time::MAX, &mut note);
    drops
}

/// Compares the drops up to the first difference: whole lists would hide it.
fn assert_same(drops: &[usize], expected: &[usize], changes: &Changes, by: By) {
    let (mut ours, mut theirs) = (drops.iter(), expected.iter());
    let differs = (0..).find_map(|index| {
        let pair = (ours.next(), theirs.next());
        (pair.0 != pair.1 || pair.0.is_none()).then_some((index, pair))
    });
    let end = (expected.len(), (None, None));
    assert_eq!(
        differs,
        Some(end),
        "{by:?} {:?}",
        &changes[..changes.len().min(3)]
    );
}

/// Schedules from a constant rate to a change in every hundredth of a second.
fn schedules() -> Vec<Changes> {
    let steady = vec![(0, 10_000_000)];
    let small = [200, 90, 50, 10].map(|every| alternating(10_010_000, every));
    let large = [200, 10].map(|every| alternating(4_000_000, every));
    [vec![steady], small.into(), large.into()].concat()
}

#[test]
fn codel_drops_what_the_rfc_drops_while_the_rate_changes() {
    for changes in schedules() {
        let expected = reference_drops(&arrivals(), &changes, &mut Rfc8289::default());
        assert!(expected.len() > 1_000, "{}", expected.len());
        for by in [By::Schedule, By::Set] {
            let drops = line_drops("codel", &changes, by);
            assert_same(&drops, &expected, &changes, by);
        }
    }
}

#[test]
fn red_drops_what_floyd_and_jacobson_drop_while_the_rate_changes() {
    for changes in schedules() {
        let mut reference = FloydJacobson {
            rng: random::stream(1, "queue rule"),
            mean: 0.0,
            count: 0.0,
        };
        let expected = reference_drops(&arrivals(), &changes, &mut reference);
        assert!(expected.len() > 1_000, "{}", expected.len());
        for by in [By::Schedule, By::Set] {
            let drops = line_drops("red:min=30KB,max=90KB", &changes, by);
            assert_same(&drops, &expected, &changes, by);
        }
    }
}
