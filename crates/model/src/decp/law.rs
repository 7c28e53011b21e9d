// SPDX-License-Identifier: MIT OR Apache-2.0
//! One look after the other: which caps to set, move and lift.

use super::{
    Capacity, Observation,
    budget::Budget,
    level::level,
    observation::{asked, queue, round_trip, spread},
    target::{Moment, QUEUE_MIN, Target},
};
use std::collections::HashMap;
use units::{Ratio, Time};

/// How many times the slowest's rate the fastest has when dividing begins …
const UNEVEN: f64 = 1.3;
/// … and when it may end.
const EVEN: f64 = 1.15;
/// Round trips that it must stay so.
const UNEVEN_ROUNDS: u64 = 2;
const EVEN_ROUNDS: u64 = 2;
/// Round trips without a loss before windows grow by the law's order.
const QUIET_ROUNDS: u64 = 1;
/// Dividing lasts for at most so many round trips. Slow start goes from 10 segments to 40 million in 22.
const LEVEL_ROUNDS_MAX: u64 = 40;
/// Round trips of rest before it begins again: twice as many each time that something was lost, down
/// again each time that nothing was.
const REST_ROUNDS_MIN: u64 = 10;
const REST_ROUNDS_MAX: u64 = 160;
/// A connection above the level by less than this is let be: its next loss would be answered for it.
const ABOVE: f64 = 1.02;
/// Caps move by more than this share.
const STEP: f64 = 0.005;
/// A window below this share of its cap …
const IDLE: f64 = 0.9;
/// … that has not grown for so many round trips has no use for more.
const IDLE_ROUNDS: u64 = 5;
/// The sum of all windows is lowered by no more than this share in a round trip.
const LOWERING: f64 = 0.1;
/// Least queue that is told from noise.
const QUEUE_TIME_MIN_S: f64 = 0.001;
/// Rates are means over so many round trips, within which bursts and short stalls are made good …
const SPAN_ROUNDS: u64 = 1;
/// … and, where bursts themselves show what the link carries, over such a part of one.
const BURST_PART: u64 = 4;
/// Capacity that has grown by this share within so many round trips is no link's: connections are
/// still finding out.
const GROWTH: f64 = 1.1;
const GROWTH_ROUNDS: u64 = 2;

/// What may be chosen.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Settings {
    /// h: the queue that capped connections leave standing, as a share of what the wire holds.
    pub headroom: Ratio,
    /// No cap goes below so many segments.
    pub floor_segments: u32,
    /// Cap also when all are even, and to what the link carries: they then share without losses, and
    /// grow only as the link has room.
    pub hold: bool,
    /// Fill windows that losses have made small by slow start, as soon as the link has drained: up to
    /// the equal share of what it carried before. Only for a link that nobody else uses, since it
    /// leaves other traffic no room that the connections once had. Implies `hold`.
    pub refill: bool,
}

impl Default for Settings {
    /// 10 %: on a path of 1 Gbit/s and 350 ms a queue of 4.4 MB; ten segments, an initial window
    /// (RFC 6928).
    fn default() -> Self {
        Self {
            headroom: Ratio::new(0.1).expect("a share"),
            floor_segments: 10,
            hold: false,
            refill: false,
        }
    }
}

/// A cap to be set, moved (`Some`) or lifted (`None`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Change {
    /// Whose.
    pub id: u64,
    /// Segments.
    pub cap: Option<u32>,
    /// Whether the window is to grow up to the cap by slow start, wherever it is.
    pub fill: bool,
}

/// Whether caps are in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Phase {
    /// Nobody is held back.
    #[default]
    Open,
    /// All have the same.
    Level,
}

/// What the law makes of a look, for people.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Outlook {
    /// Whether caps are in use.
    pub phase: Phase,
    /// Connections that send in bulk.
    pub bulk: usize,
    /// Ĉ, bytes a second.
    pub capacity: f64,
    /// The newest delivery rate of all together, bytes a second.
    pub delivered: f64,
    /// L, bytes a second; infinite where nobody is above it.
    pub level: f64,
    /// q.
    pub queue: f64,
    /// h at present.
    pub headroom: f64,
    /// Fastest over slowest rate; 1 for fewer than two connections.
    pub spread: f64,
}

