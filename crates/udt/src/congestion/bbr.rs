// SPDX-License-Identifier: MIT OR Apache-2.0
//! A rate control that has a model of the path, its rate and its round trip, instead of an opinion on losses: BBR (Cardwell et al.,
//! "BBR: Congestion-Based Congestion Control", ACM Queue 14(5), 2016; draft-ietf-ccwg-bbr for what is lost), for what UDT's
//! packets tell.
//!
//! It sends as fast as packets arrived at the most within ten round trips, and keeps about twice as many under way as the path holds.
//! A quarter more for a round trip finds what became free, a quarter less after that drains what that queued.

use super::{Control, FlowState, SYN};
use crate::packet::number::Seq;
use longhaul_units::Time;
use std::collections::VecDeque;

/// While the rate is not found: the least gain that doubles it each round trip, 2/ln 2 (§2.4 of the draft).
const STARTUP_GAIN: f64 = 2.885;
/// Growth that counts as such, and rounds without after which the rate is found.
const GROWTH_MIN: f64 = 1.25;
const FULL_ROUNDS: u32 = 3;
/// Of the losses in a round: more say that the queue is full (draft, BBRLossThresh), and what is under way shrinks so far.
const LOSS_RATIO_MAX: f64 = 0.02;
const BETA: f64 = 0.7;
/// Fewer losses are chance (draft, BBRStartupFullLossCnt).
const LOSSES_MIN: f64 = 6.0;
/// Gains of the rate, each for a round trip.
const CYCLE_GAINS: [f64; 8] = [1.25, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0];
const UP: usize = 0;
const DOWN: usize = 1;
/// What is under way, in products of rate and round trip.
const WINDOW_GAIN: f64 = 2.0;
/// A little less than arrives, so that no queue stands. Half of what the draft has (BBRPacingMarginPercent): queues stand no longer, and
/// a path without losses is used as well as with libudt.
const PACING_MARGIN: f64 = 0.995;
/// Rounds that a rate counts for.
const RATE_ROUNDS: usize = 10;
/// How long a round trip counts for unless one is seen that is hardly longer; then next to nothing is under way for so long that queues
/// drain (§3 of the paper). Of half of what the path holds, as the draft has it, several flows with short round trips keep a queue.
const RTT_MIN_LIFETIME: Time = Time::from_secs(10);
const RTT_TOLERANCE: f64 = 1.02;
const PROBE_RTT_TIME: Time = Time::from_millis(200);
/// Packets under way at first, and at least.
const WINDOW_FIRST: f64 = 16.0;
const WINDOW_MIN: f64 = 4.0;
/// Packets that arrived and of which no ACK tells yet: twice what a light ACK waits for (draft-gg-udt-03 §4.2).
const ACK_DELAY_PACKETS_MAX: f64 = 128.0;
/// Rates are told every SYN: over less than this they say little.
const SAMPLE_MIN: Time = Time::from_millis(20);
/// Moments of which it is known what had arrived: of a round trip of 10 s.
const DELIVERIES_MAX: usize = 1024;

/// BBR for UDT.
#[derive(Debug, Clone)]
pub struct Bbr {
    phase: Phase,
    phase_since: Time,
    window_max: f64,
    /// What had arrived when, for the last round trip.
    deliveries: VecDeque<(Time, u64)>,
    /// Known to have arrived at the last of these.
    highest_delivered: Seq,
    /// Packets a second at the most, in each of the last rounds, and in all of them: what the path carries.
    rates: VecDeque<f64>,
    max_rate: f64,
    /// Samples are of the program, not of the path, until then.
    limited_until: Time,
    rtt_min: Option<Time>,
    rtt_min_at: Time,
    /// The least while there is next to no queue of ours.
    rtt_probed: Option<Time>,
    round: Round,
    /// The rate that counts as found unless it grows, and rounds since.
    full_rate: f64,
    full_rounds: u32,
    /// Packets under way at the most since a queue was full.
    window_ceiling: f64,
    /// Arrived behind one that is missing.
    out_of_order: f64,
    timed_out: bool,
    random: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// The rate is being found.
    Startup,
    /// What that queued goes.
    Drain,
    /// Of [`CYCLE`].
    Cruise(usize),
    /// What others queued goes, so that the round trip shows.
    ProbeRtt,
}

/// From one packet to its arrival.
#[derive(Debug, Clone, Copy)]
struct Round {
    end: Seq,
    delivered: u64,
    lost: u64,
}

