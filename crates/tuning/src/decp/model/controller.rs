// SPDX-License-Identifier: MIT OR Apache-2.0
//! Controller: decides after each sample which caps to set, change and lift.

use super::{
    Capacity, Change,
    budget::Budget,
    capacity::Growth,
    cooldown::Cooldown,
    division::Division,
    history::{History, IDLE_WINDOW_SHARE},
    sample::{Estimate, Observation, Phase, Sample, queue, round_trip, spread, total_rate},
    target::{QUEUE_MIN, Target},
};
use longhaul_units::{Ratio, Time};

/// Ratio of the fastest rate to the slowest from which rates are uneven: dividing begins.
const UNEVEN_RATIO: f64 = 1.3;
/// Ratio of the fastest rate to the slowest up to which rates are even: dividing ends.
const EVEN_RATIO: f64 = 1.15;
/// Round trips for which rates must be uneven.
const UNEVEN_ROUNDS: u64 = 2;
/// Round trips for which rates must be even.
const EVEN_ROUNDS: u64 = 2;
/// Round trips without a loss before the controller lets windows grow.
const QUIET_ROUNDS: u64 = 1;
/// Maximum duration of dividing in round trips, unless caps are kept.
const LEVEL_ROUNDS_MAX: u64 = 40;
/// Round trips without a queue after which capped connections leave the link underused.
const FULL_ROUNDS: u64 = 5;
/// Maximum reduction of the sum of capped windows in a round trip, as a share of it.
const REDUCTION_MAX: f64 = 0.1;
/// Minimum queueing delay that is distinguished from noise, in seconds.
const QUEUE_TIME_MIN_S: f64 = 0.001;
/// Round trips over which rates are averaged, so that bursts and short stalls even out.
const RATE_ROUNDS: u64 = 1;
/// Part of a round trip over which the rate of a burst is measured: a quarter. Bursts themselves show the link's
/// capacity.
const BURST_DIVISOR: u64 = 4;
/// Minimum share of the windows' rate that must have been delivered before slow start is ended. In slow
/// start it is about a half. It is much less where connections have just begun to send.
const DELIVERED_SHARE_MIN: f64 = 0.25;
/// Round trips without growth after which the estimate is taken for the link's capacity.
const GROWTH_ROUNDS: u64 = 2;
/// The same for the estimate from bursts.
const BURST_GROWTH_ROUNDS: u64 = 1;

/// Settings of the controller.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Settings {
    /// h: the standing queue that capped connections keep, as a share of the BDP.
    pub headroom: Ratio,
    /// Minimum cap in segments.
    pub cap_min_segments: u32,
    /// Whether caps stay when all rates are equal, at the link's capacity: connections then share without
    /// losses, and grow only as the link has room.
    pub keep_caps: bool,
    /// Whether windows that losses have reduced grow by slow start, as soon as the link has drained, up to
    /// the equal share of its earlier rate. Only for a link without other traffic, to which it
    /// leaves no room that the connections once had. Implies `keep_caps`.
    pub slow_start: bool,
}

impl Settings {
    /// Whether caps stay when all rates are equal.
    pub(super) fn keeps_caps(&self) -> bool {
        self.keep_caps || self.slow_start
    }
}

impl Default for Settings {
    /// 10 %: on a path of 1 Gbit/s and 350 ms a queue of 4.4 MB; ten segments, an initial window
    /// (RFC 6928).
    fn default() -> Self {
        Self {
            headroom: Ratio::new(0.1).expect("a share"),
            cap_min_segments: 10,
            keep_caps: false,
            slow_start: false,
        }
    }
}

/// Controller of the caps. The [module](super) has its formulas.
#[derive(Debug)]
pub struct Controller {
    settings: Settings,
    history: History,
    capacity: Capacity,
    bursts: Capacity,
    growth: Growth,
    burst_growth: Growth,
    target: Target,
    budget: Budget,
    cooldown: Cooldown,
    full_since: Option<Time>,
    /// Time at which the link was last full.
    full_at: Option<Time>,
    even_since: Option<Time>,
    uneven_since: Option<Time>,
    /// Time at which dividing began.
    level_since: Time,
    /// Time of the last sample with a retransmission.
    lost_at: Option<Time>,
    last: Option<Time>,
    estimate: Estimate,
}