/// The control law of the [module](super).
#[derive(Debug)]
pub struct Law {
    settings: Settings,
    known: HashMap<u64, Known>,
    capacity: Capacity,
    bursts: Capacity,
    growth: Growth,
    burst_growth: Growth,
    target: Target,
    budget: Budget,
    rest: Rest,
    full_since: Option<Time>,
    even_since: Option<Time>,
    uneven_since: Option<Time>,
    /// Since when windows have been divided.
    level_since: Time,
    /// When a segment was last sent again.
    lost_at: Option<Time>,
    last: Option<Time>,
    outlook: Outlook,
}

/// What is remembered of a connection; gone with the first look that lacks it.
#[derive(Debug, Clone, Copy)]
struct Known {
    delivered: u32,
    retransmits: u32,
    /// The largest window of late, and since when it has not grown.
    reached: (u32, Time),
    /// Whether its slow start was ended by the law and not by a loss: it would have filled the link.
    stopped: bool,
}

/// A capacity when it last had grown, and when that was.
#[derive(Debug, Default)]
struct Growth(f64, Time);

impl Growth {
    fn learn(&mut self, now: Time, capacity: f64) {
        if capacity >= self.0 * GROWTH {
            *self = Self(capacity, now);
        }
        self.0 = self.0.min(capacity);
    }

    fn has_ended(&self, now: Time, span: Time) -> bool {
        self.0 > 0.0 && now.since(self.1) >= span
    }
}

/// How long the law leaves connections alone.
#[derive(Debug)]
struct Rest {
    rounds: u64,
    since: Option<Time>,
}

impl Rest {
    fn is_over(&self, now: Time, rtt: Time) -> bool {
        self.since
            .is_none_or(|since| now.since(since) >= rtt * self.rounds)
    }

    fn begin(&mut self, now: Time, has_lost: bool) {
        let rounds = match has_lost {
            true => self.rounds * 2,
            false => self.rounds / 2,
        };
        *self = Self {
            rounds: rounds.clamp(REST_ROUNDS_MIN, REST_ROUNDS_MAX),
            since: Some(now),
        };
    }
}

