// SPDX-License-Identifier: MIT OR Apache-2.0
//! One look after the other: which caps to set, move and lift.

use super::{
    Capacity, Change,
    budget::Budget,
    capacity::Growth,
    division::Division,
    look::{Moment, Observation, Outlook, Phase, asked, queue, round_trip, spread},
    memory::{IDLE, Memory},
    rest::Rest,
    target::{QUEUE_MIN, Target},
};
use longhaul_units::{Ratio, Time};

/// How many times the slowest's rate the fastest has when dividing begins …
const UNEVEN: f64 = 1.3;
/// … and when it ends.
const EVEN: f64 = 1.15;
/// Round trips that it must be so.
const UNEVEN_ROUNDS: u64 = 2;
const EVEN_ROUNDS: u64 = 2;
/// Round trips without a loss before windows grow by the law's order.
const QUIET_ROUNDS: u64 = 1;
/// Dividing lasts for at most so many round trips, unless caps are to be kept.
const LEVEL_ROUNDS_MAX: u64 = 40;
/// Round trips without a queue after which held connections have left the link empty.
const FULL_ROUNDS: u64 = 5;
/// The sum of windows that are held is lowered by no more than this share in a round trip.
const LOWERING: f64 = 0.1;
/// Least queue that is told from noise.
const QUEUE_TIME_MIN_S: f64 = 0.001;
/// Rates are means over so many round trips, within which bursts and short stalls are made good …
const SPAN_ROUNDS: u64 = 1;
/// … and, where bursts themselves show what the link carries, over such a part of one.
const BURST_PART: u64 = 4;
/// In slow start half of what windows ask for was delivered in the last round trip, a little less between
/// bursts; much less where they have just begun to send, and nothing is known of the link.
const TRIED: f64 = 0.25;
/// Round trips that capacity has not grown for when it is taken for the link's.
const GROWTH_ROUNDS: u64 = 2;
const BURST_GROWTH_ROUNDS: u64 = 1;

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

impl Settings {
    /// Whether caps stay when all are even.
    pub(super) fn keeps(&self) -> bool {
        self.hold || self.refill
    }
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

/// The control law of the [module](super).
#[derive(Debug)]
pub struct Law {
    settings: Settings,
    memory: Memory,
    capacity: Capacity,
    bursts: Capacity,
    growth: Growth,
    burst_growth: Growth,
    target: Target,
    budget: Budget,
    rest: Rest,
    full_since: Option<Time>,
    /// When the link was last full.
    full_at: Option<Time>,
    even_since: Option<Time>,
    uneven_since: Option<Time>,
    /// Since when windows have been divided.
    level_since: Time,
    /// When a segment was last sent again.
    lost_at: Option<Time>,
    last: Option<Time>,
    outlook: Outlook,
}

impl Law {
    /// Begins with nobody capped.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            memory: Memory::default(),
            capacity: Capacity::default(),
            bursts: Capacity::default(),
            growth: Growth::default(),
            burst_growth: Growth::default(),
            target: Target::new(settings.headroom.get(), settings.refill),
            budget: Budget::default(),
            rest: Rest::new(),
            full_since: None,
            full_at: None,
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

    /// Takes a look at all connections, and says which caps are to change. Looks are best an eighth
    /// of a round trip apart or less: with later ones slow start runs further before it is ended.
    pub fn look(&mut self, now: Time, all: &[Observation]) -> Vec<Change> {
        let bulk: Vec<&Observation> = all.iter().filter(|o| o.is_measured()).collect();
        let rtt = round_trip(&bulk);
        let (bytes, losses) = self.memory.learn(now, all);
        let at = Moment {
            now,
            rtt,
            rounds: self.rounds(now, rtt),
            losses,
        };
        if losses > 0 {
            self.lost_at = Some(now);
        }
        self.learn_capacity(at, bytes);
        self.describe(at, &bulk);
        let target = self
            .target
            .learn(at, &self.outlook, asked(&bulk), self.budget.sum());
        self.outlook.headroom = self.target.headroom();
        self.learn_evenness(at);
        self.choose_phase(at, &bulk, target);
        match self.outlook.phase {
            Phase::Open => lift_all(all),
            Phase::Level => self.divide(at, all, &bulk, target),
        }
    }

    /// Round trips since the last look, at most one.
    fn rounds(&mut self, now: Time, rtt: Time) -> f64 {
        let since = self
            .last
            .replace(now)
            .map_or(Time::ZERO, |last| now.since(last));
        (since.as_secs_f64() / rtt.as_secs_f64().max(1e-6)).min(1.0)
    }

    fn learn_capacity(&mut self, at: Moment, bytes: u64) {
        let Moment { now, rtt, .. } = at;
        let horizon = Time::from_secs(10).max(rtt * 20);
        self.capacity.learn(now, bytes, rtt * SPAN_ROUNDS, horizon);
        self.growth.learn(now, self.capacity.greatest());
        let part = Time::from_nanos(rtt.as_nanos() / BURST_PART);
        self.bursts.learn(now, bytes, part, horizon);
        self.burst_growth.learn(now, self.bursts.greatest());
    }

    fn describe(&mut self, at: Moment, bulk: &[&Observation]) {
        let willing = bulk.iter().filter(|seen| !self.memory.is_idle(at, seen));
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
        let spread = self.outlook.spread;
        let is_full = self.has_queue(at) && self.growth.has_ended(at, GROWTH_ROUNDS);
        let since = |is: bool, since: Option<Time>| is.then(|| since.unwrap_or(at.now));
        self.full_since = since(is_full, self.full_since);
        self.full_at = if is_full { Some(at.now) } else { self.full_at };
        self.even_since = since(spread <= EVEN, self.even_since);
        self.uneven_since = since(spread >= UNEVEN, self.uneven_since);
    }