impl Controller {
    /// Begins without caps.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            history: History::default(),
            capacity: Capacity::default(),
            bursts: Capacity::default(),
            growth: Growth::default(),
            burst_growth: Growth::default(),
            target: Target::new(settings.headroom.get(), settings.slow_start),
            budget: Budget::default(),
            cooldown: Cooldown::new(),
            full_since: None,
            full_at: None,
            even_since: None,
            uneven_since: None,
            level_since: Time::ZERO,
            lost_at: None,
            last: None,
            estimate: Estimate::default(),
        }
    }

    /// Returns the estimate of the last sample.
    #[must_use]
    pub fn estimate(&self) -> Estimate {
        self.estimate
    }

    /// Processes a sample of all connections; returns the caps to change. Samples should be an eighth
    /// of a round trip apart or less: with a longer interval slow start runs further before it is ended.
    pub fn on_sample(&mut self, now: Time, all: &[Observation]) -> Vec<Change> {
        let bulk: Vec<&Observation> = all.iter().filter(|o| o.is_measured()).collect();
        let rtt = round_trip(&bulk);
        let (bytes, losses) = self.history.update(now, all);
        let at = Sample {
            now,
            rtt,
            rounds: self.rounds(now, rtt),
            losses,
        };
        if losses > 0 {
            self.lost_at = Some(now);
        }
        self.update_capacity(at, bytes);
        self.update_estimate(at, &bulk);
        let target = self
            .target
            .update(at, &self.estimate, total_rate(&bulk), self.budget.sum());
        self.estimate.headroom = self.target.headroom();
        self.update_evenness(at);
        self.choose_phase(at, &bulk, target);
        match self.estimate.phase {
            Phase::Open => lift_all(all),
            Phase::Level => self.divide(at, all, &bulk, target),
        }
    }

    /// Returns the round trips since the last sample, at most one.
    fn rounds(&mut self, now: Time, rtt: Time) -> f64 {
        let since = self
            .last
            .replace(now)
            .map_or(Time::ZERO, |last| now.since(last));
        (since.as_secs_f64() / rtt.as_secs_f64().max(1e-6)).min(1.0)
    }

    fn update_capacity(&mut self, at: Sample, bytes: u64) {
        let Sample { now, rtt, .. } = at;
        let horizon = Time::from_secs(10).max(rtt * 20);
        self.capacity.record(now, bytes, rtt * RATE_ROUNDS, horizon);
        self.growth.update(now, self.capacity.max_rate());
        let part = Time::from_nanos(rtt.as_nanos() / BURST_DIVISOR);
        self.bursts.record(now, bytes, part, horizon);
        self.burst_growth.update(now, self.bursts.max_rate());
    }

    fn update_estimate(&mut self, at: Sample, bulk: &[&Observation]) {
        let busy = bulk
            .iter()
            .filter(|observation| !self.history.is_idle(at, observation));
        self.estimate = Estimate {
            phase: self.estimate.phase,
            bulk: bulk.len(),
            capacity: self.capacity.max_rate(),
            delivered: self.capacity.newest_rate(),
            level: f64::INFINITY,
            queue: queue(bulk),
            headroom: 0.0,
            spread: spread(busy.map(|observation| observation.rate())),
        };
    }

    fn update_evenness(&mut self, at: Sample) {
        let spread = self.estimate.spread;
        let is_full = self.has_queue(at) && self.growth.has_ended(at, GROWTH_ROUNDS);
        let since = |is: bool, since: Option<Time>| is.then(|| since.unwrap_or(at.now));
        self.full_since = since(is_full, self.full_since);
        self.full_at = if is_full { Some(at.now) } else { self.full_at };
        self.even_since = since(spread <= EVEN_RATIO, self.even_since);
        self.uneven_since = since(spread >= UNEVEN_RATIO, self.uneven_since);
    }

    fn has_queue(&self, at: Sample) -> bool {
        let queue = self.estimate.queue;
        queue >= QUEUE_MIN.max(self.target.headroom() / 2.0)
            && queue * at.rtt.as_secs_f64() >= QUEUE_TIME_MIN_S
    }

    fn choose_phase(&mut self, at: Sample, bulk: &[&Observation], target: f64) {
        let begins = || {
            self.overshoots(at, bulk)
                || self.is_uneven(at, bulk)
                || self.must_keep_caps(at, bulk, target)
        };
        match self.estimate.phase {
            Phase::Open if bulk.len() >= 2 && begins() => self.begin(at, bulk),
            Phase::Level if bulk.len() < 2 || self.is_over(at) => self.end(at),
            Phase::Level => self.budget.update(bulk),
            Phase::Open => {}
        }
    }

    /// Whether slow start is about to fill more than the link holds, as far as the capacity is known.
    fn overshoots(&self, at: Sample, bulk: &[&Observation]) -> bool {
        bulk.iter().any(|observation| observation.slow_start)
            && total_rate(bulk) >= self.ceiling()
            && self.estimate.delivered >= total_rate(bulk) * DELIVERED_SHARE_MIN
            && self.has_queue(at)
            && self.burst_growth.has_ended(at, BURST_GROWTH_ROUNDS)
    }

    /// Returns the rate that slow start may reach, bytes a second.
    fn ceiling(&self) -> f64 {
        self.bursts.max_rate() * (1.0 + self.target.headroom())
    }

    /// Whether rates differ, and no connection is in slow start or recovery.
    fn is_uneven(&self, at: Sample, bulk: &[&Observation]) -> bool {
        let floors: f64 = bulk
            .iter()
            .map(|observation| observation.rate_of(self.settings.cap_min_segments))
            .sum();
        self.uneven_since
            .is_some_and(|since| at.has_elapsed(since, UNEVEN_ROUNDS))
            && !bulk.iter().any(|observation| observation.slow_start)
            && total_rate(bulk) > floors * UNEVEN_RATIO
            && self.is_quiet(at)
            && self.growth.has_ended(at, GROWTH_ROUNDS)
            && self.cooldown.is_over(at)
    }

    /// Whether connections whose caps stay fill the link, or leave room in it for their slow start.
    fn must_keep_caps(&self, at: Sample, bulk: &[&Observation], target: f64) -> bool {
        let half = |full: Time| at.now.since(full) * 2 >= at.rtt;
        let is_above = self.full_since.is_some_and(half) && total_rate(bulk) > target;
        let has_room = self.may_slow_start(at) && total_rate(bulk) < self.estimate.capacity;
        self.settings.keeps_caps() && (is_above || has_room)
    }

    fn may_slow_start(&self, at: Sample) -> bool {
        let is_known = self.growth.has_ended(at, GROWTH_ROUNDS);
        self.settings.slow_start && self.is_quiet(at) && is_known
    }

    fn is_quiet(&self, at: Sample) -> bool {
        self.lost_at
            .is_none_or(|lost| at.has_elapsed(lost, QUIET_ROUNDS))
    }

    /// Whether dividing ends: all rates are equal, or it has lasted too long. Held caps end it only without a queue.
    fn is_over(&self, at: Sample) -> bool {
        let is_even = |since| at.has_elapsed(since, EVEN_ROUNDS);
        let is_late = at.has_elapsed(self.level_since, LEVEL_ROUNDS_MAX);
        let is_full = |full| !at.has_elapsed(full, FULL_ROUNDS);
        let is_kept = self.settings.slow_start
            || self.settings.keep_caps && self.full_at.is_some_and(is_full);
        !is_kept && (is_late || self.even_since.is_some_and(is_even))
    }

    fn begin(&mut self, at: Sample, bulk: &[&Observation]) {
        self.estimate.phase = Phase::Level;
        self.level_since = at.now;
        self.even_since = None;
        self.budget.start(bulk);
        self.history.end_slow_start(bulk);
    }

    fn end(&mut self, at: Sample) {
        self.estimate.phase = Phase::Open;
        self.uneven_since = None;
        let has_lost = self.lost_at.is_some_and(|lost| lost >= self.level_since);
        self.cooldown.begin(at.now, has_lost);
    }

    fn divide(
        &mut self,
        at: Sample,
        all: &[Observation],
        bulk: &[&Observation],
        target: f64,
    ) -> Vec<Change> {
        self.grow(at, bulk, target);
        let demands = bulk
            .iter()
            .map(|observation| self.demand(at, observation))
            .collect();
        let division = Division::new(
            at,
            bulk,
            demands,
            self.budget.sum(),
            self.is_quiet(at),
            self.settings.cap_min_segments,
        );
        self.estimate.level = division.level;
        all.iter()
            .filter_map(|observation| division.change(observation))
            .collect()
    }

    /// Increases S as n Reno flows would grow, or to where a slow start that was ended would have come.
    /// If caps stay, S goes to T: down in steps, up no further, or up at once.
    fn grow(&mut self, at: Sample, bulk: &[&Observation], target: f64) {
        let sum = self.budget.sum();
        let segments: f64 = bulk.iter().map(|observation| observation.rate_of(1)).sum();
        let grown = if self.is_quiet(at) && self.history.has_ended_slow_start() {
            sum.max(self.ceiling())
        } else {
            sum + segments * at.rounds
        };
        let next = match self.settings.keeps_caps() {
            false => grown,
            true if sum > target => (sum * (1.0 - REDUCTION_MAX * at.rounds)).max(target),
            true if self.may_slow_start(at) => target,
            true => grown.min(target),
        };
        self.budget.set(next);
    }

    /// Returns dᵢ: the receiver's limit, or less for a connection that leaves its cap unused.
    fn demand(&self, at: Sample, observation: &Observation) -> f64 {
        if self.history.is_idle(at, observation) {
            observation.rate() / IDLE_WINDOW_SHARE
        } else {
            observation.rate_of(observation.window_max_segments)
        }
    }
}

fn lift_all(all: &[Observation]) -> Vec<Change> {
    let capped = all.iter().filter(|observation| observation.cap.is_some());
    capped.map(Change::lift).collect()
}