impl Bbr {
    /// For a connection that begins with `first` and may have `window_max` packets under way. `seed` decides when it looks for more,
    /// so that flows don't do so at the same time.
    #[must_use]
    pub fn new(first: Seq, window_max: u32, seed: u64) -> Self {
        Self {
            phase: Phase::Startup,
            phase_since: Time::ZERO,
            window_max: f64::from(window_max),
            deliveries: VecDeque::new(),
            highest_delivered: first,
            rates: VecDeque::from([0.0]),
            max_rate: 0.0,
            limited_until: Time::ZERO,
            rtt_min: None,
            rtt_min_at: Time::ZERO,
            rtt_probed: None,
            round: Round {
                end: first,
                delivered: 0,
                lost: 0,
            },
            full_rate: 0.0,
            full_rounds: 0,
            window_ceiling: f64::INFINITY,
            out_of_order: 0.0,
            timed_out: false,
            random: seed,
        }
    }

    /// Of the path without queues.
    fn base_rtt(&self) -> Time {
        self.rtt_min.unwrap_or(SAMPLE_MIN)
    }

    /// Packets that the path holds.
    fn bdp(&self) -> f64 {
        self.max_rate * self.base_rtt().as_secs_f64()
    }

    /// How long a gain is kept.
    fn phase_time(&self) -> Time {
        self.base_rtt().max(SAMPLE_MIN)
    }

    fn enter(&mut self, phase: Phase, now: Time) {
        (self.phase, self.phase_since) = (phase, now);
    }

    /// Any turn but the one that drains (§2 of the paper).
    fn enter_cruise(&mut self, now: Time) {
        self.random = self
            .random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let turn = (self.random >> 33) as usize % (CYCLE_GAINS.len() - 1);
        let turn = if turn == DOWN {
            CYCLE_GAINS.len() - 1
        } else {
            turn
        };
        self.enter(Phase::Cruise(turn), now);
    }

    fn measure_rtt(&mut self, news: &FlowState) {
        let Some(sample) = news.rtt_sample else {
            return;
        };
        if self.phase == Phase::ProbeRtt {
            self.rtt_probed = Some(self.rtt_probed.map_or(sample, |least| least.min(sample)));
        }
        let least = self.rtt_min.unwrap_or(sample);
        if sample.as_secs_f64() <= least.as_secs_f64() * RTT_TOLERANCE {
            (self.rtt_min, self.rtt_min_at) = (Some(sample.min(least)), news.now);
        }
    }

    /// What arrived in the last round trip, in packets a second. While nothing newer is heard of nothing is known: what is missing
    /// holds back all news of what came behind it, and then all is told at once.
    fn delivery_rate(&mut self, news: &FlowState) -> Option<f64> {
        let turn = self.phase_time();
        if news.highest_delivered == self.highest_delivered {
            return None;
        }
        self.highest_delivered = news.highest_delivered;
        self.deliveries.push_back((news.now, news.delivered));
        let is_old = |mark: &(Time, u64)| news.now.since(mark.0) >= turn;
        while self.deliveries.len() > DELIVERIES_MAX || self.deliveries.get(1).is_some_and(is_old) {
            self.deliveries.pop_front();
        }
        let (at, delivered) = *self.deliveries.front().filter(|mark| is_old(mark))?;
        let arrived = news.delivered.saturating_sub(delivered) as f64;
        Some(arrived / news.now.since(at).as_secs_f64())
    }

    fn measure_rate(&mut self, news: &FlowState) {
        if news.app_limited {
            self.limited_until = news.now + self.phase_time();
        }
        let Some(sample) = self.delivery_rate(news) else {
            return;
        };
        if news.now < self.limited_until && sample < self.max_rate {
            return;
        }
        if let Some(newest) = self.rates.back_mut() {
            *newest = newest.max(sample);
            self.max_rate = self.max_rate.max(sample);
        }
    }

    /// The last packet of the round arrived: another begins.
    fn end_round(&mut self, news: &FlowState) {
        let Round {
            delivered, lost, ..
        } = self.round;
        let (arrived, lost) = (news.delivered.saturating_sub(delivered), news.lost - lost);
        let too_many = lost as f64 > LOSS_RATIO_MAX * (arrived + lost) as f64 + LOSSES_MIN;
        self.round = Round {
            end: news.sent,
            delivered: news.delivered,
            lost: news.lost,
        };
        match self.phase {
            Phase::Startup => self.check_full_pipe(too_many, news.now),
            Phase::Cruise(_) if too_many => self.reduce_ceiling(news),
            Phase::Cruise(UP) => self.window_ceiling *= CYCLE_GAINS[UP],
            _ => {}
        }
        if news.now >= self.limited_until {
            self.rates.push_back(0.0);
        }
        while self.rates.len() > RATE_ROUNDS {
            self.rates.pop_front();
        }
        self.max_rate = self.rates.iter().copied().fold(0.0, f64::max);
    }