    fn has_queue(&self, at: Moment) -> bool {
        let queue = self.outlook.queue;
        queue >= QUEUE_MIN.max(self.target.headroom() / 2.0)
            && queue * at.rtt.as_secs_f64() >= QUEUE_TIME_MIN_S
    }

    fn choose_phase(&mut self, at: Moment, bulk: &[&Observation], target: f64) {
        let begins = || {
            self.runs_over(at, bulk)
                || self.is_uneven(at, bulk)
                || self.is_to_be_held(at, bulk, target)
        };
        match self.outlook.phase {
            Phase::Open if bulk.len() >= 2 && begins() => self.begin(at, bulk),
            Phase::Level if bulk.len() < 2 || self.is_over(at) => self.end(at),
            Phase::Level => self.budget.settle(bulk),
            Phase::Open => {}
        }
    }

    /// Slow start is about to fill more than the link holds, as far as it has been tried.
    fn runs_over(&self, at: Moment, bulk: &[&Observation]) -> bool {
        bulk.iter().any(|seen| seen.slow_start)
            && asked(bulk) >= self.ceiling()
            && self.outlook.delivered >= asked(bulk) * TRIED
            && self.has_queue(at)
            && self.burst_growth.has_ended(at, BURST_GROWTH_ROUNDS)
    }

    /// What slow start may come to, bytes a second.
    fn ceiling(&self) -> f64 {
        self.bursts.greatest() * (1.0 + self.target.headroom())
    }

    /// Some have more than others, and all have settled.
    fn is_uneven(&self, at: Moment, bulk: &[&Observation]) -> bool {
        let floors: f64 = bulk
            .iter()
            .map(|seen| seen.rate_of(self.settings.floor_segments))
            .sum();
        self.uneven_since
            .is_some_and(|since| at.is_past(since, UNEVEN_ROUNDS))
            && !bulk.iter().any(|seen| seen.slow_start)
            && asked(bulk) > floors * UNEVEN
            && self.is_quiet(at)
            && self.growth.has_ended(at, GROWTH_ROUNDS)
            && self.rest.is_over(at)
    }

    /// Those that are to be held fill the link, or have left room in it that they are to have.
    fn is_to_be_held(&self, at: Moment, bulk: &[&Observation], target: f64) -> bool {
        let half = |full: Time| at.now.since(full) * 2 >= at.rtt;
        let is_above = self.full_since.is_some_and(half) && asked(bulk) > target;
        let has_room = self.may_refill(at) && asked(bulk) < self.outlook.capacity;
        self.settings.keeps() && (is_above || has_room)
    }

    fn may_refill(&self, at: Moment) -> bool {
        let is_known = self.growth.has_ended(at, GROWTH_ROUNDS);
        self.settings.refill && self.is_quiet(at) && is_known
    }

    fn is_quiet(&self, at: Moment) -> bool {
        self.lost_at
            .is_none_or(|lost| at.is_past(lost, QUIET_ROUNDS))
    }

    /// All are even. Those that are to be held grow by themselves again where they left the link empty.
    fn is_over(&self, at: Moment) -> bool {
        let is_even = |since| at.is_past(since, EVEN_ROUNDS);
        let is_late = at.is_past(self.level_since, LEVEL_ROUNDS_MAX);
        let is_full = |full| !at.is_past(full, FULL_ROUNDS);
        let is_kept =
            self.settings.refill || self.settings.hold && self.full_at.is_some_and(is_full);
        !is_kept && (is_late || self.even_since.is_some_and(is_even))
    }

    fn begin(&mut self, at: Moment, bulk: &[&Observation]) {
        self.outlook.phase = Phase::Level;
        self.level_since = at.now;
        self.even_since = None;
        self.budget.open(bulk);
        self.memory.stop(bulk);
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
        let demands = bulk.iter().map(|seen| self.demand(at, seen)).collect();
        let division = Division::new(
            at,
            bulk,
            demands,
            self.budget.sum(),
            self.is_quiet(at),
            self.settings.floor_segments,
        );
        self.outlook.level = division.level;
        all.iter()
            .filter_map(|seen| division.change(seen))
            .collect()
    }

    /// S grows as n Reno flows would, or to where a slow start that was stopped would have come. Those
    /// that are to be held go to T: down by steps, up no further, or at once.
    fn grow(&mut self, at: Moment, bulk: &[&Observation], target: f64) {
        let sum = self.budget.sum();
        let segments: f64 = bulk.iter().map(|seen| seen.rate_of(1)).sum();
        let grown = match self.is_quiet(at) && self.memory.has_stopped() {
            true => sum.max(self.ceiling()),
            false => sum + segments * at.rounds,
        };
        let next = match self.settings.keeps() {
            false => grown,
            true if sum > target => (sum * (1.0 - LOWERING * at.rounds)).max(target),
            true if self.may_refill(at) => target,
            true => grown.min(target),
        };
        self.budget.set(next);
    }

    /// dᵢ: without bounds, but for what the receiver takes and for one that leaves its cap unused.
    fn demand(&self, at: Moment, seen: &Observation) -> f64 {
        match self.memory.is_idle(at, seen) {
            true => seen.rate() / IDLE,
            false => seen.rate_of(seen.window_max_segments),
        }
    }
}

fn lift_all(all: &[Observation]) -> Vec<Change> {
    let capped = all.iter().filter(|seen| seen.cap.is_some());
    capped.map(Change::lift).collect()
}
