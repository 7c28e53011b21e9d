// SPDX-License-Identifier: MIT OR Apache-2.0
//! One look after the other: which caps to set, move and lift.

use super::{Capacity, level::level};
use std::collections::HashMap;
use units::{Ratio, Time};

/// How many times the slowest's rate the fastest has when caps begin …
const UNEVEN: f64 = 1.3;
/// … and when they may end.
const EVEN: f64 = 1.15;
/// Round trips that it must stay so.
const EVEN_ROUNDS: u64 = 3;
/// A connection above the level by less than this is let be: its next loss would be answered for it.
const ABOVE: f64 = 1.02;
/// Caps move by more than this share.
const STEP: f64 = 0.02;
/// A window below this share of its cap is not held by it …
const IDLE: f64 = 0.9;
/// … and the cap is lifted after so many round trips.
const IDLE_ROUNDS: u64 = 5;
/// The sum of all windows is lowered by no more than this share in a round trip.
const LOWERING: f64 = 0.1;
/// Round trips without a loss before windows are filled up again.
const QUIET_ROUNDS: u64 = 2;
/// Least headroom, and the least queue that is told from noise.
const HEADROOM_MIN: f64 = 0.02;
const QUEUE_MIN: f64 = 0.01;
const QUEUE_TIME_MIN_S: f64 = 0.001;
/// Rates are means over so many round trips, within which bursts and short stalls are made good.
const SPAN_ROUNDS: u64 = 1;
/// Capacity that has grown by this share within so many round trips is no link's: connections are
/// still finding out.
const GROWTH: f64 = 1.1;
const GROWTH_ROUNDS: u64 = 2;
/// Delivery below this share of capacity, while caps hold all windows, says that caps are too low …
const SHORT: f64 = 0.97;
/// … and they are raised, up to so many times the target.
const MAKE_UP_MAX: f64 = 2.0;
/// … if that lasts for so many round trips.
const SHORT_ROUNDS: u64 = 4;
/// One round trip in so many, the sum may be once more the headroom higher: has the link got faster?
const PROBE_ROUNDS: u64 = 10;
/// Losses are put down to the longest queue of so many round trips before.
const BLAME_ROUNDS: u64 = 2;
/// Loss-free round trips in which headroom makes up 63 % of what it has lost.
const RECOVERY_ROUNDS: f64 = 200.0;

/// What may be chosen.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Settings {
    /// h: the queue that capped connections leave standing, as a share of what the wire holds.
    pub headroom: Ratio,
    /// No cap goes below so many segments.
    pub floor_segments: u32,
    /// Cap also when all are even: they then share without losses, and grow only as the link has
    /// room.
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

/// One connection at one look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Observation {
    /// Names the connection.
    pub id: u64,
    /// Its window: the smaller of the congestion window and the receiver's, segments.
    pub window_segments: u32,
    /// Bytes of a segment.
    pub mss_bytes: u32,
    /// Segments that have arrived since it began; may wrap around.
    pub delivered_segments: u32,
    /// Segments sent again since it began; may wrap around.
    pub retransmits: u32,
    /// Smoothed round trip.
    pub rtt: Time,
    /// Least round trip of its path.
    pub rtt_min: Time,
    /// The cap that it has, segments.
    pub cap: Option<u32>,
    /// Whether it had data in flight or waiting most of the time since the last look. Others are
    /// neither slow nor fast.
    pub bulk: bool,
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
    /// Fast ones are.
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
    headroom: f64,
    /// The longest queue of late, and when it stood.
    longest: (f64, Time),
    /// The capacity when it last had grown, and when that was.
    grown: (f64, Time),
    full_since: Option<Time>,
    even_since: Option<Time>,
    /// Since when nobody has been above the level.
    needless_since: Option<Time>,
    /// What windows may ask for together while they are lowered to the target.
    allowed: f64,
    /// What the target is multiplied with because less was delivered than the link carries: round trips
    /// are longer than the least one without a queue too, on a busy host or a radio link.
    make_up: f64,
    short_since: Option<Time>,
    /// When a segment was last sent again.
    lost_at: Time,
    /// Whether windows below the level are filled up to it.
    fills: bool,
    last: Option<Time>,
    outlook: Outlook,
}

/// What is remembered of a connection; gone with the first look that lacks it.
#[derive(Debug, Clone, Copy)]
struct Known {
    delivered: u32,
    retransmits: u32,
    /// Since when its cap has not held it.
    idle_since: Option<Time>,
}