    fn check_full_pipe(&mut self, too_many: bool, now: Time) {
        if self.max_rate >= self.full_rate * GROWTH_MIN {
            (self.full_rate, self.full_rounds) = (self.max_rate, 0);
        } else if now >= self.limited_until {
            self.full_rounds += 1;
        }
        if self.full_rounds >= FULL_ROUNDS || too_many {
            self.enter(Phase::Drain, now);
        }
    }

    /// A queue was full. Not below what the path holds without one.
    fn reduce_ceiling(&mut self, news: &FlowState) {
        let under_way = f64::from(news.in_flight);
        self.window_ceiling = (under_way.min(self.window_ceiling) * BETA).max(self.bdp());
    }

    fn change_phase(&mut self, news: &FlowState) {
        let (now, held) = (news.now, self.bdp());
        let turned = now.since(self.phase_since) > self.phase_time();
        let under_way = f64::from(news.in_flight);
        match self.phase {
            Phase::Drain if under_way <= held => self.enter_cruise(now),
            Phase::Cruise(UP)
                if turned
                    && under_way < held * CYCLE_GAINS[UP]
                    && now.since(self.phase_since) < self.phase_time() + self.phase_time() => {}
            Phase::Cruise(turn) if turned || (turn == DOWN && under_way <= held) => {
                self.enter(Phase::Cruise((turn + 1) % CYCLE_GAINS.len()), now);
            }
            Phase::ProbeRtt
                if now.since(self.phase_since)
                    > PROBE_RTT_TIME.max(self.phase_time() + self.phase_time()) =>
            {
                self.rtt_min = self.rtt_probed.take().or(self.rtt_min);
                self.rtt_min_at = now;
                self.enter_cruise(now);
            }
            Phase::Drain | Phase::Cruise(_) if now.since(self.rtt_min_at) > RTT_MIN_LIFETIME => {
                self.enter(Phase::ProbeRtt, now);
            }
            _ => {}
        }
    }

    fn gain(&self) -> f64 {
        match self.phase {
            Phase::Startup => STARTUP_GAIN,
            Phase::Drain => 1.0 / STARTUP_GAIN,
            Phase::Cruise(turn) => CYCLE_GAINS[turn],
            Phase::ProbeRtt => 1.0,
        }
    }

    /// Packets under way.
    fn window_target(&self) -> f64 {
        let gain = match self.phase {
            _ if self.timed_out => 0.0,
            Phase::Startup | Phase::Drain => STARTUP_GAIN,
            Phase::Cruise(_) => WINDOW_GAIN,
            Phase::ProbeRtt => return WINDOW_MIN,
        };
        // An ACK comes after a SYN or 64 packets, at the latest: on a short path that is longer than the round trip.
        let unheard = (gain * self.max_rate * SYN.as_secs_f64()).min(ACK_DELAY_PACKETS_MAX);
        (gain * self.bdp()).min(self.window_ceiling) + unheard
    }
}

impl Control for Bbr {
    fn on_ack(&mut self, news: &FlowState) {
        self.timed_out = false;
        self.out_of_order = f64::from(news.out_of_order);
        self.measure_rtt(news);
        self.measure_rate(news);
        if self.round.end.is_before(news.highest_delivered) {
            self.end_round(news);
        }
        self.change_phase(news);
    }

    /// They say what arrived, too.
    fn on_loss(&mut self, _: Seq, news: &FlowState) {
        self.on_ack(news);
    }

    fn on_timeout(&mut self, _: &FlowState) {
        self.timed_out = true;
    }

    fn send_period(&self) -> Time {
        // Until a queue was full the window alone paces on a path shorter than a SYN: nothing there that was late slows it down.
        let shortest = match self.window_ceiling.is_finite() {
            true => SYN,
            false => Time::ZERO,
        };
        let least = WINDOW_FIRST / self.base_rtt().max(shortest).as_secs_f64();
        let rate = self.max_rate.max(least);
        Time::from_secs_f64(1.0 / (rate * self.gain() * PACING_MARGIN))
    }