impl Law {
    /// Begins with nobody capped.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            known: HashMap::new(),
            capacity: Capacity::default(),
            bursts: Capacity::default(),
            growth: Growth::default(),
            burst_growth: Growth::default(),
            target: Target::new(settings.headroom.get(), settings.refill),
            budget: Budget::default(),
            rest: Rest {
                rounds: REST_ROUNDS_MIN,
                since: None,
            },
            full_since: None,
            even_since: None,
            uneven_since: None,
            level_since: Time::ZERO,
            lost_at: None,
            last: None,
            outlook: Outlook::default(),
        }
    }

    /// What it made of the last look.
    #[must_use]
    pub fn outlook(&self) -> Outlook {
        self.outlook
    }

    /// Takes a look at all connections, and says which caps are to change. Looks are best a small
    /// fraction of a round trip apart; a later one only slows the law down.
    pub fn look(&mut self, now: Time, all: &[Observation]) -> Vec<Change> {
        let bulk: Vec<&Observation> = all.iter().filter(|o| o.is_measured()).collect();
        let rtt = round_trip(&bulk);
        let rounds = self.rounds(now, rtt);
        let (bytes, losses) = self.news(now, all);
        let at = Moment {
            now,
            rtt,
            rounds,
            losses,
        };
        if losses > 0 {
            self.lost_at = Some(now);
        }
        self.learn_capacity(at, bytes);
        self.describe(now, rtt, &bulk);
        let asked = asked(&bulk);
        let target = self
            .target
            .learn(at, &self.outlook, asked, self.budget.sum());
        self.outlook.headroom = self.target.headroom();
        self.learn_evenness(at);
        self.choose_phase(at, &bulk, asked, target);
        match self.outlook.phase {
            Phase::Open => lift_all(all),
            Phase::Level => self.divide(at, all, &bulk, target),
        }
    }

    fn holds(&self) -> bool {
        self.settings.hold || self.settings.refill
    }

    /// Round trips since the last look, at most one.
    fn rounds(&mut self, now: Time, rtt: Time) -> f64 {
        let since = self
            .last
            .replace(now)
            .map_or(Time::ZERO, |last| now.since(last));
        (since.as_secs_f64() / rtt.as_secs_f64().max(1e-6)).min(1.0)
    }

    /// Bytes delivered and segments sent again since the last look.
    fn news(&mut self, now: Time, all: &[Observation]) -> (u64, u32) {
        let mut sums = (0, 0);
        let mut known = HashMap::with_capacity(all.len());
        for seen in all {
            let before = self.known.get(&seen.id).copied();
            if let Some(before) = before {
                let delivered = seen.delivered_segments.wrapping_sub(before.delivered);
                sums.0 += u64::from(delivered) * u64::from(seen.mss_bytes);
                sums.1 += seen.retransmits.wrapping_sub(before.retransmits);
            }
            known.insert(seen.id, Known::of(now, seen, before));
        }
        self.known = known;
        sums
    }

    fn learn_capacity(&mut self, at: Moment, bytes: u64) {
        let Moment { now, rtt, .. } = at;
        let horizon = Time::from_secs(10).max(rtt * 20);
        self.capacity.learn(now, bytes, rtt * SPAN_ROUNDS, horizon);
        let part = Time::from_nanos(rtt.as_nanos() / BURST_PART);
        self.bursts.learn(now, bytes, part, horizon);
        self.growth.learn(now, self.capacity.greatest());
        self.burst_growth.learn(now, self.bursts.greatest());
    }

    fn describe(&mut self, now: Time, rtt: Time, bulk: &[&Observation]) {
        let willing = bulk.iter().filter(|seen| !self.is_idle(now, rtt, seen));
        self.outlook = Outlook {
            phase: self.outlook.phase,
            bulk: bulk.len(),
            capacity: self.capacity.greatest(),
            delivered: self.capacity.newest(),
            level: f64::INFINITY,
            queue: queue(bulk),
            headroom: 0.0,
            spread: spread(willing.map(|seen| seen.rate())),
        };
    }

    fn learn_evenness(&mut self, at: Moment) {
        let Moment { now, rtt, .. } = at;
        let Outlook { queue, spread, .. } = self.outlook;
        let since = |is: bool, since: Option<Time>| is.then(|| since.unwrap_or(now));
        let is_full = queue >= QUEUE_MIN.max(self.target.headroom() / 2.0)
            && queue * rtt.as_secs_f64() >= QUEUE_TIME_MIN_S
            && self.growth.has_ended(now, rtt * GROWTH_ROUNDS);
        self.full_since = since(is_full, self.full_since);
        self.even_since = since(spread <= EVEN, self.even_since);
        self.uneven_since = since(spread >= UNEVEN, self.uneven_since);
    }

    fn choose_phase(&mut self, at: Moment, bulk: &[&Observation], asked: f64, target: f64) {
        let begins = self.runs_over(at, bulk, asked)
            || self.is_uneven(at, bulk, asked)
            || self.must_be_held(at, asked, target);
        match self.outlook.phase {
            Phase::Open if bulk.len() >= 2 && begins => self.begin(at, bulk),
            Phase::Level if bulk.len() < 2 || self.is_over(at) => self.end(at),
            Phase::Level => self.budget.settle(bulk),
            Phase::Open => {}
        }
    }

    /// Slow start is about to fill more than the link holds.
    fn runs_over(&self, at: Moment, bulk: &[&Observation], asked: f64) -> bool {
        bulk.iter().any(|seen| seen.slow_start)
            && asked >= self.ceiling()
            && self.burst_growth.has_ended(at.now, at.rtt)
    }

    /// What slow start may come to, bytes a second.
    fn ceiling(&self) -> f64 {
        self.bursts.greatest() * (1.0 + self.target.headroom())
    }

    /// Some have more than others, and have had time to settle.
    fn is_uneven(&self, at: Moment, bulk: &[&Observation], asked: f64) -> bool {
        let Moment { now, rtt, .. } = at;
        let lasts = |at| now.since(at) >= rtt * UNEVEN_ROUNDS;
        let floors: f64 = bulk
            .iter()
            .map(|seen| seen.rate_of(self.settings.floor_segments))
            .sum();
        self.uneven_since.is_some_and(lasts)
            && !bulk.iter().any(|seen| seen.slow_start)
            && asked > floors * UNEVEN
            && self.is_quiet(at)
            && self.growth.has_ended(now, rtt * GROWTH_ROUNDS)
            && self.rest.is_over(now, rtt)
    }

    /// Those that are to be held fill the link, or have left it with room that they are to have.
    fn must_be_held(&self, at: Moment, asked: f64, target: f64) -> bool {
        let Moment { now, rtt, .. } = at;
        let is_full = self.full_since.is_some_and(|full| now.since(full) * 2 >= rtt);
        let is_above = is_full && asked > target;
        self.holds() && (is_above || self.may_refill(at) && asked < self.outlook.capacity)
    }

    fn may_refill(&self, at: Moment) -> bool {
        let is_known = self.growth.has_ended(at.now, at.rtt * GROWTH_ROUNDS);
        self.settings.refill && self.is_quiet(at) && is_known
    }

    fn is_quiet(&self, at: Moment) -> bool {
        self.lost_at
            .is_none_or(|lost| at.now.since(lost) >= at.rtt * QUIET_ROUNDS)
    }

    fn is_over(&self, at: Moment) -> bool {
        let Moment { now, rtt, .. } = at;
        let lasts = |at| now.since(at) >= rtt * EVEN_ROUNDS;
        let is_late = now.since(self.level_since) >= rtt * LEVEL_ROUNDS_MAX;
        !self.holds() && (is_late || self.even_since.is_some_and(lasts))
    }

    fn begin(&mut self, at: Moment, bulk: &[&Observation]) {
        self.outlook.phase = Phase::Level;
        self.level_since = at.now;
        self.even_since = None;
        self.budget.open(bulk);
        for seen in bulk {
            if let Some(known) = self.known.get_mut(&seen.id) {
                known.stopped = seen.slow_start;
            }
        }
    }

    fn end(&mut self, at: Moment) {
        self.outlook.phase = Phase::Open;
        self.uneven_since = None;
        let has_lost = self.lost_at.is_some_and(|lost| lost >= self.level_since);
        self.rest.begin(at.now, has_lost);
    }

    fn divide(
        &mut self,
        at: Moment,
        all: &[Observation],
        bulk: &[&Observation],
        target: f64,
    ) -> Vec<Change> {
        self.grow(at, bulk, target);
        let mut demands: Vec<f64> = bulk.iter().map(|seen| self.demand(at, seen)).collect();
        let level = level(&mut demands, self.budget.sum());
        self.outlook.level = level;
        let shift = self.budget.sum() * filling() * at.rounds;
        let cut = self.cut(bulk, shift).max(level);
        let needs: f64 = bulk.iter().map(|seen| need(level, seen)).sum();
        let granted = match self.is_quiet(at) {
            true => (self.budget.free(bulk).min(shift) / needs).min(1.0),
            false => 0.0,
        };
        all.iter()
            .filter_map(|seen| self.change(level, cut, granted, seen))
            .collect()
    }

    /// Where windows are cut if they are to give up this much together.
    fn cut(&self, bulk: &[&Observation], shift: f64) -> f64 {
        let mut rates: Vec<f64> = bulk.iter().map(|seen| seen.rate()).collect();
        let sum: f64 = rates.iter().sum();
        let left = sum.min(self.budget.sum()) - shift;
        level(&mut rates, left)
    }

    /// S goes up as that of n Reno flows would. Held windows go to T: down by steps, up at most, or at once.
    fn grow(&mut self, at: Moment, bulk: &[&Observation], target: f64) {
        let sum = self.budget.sum();
        let more: f64 = bulk.iter().map(|seen| seen.rate_of(1)).sum();
        let grown = sum + more * at.rounds;
        let is_stopped = self.known.values().any(|known| known.stopped);
        let next = match (self.holds(), self.is_quiet(at)) {
            (true, _) if sum > target => (sum * (1.0 - LOWERING * at.rounds)).max(target),
            (true, true) if self.may_refill(at) => target,
            (true, _) => grown.min(target),
            (false, true) if is_stopped => grown.max(self.ceiling()),
            (false, _) => grown,
        };
        self.budget.set(next);
    }

    /// dᵢ: without bounds, but for what the receiver takes and for one that leaves its cap unused.
    fn demand(&self, at: Moment, seen: &Observation) -> f64 {
        if self.is_idle(at.now, at.rtt, seen) {
            return seen.rate() / IDLE;
        }
        seen.rate_of(seen.window_max_segments)
    }

    fn change(&self, level: f64, cut: f64, granted: f64, seen: &Observation) -> Option<Change> {
        let order = |cap, fill| Change {
            id: seen.id,
            cap,
            fill,
        };
        if !seen.is_measured() {
            return seen.cap.map(|_| order(None, false));
        }
        let wanted = self.segments(level, seen)?;
        let above = f64::from(seen.window_segments) > f64::from(wanted) * ABOVE;
        let cap = match above {
            true => self.segments(cut, seen)?.min(seen.window_segments),
            false => {
                let grant = need(level, seen) * granted;
                seen.committed_segments() + (seen.segments_at(grant) as u32)
            }
        };
        let is_loose = seen.slow_start && seen.cap.is_none();
        let before = match above {
            true => seen.cap.unwrap_or(u32::MAX),
            false => seen.committed_segments(),
        };
        let is_moved = is_loose || moved(before, cap);
        is_moved.then(|| order(Some(cap.max(self.settings.floor_segments)), !above && !is_loose))
    }

    /// The cap that the level means for this connection; none where it is without bounds.
    fn segments(&self, level: f64, seen: &Observation) -> Option<u32> {
        let segments = seen.segments_at(level);
        let fits = segments < f64::from(u32::MAX >> 8);
        fits.then(|| (segments.ceil() as u32).max(self.settings.floor_segments))
    }

    /// Whether its cap has not held it for long.
    fn is_idle(&self, now: Time, rtt: Time, seen: &Observation) -> bool {
        self.known
            .get(&seen.id)
            .is_some_and(|known| now.since(known.reached.1) >= rtt * IDLE_ROUNDS)
    }
}

