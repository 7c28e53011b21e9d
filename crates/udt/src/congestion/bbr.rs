// SPDX-License-Identifier: MIT OR Apache-2.0
//! BBR for UDT: a congestion control that models the path by its rate and its round-trip time, and does not react to
//! single losses. Cardwell et al., "BBR: Congestion-Based Congestion Control", ACM Queue 14(5), 2016. The reaction to
//! many losses is that of draft-ietf-ccwg-bbr.
//!
//! The sender uses the highest rate at which packets arrived within ten round trips, and keeps about two
//! bandwidth-delay products in flight. A quarter more for a round trip finds free capacity. A quarter less in the next
//! one drains the queue that this built.

use super::{Control, FlowState, SYN_INTERVAL};
use crate::packet::number::Seq;
use longhaul_units::Time;
use std::collections::VecDeque;

/// Gain in startup: the minimum that doubles the rate each round trip, 2/ln 2 (§2.4 of the draft).
const STARTUP_GAIN: f64 = 2.885;
/// Minimum growth of the rate in a round of startup.
const GROWTH_MIN: f64 = 1.25;
/// Number of rounds without that growth after which the pipe counts as full.
const FULL_ROUNDS: u32 = 3;
/// Loss ratio of a round above which a queue counts as full (draft, BBRLossThresh).
const LOSS_RATIO_MAX: f64 = 0.02;
/// Factor of the window after a queue was full (draft, BBRBeta).
const BETA: f64 = 0.7;
/// Number of losses in a round that never count (draft, BBRStartupFullLossCnt).
const LOSSES_MIN: f64 = 6.0;
/// Pacing gains of the cycle, each for a round trip.
const CYCLE_GAINS: [f64; 8] = [1.25, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0];
/// Index of the gain that probes for free capacity.
const PROBE_UP: usize = 0;
/// Index of the gain that drains the queue of that probe.
const PROBE_DOWN: usize = 1;
/// Window in bandwidth-delay products.
const WINDOW_GAIN: f64 = 2.0;
/// Share of the measured rate that is sent, so that no standing queue forms. The margin is half of the draft's
/// (BBRPacingMarginPercent): standing queues are no longer, and a path without losses is used as well as by libudt.
const PACING_MARGIN: f64 = 0.995;
/// Number of rounds in the rate filter.
const RATE_ROUNDS: usize = 10;
/// Lifetime of the minimum round-trip time, unless a sample is hardly longer. After it next to nothing is in flight
/// for [`PROBE_RTT_TIME`], so that queues drain (§3 of the paper). With half of a bandwidth-delay product, as in the
/// draft, several flows with short round trips keep a queue.
const RTT_MIN_LIFETIME: Time = Time::from_secs(10);
const RTT_TOLERANCE: f64 = 1.02;
const PROBE_RTT_TIME: Time = Time::from_millis(200);
/// Initial window, in packets.
const WINDOW_FIRST: f64 = 16.0;
/// Minimum window, in packets.
const WINDOW_MIN: f64 = 4.0;
/// Maximum number of packets that arrived and are not acknowledged yet: twice those of a light ACK (draft-gg-udt-03
/// §4.2).
const ACK_DELAY_PACKETS_MAX: f64 = 128.0;
/// Minimum time of a rate sample: ACKs come every SYN interval, so that shorter ones are too coarse.
const SAMPLE_MIN: Time = Time::from_millis(20);
/// Maximum number of recorded ACKs: those of a round trip of 10 s.
const DELIVERIES_MAX: usize = 1024;

/// BBR for UDT.
#[derive(Debug, Clone)]
pub struct Bbr {
    phase: Phase,
    phase_since: Time,
    window_max: f64,
    /// Times and delivered packets of the ACKs of the last round trip.
    deliveries: VecDeque<(Time, u64)>,
    /// Highest delivered packet at the last of these.
    highest_delivered: Seq,
    /// Maximum delivery rate of each recent round in packets per second, and the maximum of them: the bandwidth of
    /// the path.
    rates: VecDeque<f64>,
    max_rate: f64,
    /// Time until which samples are limited by the application, not by the path.
    limited_until: Time,
    rtt_min: Option<Time>,
    rtt_min_at: Time,
    /// Minimum round-trip time in the current RTT probe.
    rtt_probed: Option<Time>,
    round: Round,
    /// Rate that the pipe counts as full at unless it grows, and the rounds since it grew.
    full_rate: f64,
    full_rounds: u32,
    /// Upper bound of the window since a queue was full, in packets.
    window_ceiling: f64,
    /// Packets that arrived after a missing one.
    out_of_order: f64,
    timed_out: bool,
    random: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// The rate grows until the pipe is full.
    Startup,
    /// The queue of the startup drains.
    Drain,
    /// The gain is this entry of [`CYCLE_GAINS`].
    Cruise(usize),
    /// The window is minimal, so that queues drain and the round trip can be measured.
    ProbeRtt,
}