impl Observation {
    /// r: bytes a second that the window allows on an empty path.
    fn rate(&self) -> f64 {
        self.rate_of(f64::from(self.window_segments))
    }

    fn rate_of(&self, segments: f64) -> f64 {
        segments * f64::from(self.mss_bytes) / self.rtt_min.as_secs_f64()
    }

    fn segments_at(&self, rate: f64) -> f64 {
        rate * self.rtt_min.as_secs_f64() / f64::from(self.mss_bytes)
    }

    /// A cap that the window is at, or that it has just been raised from.
    fn is_held(&self) -> bool {
        self.cap
            .is_some_and(|cap| f64::from(self.window_segments) >= f64::from(cap) * IDLE)
    }

    /// What it would send without a cap: nobody knows of one that its cap holds.
    fn demand(&self) -> f64 {
        if self.is_held() {
            f64::INFINITY
        } else {
            self.rate()
        }
    }

    fn is_measured(&self) -> bool {
        self.bulk && self.rtt_min > Time::ZERO && self.mss_bytes > 0 && self.window_segments > 0
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
            headroom: settings.headroom.get(),
            longest: (0.0, Time::ZERO),
            grown: (0.0, Time::ZERO),
            full_since: None,
            even_since: None,
            needless_since: None,
            allowed: 0.0,
            make_up: 1.0,
            short_since: None,
            lost_at: Time::ZERO,
            fills: false,
            last: None,
            outlook: Outlook::default(),
        }
    }

    /// What it made of the last look.
    #[must_use]
    pub fn outlook(&self) -> Outlook {
        self.outlook
    }

    /// Takes a look at all connections, and says which caps are to change. Looks are best a fraction
    /// of a round trip apart; a later one only slows the law down.
    pub fn look(&mut self, now: Time, all: &[Observation]) -> Vec<Change> {
        let bulk: Vec<&Observation> = all.iter().filter(|o| o.is_measured()).collect();
        let rtt = round_trip(&bulk);
        let (bytes, losses) = self.news(all);
        let horizon = Time::from_secs(10).max(rtt * 20);
        self.capacity.learn(now, bytes, rtt * SPAN_ROUNDS, horizon);
        self.outlook = Outlook {
            phase: self.outlook.phase,
            bulk: bulk.len(),
            capacity: self.capacity.greatest(),
            delivered: self.capacity.newest(),
            queue: queue(&bulk),
            spread: spread(&bulk),
            ..Outlook::default()
        };
        let rounds = self.rounds(now, rtt);
        if losses > 0 {
            self.lost_at = now;
        }
        self.learn_headroom(now, rtt, rounds, losses);
        self.learn_fullness(now, rtt);
        let asked: f64 = bulk.iter().map(|seen| seen.rate()).sum();
        self.make_up(now, rtt, rounds, losses, asked);
        let target = self.target(now, rtt);
        let is_known = now.since(self.grown.1) >= rtt * GROWTH_ROUNDS;
        let is_quiet = now.since(self.lost_at) >= rtt * QUIET_ROUNDS;
        let has_room = asked < self.outlook.capacity;
        self.fills = self.settings.refill && is_known && is_quiet && has_room;
        self.choose_phase(now, rtt, asked > target, bulk.len());
        // Lowered step by step: a cut at once would add to the answers to losses that have just happened.
        self.allowed = match self.outlook.phase {
            Phase::Open => asked,
            Phase::Level => (asked.min(self.allowed) * (1.0 - LOWERING * rounds)).max(target),
        };
        match self.outlook.phase {
            Phase::Open => lift_all(all),
            Phase::Level => self.level(now, rtt, all, &bulk),
        }
    }

    /// T: what windows may ask for together, bytes a second.
    fn target(&self, now: Time, rtt: Time) -> f64 {
        let round = now.as_nanos() / rtt.as_nanos().max(1);
        // Where a loss has shown a short buffer, there is no room for it.
        let is_deep = self.headroom >= 0.9 * self.settings.headroom.get();
        let probes =
            self.outlook.phase == Phase::Level && is_deep && round.is_multiple_of(PROBE_ROUNDS);
        let headroom = if probes {
            2.0 * self.headroom
        } else {
            self.headroom
        };
        self.outlook.capacity * self.make_up * (1.0 + headroom)
    }

    /// If all windows are held and less comes out than the link carries, it is the caps.
    fn make_up(&mut self, now: Time, rtt: Time, rounds: f64, losses: u32, asked: f64) {
        let Outlook {
            capacity,
            delivered,
            phase,
            ..
        } = self.outlook;
        let is_held = phase == Phase::Level && asked >= self.allowed * IDLE;
        let is_short = is_held && delivered < capacity * SHORT;
        self.short_since = is_short.then(|| self.short_since.unwrap_or(now));
        // What windows ask for now is delivered a round trip and a span later.
        let stays_short = |at| now.since(at) >= rtt * SHORT_ROUNDS;
        if losses > 0 {
            self.make_up = 1.0 + (self.make_up - 1.0) / 2.0;
        } else if self.short_since.is_some_and(stays_short) {
            let missing = (capacity / delivered.max(1.0) - 1.0).min(1.0);
            self.make_up = (self.make_up * (1.0 + missing * rounds)).min(MAKE_UP_MAX);
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

    /// Bytes delivered and segments sent again since the last look.
    fn news(&mut self, all: &[Observation]) -> (u64, u32) {
        let mut sums = (0, 0);
        let mut known = HashMap::with_capacity(all.len());
        for seen in all {
            let before = self.known.get(&seen.id).copied();
            if let Some(before) = before {
                let delivered = seen.delivered_segments.wrapping_sub(before.delivered);
                sums.0 += u64::from(delivered) * u64::from(seen.mss_bytes);
                sums.1 += seen.retransmits.wrapping_sub(before.retransmits);
            }
            let now = Known {
                delivered: seen.delivered_segments,
                retransmits: seen.retransmits,
                idle_since: before.and_then(|before| before.idle_since),
            };
            known.insert(seen.id, now);
        }
        self.known = known;
        sums
    }

    fn learn_headroom(&mut self, now: Time, rtt: Time, rounds: f64, losses: u32) {
        let queue = self.outlook.queue;
        let most = self.settings.headroom.get();
        if queue >= self.longest.0 || now.since(self.longest.1) > rtt * BLAME_ROUNDS {
            self.longest = (queue, now);
        }
        if losses > 0 && self.longest.0 >= QUEUE_MIN {
            self.headroom = (self.longest.0 / 2.0).clamp(HEADROOM_MIN.min(most), most);
        } else if losses > 0 && self.settings.refill {
            // Perhaps what was filled up ran over, too shortly for a queue to be seen.
            self.headroom = (self.headroom / 2.0).max(HEADROOM_MIN.min(most));
        } else {
            self.headroom += (most - self.headroom) * rounds / RECOVERY_ROUNDS;
        }
        self.outlook.headroom = self.headroom;
    }

    fn learn_fullness(&mut self, now: Time, rtt: Time) {
        let queue = self.outlook.queue;
        let capacity = self.outlook.capacity;
        if capacity >= self.grown.0 * GROWTH {
            self.grown = (capacity, now);
        }
        self.grown.0 = self.grown.0.min(capacity);
        let is_full = queue >= QUEUE_MIN.max(self.headroom / 2.0)
            && queue * rtt.as_secs_f64() >= QUEUE_TIME_MIN_S
            && now.since(self.grown.1) >= rtt * GROWTH_ROUNDS;
        self.full_since = is_full.then(|| self.full_since.unwrap_or(now));
        let is_even = is_full && self.outlook.spread <= EVEN;
        self.even_since = is_even.then(|| self.even_since.unwrap_or(now));
    }

    fn choose_phase(&mut self, now: Time, rtt: Time, is_above: bool, bulk: usize) {
        let lasts = |since: Option<Time>, span| since.is_some_and(|at| now.since(at) >= span);
        let half = Time::from_nanos(rtt.as_nanos() / 2);
        let holds = self.settings.hold || self.settings.refill;
        let is_uneven = self.outlook.spread >= UNEVEN || holds;
        let begins = self.fills || (lasts(self.full_since, half) && is_above && is_uneven);
        let is_done = lasts(self.even_since, rtt * EVEN_ROUNDS) && !holds;
        let ends = is_done || lasts(self.needless_since, rtt * IDLE_ROUNDS);
        self.outlook.phase = match self.outlook.phase {
            _ if bulk < 2 => Phase::Open,
            Phase::Open if begins => Phase::Level,
            Phase::Level if ends => Phase::Open,
            phase => phase,
        };
        if self.outlook.phase == Phase::Open {
            self.needless_since = None;
        }
    }

    fn level(
        &mut self,
        now: Time,
        rtt: Time,
        all: &[Observation],
        bulk: &[&Observation],
    ) -> Vec<Change> {
        let demand = |seen: &&Observation| {
            if self.fills {
                f64::INFINITY
            } else {
                seen.demand()
            }
        };
        let mut demands: Vec<f64> = bulk.iter().map(demand).collect();
        let level = level(&mut demands, self.allowed);
        self.outlook.level = level;
        self.needless_since = level
            .is_infinite()
            .then(|| self.needless_since.unwrap_or(now));
        all.iter()
            .filter_map(|seen| self.change(now, rtt, level, seen))
            .collect()
    }

    fn change(&mut self, now: Time, rtt: Time, level: f64, seen: &Observation) -> Option<Change> {
        let wanted = seen
            .is_measured()
            .then(|| self.segments(level, seen))
            .flatten();
        let is_idle = seen.cap.is_some() && self.is_idle(now, rtt, seen);
        let fill = self.fills && seen.rate() < level * IDLE && wanted.is_some();
        let cap = match seen.cap {
            _ if fill => wanted,
            None => wanted.filter(|_| seen.rate() > level * ABOVE).map(Some)?,
            Some(_) if is_idle => None,
            Some(cap) => self.moved(seen, cap, wanted?)?,
        };
        Some(Change {
            id: seen.id,
            cap,
            fill,
        })
    }

    /// The new cap, if it differs enough from the old. No cap is raised to more than is uneven: one that
    /// is there already is lifted, so that its connection grows as it would have.
    fn moved(&self, seen: &Observation, cap: u32, wanted: u32) -> Option<Option<u32>> {
        let share = self.allowed / self.outlook.bulk.max(1) as f64;
        let most = self.segments(share * UNEVEN, seen)?;
        if wanted > cap && cap >= most {
            return (wanted > step_above(cap)).then_some(None);
        }
        let wanted = if wanted > cap {
            wanted.min(most)
        } else {
            wanted
        };
        (wanted.abs_diff(cap) > step_above(cap) - cap - 1).then_some(Some(wanted))
    }

    /// The cap that the level means for this connection; none where it is without bounds.
    fn segments(&self, level: f64, seen: &Observation) -> Option<u32> {
        let segments = seen.segments_at(level);
        let fits = segments < f64::from(u32::MAX >> 8);
        fits.then(|| (segments.ceil() as u32).max(self.settings.floor_segments))
    }

    /// Whether its cap has not held it for long.
    fn is_idle(&mut self, now: Time, rtt: Time, seen: &Observation) -> bool {
        let Some(known) = self.known.get_mut(&seen.id) else {
            return false;
        };
        let held = seen.is_held() && seen.is_measured();
        known.idle_since = (!held).then(|| known.idle_since.unwrap_or(now));
        let since = known.idle_since;
        since.is_some_and(|at| now.since(at) >= rtt * IDLE_ROUNDS)
    }
}

/// The least cap that is worth raising this one to.
fn step_above(cap: u32) -> u32 {
    cap.saturating_add((f64::from(cap) * STEP).ceil().max(1.0) as u32)
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

/// The longest of the least round trips.
fn round_trip(bulk: &[&Observation]) -> Time {
    bulk.iter()
        .map(|seen| seen.rtt_min)
        .max()
        .unwrap_or(Time::ZERO)
}

fn queue(bulk: &[&Observation]) -> f64 {
    let wire: f64 = bulk
        .iter()
        .map(|o| o.rate() * o.rtt_min.as_secs_f64())
        .sum();
    let waiting = |o: &&Observation| o.rate() * o.rtt.since(o.rtt_min).as_secs_f64();
    let queue: f64 = bulk.iter().map(waiting).sum();
    if wire > 0.0 { queue / wire } else { 0.0 }
}

fn spread(bulk: &[&Observation]) -> f64 {
    let rates = || bulk.iter().map(|seen| seen.rate());
    let (least, most) = (
        rates().fold(f64::INFINITY, f64::min),
        rates().fold(0.0, f64::max),
    );
    if bulk.len() < 2 { 1.0 } else { most / least }
}