impl Known {
    fn of(now: Time, seen: &Observation, before: Option<Self>) -> Self {
        let has_room = seen
            .cap
            .is_some_and(|cap| f64::from(seen.window_segments) < f64::from(cap) * IDLE);
        let reached = before.map(|before| before.reached).filter(|reached| {
            has_room && seen.window_segments <= reached.0.saturating_add(reached.0 / 16)
        });
        Self {
            delivered: seen.delivered_segments,
            retransmits: seen.retransmits,
            reached: reached.unwrap_or((seen.window_segments, now)),
            stopped: before.is_some_and(|b| b.stopped && b.retransmits == seen.retransmits),
        }
    }
}

/// Whether a cap differs enough from what is.
fn moved(before: u32, cap: u32) -> bool {
    f64::from(cap.abs_diff(before)) >= (f64::from(before) * STEP).max(1.0)
}

fn filling() -> f64 {
    std::env::var("FILL").map_or(0.1, |v| v.parse().unwrap())
}

/// What a connection lacks to the level, beyond what it was promised.
fn need(level: f64, seen: &Observation) -> f64 {
    let most = level.min(seen.rate_of(seen.window_max_segments));
    (most - seen.committed()).max(0.0)
}

fn lift_all(all: &[Observation]) -> Vec<Change> {
    let capped = all.iter().filter(|seen| seen.cap.is_some());
    capped
        .map(|seen| Change {
            id: seen.id,
            cap: None,
            fill: false,
        })
        .collect()
}