/// Round: from the transmission of a packet to its delivery.
#[derive(Debug, Clone, Copy)]
struct Round {
    end: Seq,
    delivered: u64,
    lost: u64,
}

impl Bbr {
    /// Creates the control for a connection whose initial sequence number is `first` and whose window is at most
    /// `window_max` packets. `seed` decides when it probes for bandwidth, so that flows do not probe at the same
    /// time.
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

    /// Returns the round-trip time of the path without queues.
    fn base_rtt(&self) -> Time {
        self.rtt_min.unwrap_or(SAMPLE_MIN)
    }

    /// Returns the bandwidth-delay product in packets.
    fn bdp(&self) -> f64 {
        self.max_rate * self.base_rtt().as_secs_f64()
    }

    /// Returns the duration of a gain.
    fn phase_time(&self) -> Time {
        self.base_rtt().max(SAMPLE_MIN)
    }

    fn enter(&mut self, phase: Phase, now: Time) {
        (self.phase, self.phase_since) = (phase, now);
    }

    /// Enters the cycle at a random phase, except the one that drains (§2 of the paper).
    fn enter_cruise(&mut self, now: Time) {
        self.random = self
            .random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let index = (self.random >> 33) as usize % (CYCLE_GAINS.len() - 1);
        let index = if index == PROBE_DOWN {
            CYCLE_GAINS.len() - 1
        } else {
            index
        };
        self.enter(Phase::Cruise(index), now);
    }

    fn measure_rtt(&mut self, flow: &FlowState) {
        let Some(sample) = flow.rtt_sample else {
            return;
        };
        if self.phase == Phase::ProbeRtt {
            self.rtt_probed = Some(self.rtt_probed.map_or(sample, |least| least.min(sample)));
        }
        let least = self.rtt_min.unwrap_or(sample);
        if sample.as_secs_f64() <= least.as_secs_f64() * RTT_TOLERANCE {
            (self.rtt_min, self.rtt_min_at) = (Some(sample.min(least)), flow.now);
        }
    }

    /// Returns the delivery rate of the last round trip, in packets per second. Without newer deliveries there is no
    /// sample: a missing packet holds back the ACKs of those behind it, which then come all at once.
    fn delivery_rate(&mut self, flow: &FlowState) -> Option<f64> {
        let phase_time = self.phase_time();
        if flow.highest_delivered == self.highest_delivered {
            return None;
        }
        self.highest_delivered = flow.highest_delivered;
        self.deliveries.push_back((flow.now, flow.delivered));
        let is_old = |delivery: &(Time, u64)| flow.now.since(delivery.0) >= phase_time;
        while self.deliveries.len() > DELIVERIES_MAX || self.deliveries.get(1).is_some_and(is_old) {
            self.deliveries.pop_front();
        }
        let (at, delivered) = *self
            .deliveries
            .front()
            .filter(|delivery| is_old(delivery))?;
        let arrived = flow.delivered.saturating_sub(delivered) as f64;
        Some(arrived / flow.now.since(at).as_secs_f64())
    }

    fn measure_rate(&mut self, flow: &FlowState) {
        if flow.app_limited {
            self.limited_until = flow.now + self.phase_time();
        }
        let Some(sample) = self.delivery_rate(flow) else {
            return;
        };
        if flow.now < self.limited_until && sample < self.max_rate {
            return;
        }
        if let Some(newest) = self.rates.back_mut() {
            *newest = newest.max(sample);
            self.max_rate = self.max_rate.max(sample);
        }
    }

    /// Ends the round when its last packet was delivered, and starts the next.
    fn end_round(&mut self, flow: &FlowState) {
        let Round {
            delivered, lost, ..
        } = self.round;
        let (arrived, lost) = (flow.delivered.saturating_sub(delivered), flow.lost - lost);
        let queue_full = lost as f64 > LOSS_RATIO_MAX * (arrived + lost) as f64 + LOSSES_MIN;
        self.round = Round {
            end: flow.sent,
            delivered: flow.delivered,
            lost: flow.lost,
        };
        match self.phase {
            Phase::Startup => self.check_full_pipe(queue_full, flow.now),
            Phase::Cruise(_) if queue_full => self.reduce_ceiling(flow),
            Phase::Cruise(PROBE_UP) => self.window_ceiling *= CYCLE_GAINS[PROBE_UP],
            _ => {}
        }
        if flow.now >= self.limited_until {
            self.rates.push_back(0.0);
        }
        while self.rates.len() > RATE_ROUNDS {
            self.rates.pop_front();
        }
        self.max_rate = self.rates.iter().copied().fold(0.0, f64::max);
    }

    fn check_full_pipe(&mut self, queue_full: bool, now: Time) {
        if self.max_rate >= self.full_rate * GROWTH_MIN {
            (self.full_rate, self.full_rounds) = (self.max_rate, 0);
        } else if now >= self.limited_until {
            self.full_rounds += 1;
        }
        if self.full_rounds >= FULL_ROUNDS || queue_full {
            self.enter(Phase::Drain, now);
        }
    }