    fn window(&self) -> u32 {
        let least = match self.phase {
            Phase::Startup => WINDOW_FIRST,
            _ => WINDOW_MIN,
        };
        (self.window_target().max(least) + self.out_of_order).min(self.window_max) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: Seq = Seq::new(100);
    const RTT: Time = Time::from_millis(100);

    /// A path without queue that carries 10,000 packets a second, at each SYN.
    fn flow_state(syns: u32, rate: f64) -> FlowState {
        let delivered = (f64::from(syns) * rate / 100.0) as u32;
        let in_flight = (rate / 10.0) as u32;
        FlowState {
            now: Time::from_millis(u64::from(syns) * 10),
            acked: FIRST.plus(delivered),
            sent: FIRST.plus(delivered + in_flight),
            highest_delivered: FIRST.plus(delivered),
            delivered: delivered.into(),
            out_of_order: 0,
            lost: 0,
            in_flight,
            app_limited: false,
            rtt: RTT,
            rtt_sample: Some(RTT),
            arrival_rate: 0.0,
            capacity: 0.0,
            mss: 1500,
            flow_window: 25_600,
        }
    }

    fn bbr_at_steady_state() -> Bbr {
        let mut bbr = Bbr::new(FIRST, 25_600, 7);
        (1..300).for_each(|syn| bbr.on_ack(&flow_state(syn, 10_000.0)));
        bbr
    }

    fn rate(bbr: &Bbr) -> f64 {
        1.0 / bbr.send_period().as_secs_f64()
    }

    #[test]
    fn it_sends_as_fast_as_packets_arrive_and_holds_two_round_trips() {
        let bbr = bbr_at_steady_state();
        assert!(matches!(bbr.phase, Phase::Cruise(_)));
        let expected = 10_000.0 * PACING_MARGIN * bbr.gain();
        assert!((rate(&bbr) / expected - 1.0).abs() < 0.01, "{}", rate(&bbr));
        assert_eq!(bbr.window(), 2128, "and what no ACK has told of");
    }

    #[test]
    fn until_the_rate_is_found_it_sends_faster_than_it_arrives() {
        let mut bbr = Bbr::new(FIRST, 25_600, 7);
        (1..15).for_each(|syn| bbr.on_ack(&flow_state(syn, 10_000.0)));
        assert_eq!(bbr.phase, Phase::Startup);
        assert!(rate(&bbr) > 28_000.0, "{}", rate(&bbr));
    }

    #[test]
    fn a_few_losses_change_nothing_and_many_shrink_the_window() {
        let mut bbr = bbr_at_steady_state();
        let lossy = |syn: u32, lost: u64| FlowState {
            lost,
            ..flow_state(syn, 10_000.0)
        };
        (300..330).for_each(|syn| bbr.on_loss(FIRST, &lossy(syn, u64::from(syn - 299))));
        assert_eq!(bbr.window_ceiling, f64::INFINITY);
        (330..360).for_each(|syn| bbr.on_loss(FIRST, &lossy(syn, u64::from(syn - 299) * 30)));
        assert!(
            bbr.window_ceiling < 2000.0 && bbr.window_ceiling >= 990.0,
            "{}",
            bbr.window_ceiling
        );
    }

    /// All that came behind a missing packet is told of when that has come.
    #[test]
    fn news_that_were_held_back_are_no_rate() {
        let mut bbr = bbr_at_steady_state();
        let stalled = flow_state(299, 10_000.0);
        for syn in 301..320_u32 {
            let now = Time::from_millis(u64::from(syn) * 10);
            bbr.on_ack(&FlowState { now, ..stalled });
        }
        bbr.on_ack(&flow_state(320, 10_000.0));
        assert!(bbr.max_rate < 10_200.0, "{}", bbr.max_rate);
    }

    #[test]
    fn after_ten_seconds_of_longer_round_trips_it_drains_the_path() {
        let mut bbr = bbr_at_steady_state();
        let longer = |syn| FlowState {
            rtt_sample: Some(Time::from_millis(150)),
            ..flow_state(syn, 10_000.0)
        };
        let mut syns = 300..2000;
        let drains = syns.find(|syn| {
            bbr.on_ack(&longer(*syn));
            bbr.phase == Phase::ProbeRtt
        });
        assert!(
            drains.is_some_and(|syn| (1290..1310).contains(&syn)),
            "{drains:?}"
        );
        assert_eq!(bbr.window(), 4);
        syns.take(40).for_each(|syn| bbr.on_ack(&longer(syn)));
        assert_eq!(bbr.base_rtt(), Time::from_millis(150));
    }
}