    /// Lowers the window ceiling after a full queue, but not below the bandwidth-delay product.
    fn reduce_ceiling(&mut self, flow: &FlowState) {
        let in_flight = f64::from(flow.in_flight);
        self.window_ceiling = (in_flight.min(self.window_ceiling) * BETA).max(self.bdp());
    }

    fn change_phase(&mut self, flow: &FlowState) {
        let (now, bdp) = (flow.now, self.bdp());
        let is_phase_over = now.since(self.phase_since) > self.phase_time();
        let in_flight = f64::from(flow.in_flight);
        match self.phase {
            Phase::Drain if in_flight <= bdp => self.enter_cruise(now),
            Phase::Cruise(PROBE_UP)
                if is_phase_over
                    && in_flight < bdp * CYCLE_GAINS[PROBE_UP]
                    && now.since(self.phase_since) < self.phase_time() + self.phase_time() => {}
            Phase::Cruise(index) if is_phase_over || (index == PROBE_DOWN && in_flight <= bdp) => {
                self.enter(Phase::Cruise((index + 1) % CYCLE_GAINS.len()), now);
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
            Phase::Cruise(index) => CYCLE_GAINS[index],
            Phase::ProbeRtt => 1.0,
        }
    }

    /// Returns the target number of packets in flight.
    fn window_target(&self) -> f64 {
        let gain = match self.phase {
            _ if self.timed_out => 0.0,
            Phase::Startup | Phase::Drain => STARTUP_GAIN,
            Phase::Cruise(_) => WINDOW_GAIN,
            Phase::ProbeRtt => return WINDOW_MIN,
        };
        // An ACK comes after a SYN interval or 64 packets at the latest. On a short path that is longer than the round
        // trip.
        let ack_delay_packets =
            (gain * self.max_rate * SYN_INTERVAL.as_secs_f64()).min(ACK_DELAY_PACKETS_MAX);
        (gain * self.bdp()).min(self.window_ceiling) + ack_delay_packets
    }
}

impl Control for Bbr {
    fn on_ack(&mut self, flow: &FlowState) {
        self.timed_out = false;
        self.out_of_order = f64::from(flow.out_of_order);
        self.measure_rtt(flow);
        self.measure_rate(flow);
        if self.round.end.is_before(flow.highest_delivered) {
            self.end_round(flow);
        }
        self.change_phase(flow);
    }

    /// A loss report also tells which packets arrived.
    fn on_loss(&mut self, _: Seq, flow: &FlowState) {
        self.on_ack(flow);
    }

    fn on_timeout(&mut self, _: &FlowState) {
        self.timed_out = true;
    }

    fn send_period(&self) -> Time {
        // Until a queue was full the window alone paces on a path shorter than a SYN interval: late ACKs do not slow
        // down the sender there.
        let shortest = if self.window_ceiling.is_finite() {
            SYN_INTERVAL
        } else {
            Time::ZERO
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

    /// Returns the state at each SYN interval on a path without a queue that carries 10,000 packets per second.
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
    fn sends_at_the_delivery_rate_with_two_bdp_in_flight() {
        let bbr = bbr_at_steady_state();
        assert!(matches!(bbr.phase, Phase::Cruise(_)));
        let expected = 10_000.0 * PACING_MARGIN * bbr.gain();
        assert!((rate(&bbr) / expected - 1.0).abs() < 0.01, "{}", rate(&bbr));
        assert_eq!(
            bbr.window(),
            2128,
            "two BDP, and packets without an ACK yet"
        );
    }

    #[test]
    fn startup_sends_faster_than_the_delivery_rate() {
        let mut bbr = Bbr::new(FIRST, 25_600, 7);
        (1..15).for_each(|syn| bbr.on_ack(&flow_state(syn, 10_000.0)));
        assert_eq!(bbr.phase, Phase::Startup);
        assert!(rate(&bbr) > 28_000.0, "{}", rate(&bbr));
    }

    #[test]
    fn many_losses_shrink_the_window_and_few_do_not() {
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

    /// The packets that arrived after a missing one are acknowledged together, when the missing one arrives.
    #[test]
    fn held_back_acks_do_not_raise_the_rate() {
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
    fn probes_the_rtt_after_ten_seconds_without_a_minimum() {
        let mut bbr = bbr_at_steady_state();
        let delayed = |syn| FlowState {
            rtt_sample: Some(Time::from_millis(150)),
            ..flow_state(syn, 10_000.0)
        };
        let mut syns = 300..2000;
        let probed_at = syns.find(|syn| {
            bbr.on_ack(&delayed(*syn));
            bbr.phase == Phase::ProbeRtt
        });
        assert!(
            probed_at.is_some_and(|syn| (1290..1310).contains(&syn)),
            "{probed_at:?}"
        );
        assert_eq!(bbr.window(), 4);
        syns.take(40).for_each(|syn| bbr.on_ack(&delayed(syn)));
        assert_eq!(bbr.base_rtt(), Time::from_millis(150));
    }
}
