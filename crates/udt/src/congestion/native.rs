// SPDX-License-Identifier: MIT OR Apache-2.0
//! UDT's native rate control (draft-gg-udt-03 §6.3, UDT4 ccc.cpp). It increases additively by the unused link
//! capacity, once each SYN interval. A loss decreases the rate by an eighth, and again at random within a loss period.

use super::{Control, FlowState, SYN_INTERVAL};
use crate::packet::number::Seq;
use longhaul_units::Time;

/// Factor by which a loss lengthens the sending period (§6.3).
const DECREASE: f64 = 1.125;
/// Maximum number of decreases in one loss period: 1.125⁵ is 1.8 (UDT4's code; the draft has no bound).
const DECREASES_MAX: u32 = 5;
/// Initial window, and packets that the window has beyond what the rate needs (UDT4's code; the note of 2009 says 2).
const WINDOW_FIRST: f64 = 16.0;
/// Minimum increase in packets per SYN interval, where no capacity is unused (UDT4's code: 0.01; the draft: 1/MSS).
const INCREASE_MIN: f64 = 0.01;
/// Initial sending period in seconds: as fast as possible.
const PERIOD_FIRST: f64 = 1e-6;

/// Default congestion control of UDT4.
#[derive(Debug, Clone)]
pub struct Native {
    /// Sending period in seconds.
    period: f64,
    /// Congestion window and its maximum, in packets.
    window: f64,
    window_max: f64,
    /// Packets that arrived after a missing one.
    out_of_order: f64,
    slow_start: bool,
    last_decision: Time,
    acked: Seq,
    /// Whether a loss was reported since the last decision.
    has_loss: bool,
    /// Last sent packet at the last decrease, and the sending period before that.
    decreased_at: Seq,
    period_before: f64,
    /// Decreases in this loss period, loss reports in it, their mean over loss periods, and the number of reports per
    /// further decrease.
    decreases: u32,
    reports: u32,
    reports_mean: f64,
    decrease_every: u32,
    random: u64,
}

impl Native {
    /// Creates the control for a connection whose initial sequence number is `first` and whose window is at most
    /// `window_max` packets. `seed` decides which of several loss reports count, so that flows do not decrease at the
    /// same time.
    #[must_use]
    pub fn new(first: Seq, window_max: u32, seed: u64) -> Self {
        Self {
            period: PERIOD_FIRST,
            window: WINDOW_FIRST,
            window_max: f64::from(window_max),
            out_of_order: 0.0,
            slow_start: true,
            last_decision: Time::ZERO,
            acked: first,
            has_loss: false,
            decreased_at: first.minus(1),
            period_before: PERIOD_FIRST,
            decreases: 0,
            reports: 0,
            reports_mean: 0.0,
            decrease_every: 1,
            random: seed | 1,
        }
    }

    /// Sets the rate after slow start: the arrival rate if it is known, else the window per round trip. (UDT4's code
    /// inverts that quotient.)
    fn leave_slow_start(&mut self, flow: &FlowState) {
        self.slow_start = false;
        self.period = match flow.arrival_rate {
            rate if rate > 0.0 => 1.0 / rate,
            _ => (flow.rtt + SYN_INTERVAL).as_secs_f64() / self.window,
        };
    }

    /// Returns the increase in packets per SYN interval (§6.3): ten times the unused capacity gives ten times the
    /// increase.
    fn increase(&self, flow: &FlowState) -> f64 {
        let mut unused = flow.capacity - 1.0 / self.period;
        // After a decrease it counts at most a ninth of the link, so that other flows get their share.
        if self.period > self.period_before && flow.capacity / 9.0 < unused {
            unused = flow.capacity / 9.0;
        }
        if unused <= 0.0 {
            return INCREASE_MIN;
        }
        let mss = f64::from(flow.mss);
        let magnitude = 10_f64.powf((unused * mss * 8.0).log10().ceil());
        (magnitude * 1.5e-6 / mss).max(INCREASE_MIN)
    }

    fn decrease(&mut self, flow: &FlowState) {
        self.period *= DECREASE;
        self.decreased_at = flow.sent;
    }

    /// Returns a random number from 1 to `max` (xorshift64*).
    fn random_up_to(&mut self, max: u32) -> u32 {
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        let random = self.random.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32;
        1 + ((random * u64::from(max)) >> 32) as u32
    }
}

impl Control for Native {
    fn on_ack(&mut self, flow: &FlowState) {
        self.out_of_order = f64::from(flow.out_of_order);
        if flow.now.since(self.last_decision) < SYN_INTERVAL {
            return;
        }
        self.last_decision = flow.now;
        if self.slow_start {
            self.window += f64::from(flow.acked.since(self.acked).max(0));
            self.acked = flow.acked;
            if self.window > self.window_max {
                self.leave_slow_start(flow);
            }
            return;
        }
        if flow.arrival_rate > 0.0 {
            let round = (flow.rtt + SYN_INTERVAL).as_secs_f64();
            self.window = flow.arrival_rate * round + WINDOW_FIRST;
        }
        if std::mem::take(&mut self.has_loss) {
            return;
        }
        let syn = SYN_INTERVAL.as_secs_f64();
        let increase = self.increase(flow);
        self.period = self.period * syn / (self.period * increase + syn);
    }

    fn on_loss(&mut self, first: Seq, flow: &FlowState) {
        self.out_of_order = f64::from(flow.out_of_order);
        if self.slow_start {
            self.leave_slow_start(flow);
            if flow.arrival_rate > 0.0 {
                return;
            }
        }
        self.has_loss = true;
        if self.decreased_at.is_before(first) {
            self.period_before = self.period;
            self.decrease(flow);
            self.reports_mean =
                (self.reports_mean * 0.875 + f64::from(self.reports) * 0.125).ceil();
            (self.reports, self.decreases) = (1, 1);
            self.decrease_every = self.random_up_to(self.reports_mean.max(1.0) as u32);
            return;
        }
        self.reports += 1;
        if self.decreases < DECREASES_MAX && self.reports.is_multiple_of(self.decrease_every) {
            self.decreases += 1;
            self.decrease(flow);
        }
    }

    fn on_timeout(&mut self, flow: &FlowState) {
        if self.slow_start {
            self.leave_slow_start(flow);
        }
    }

    fn send_period(&self) -> Time {
        Time::from_secs_f64(self.period)
    }

    fn window(&self) -> u32 {
        (self.window + self.out_of_order).min(self.window_max) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: Seq = Seq::new(100);

    fn flow_state(millis: u64, acked: u32) -> FlowState {
        FlowState {
            now: Time::from_millis(millis),
            acked: FIRST.plus(acked),
            sent: FIRST.plus(acked + 1000),
            highest_delivered: FIRST.plus(acked),
            delivered: acked.into(),
            out_of_order: 0,
            lost: 0,
            in_flight: 1000,
            app_limited: false,
            rtt: Time::from_millis(90),
            rtt_sample: None,
            arrival_rate: 10_000.0,
            capacity: 80_000.0,
            mss: 1500,
            flow_window: 25_600,
        }
    }

    fn native_after_slow_start() -> Native {
        let mut native = Native::new(FIRST, 25_600, 7);
        native.on_loss(FIRST.plus(5), &flow_state(0, 10));
        native
    }

    #[test]
    fn slow_start_grows_by_acked_packets_until_a_loss() {
        let mut native = Native::new(FIRST, 25_600, 7);
        native.on_ack(&flow_state(10, 500));
        native.on_ack(&flow_state(15, 900));
        assert_eq!(native.window(), 516, "once a SYN interval");
        native.on_ack(&flow_state(20, 1000));
        assert_eq!(
            (native.window(), native.send_period()),
            (1016, Time::from_micros(1))
        );
        native.on_loss(FIRST.plus(1001), &flow_state(21, 1000));
        assert_eq!(native.send_period(), Time::from_micros(100));
        native.on_ack(&flow_state(30, 1100));
        assert_eq!(native.window(), 1016);
    }

    #[test]
    fn a_full_window_ends_slow_start_at_the_window_per_round_trip() {
        let mut native = Native::new(FIRST, 1000, 7);
        let unknown = FlowState {
            arrival_rate: 0.0,
            ..flow_state(10, 2000)
        };
        native.on_ack(&unknown);
        // 2016 packets in 100 ms.
        assert_eq!(native.send_period(), Time::from_secs_f64(0.1 / 2016.0));
    }

    /// 70,000 packets/s are unused: 840 Mbit/s. The power of ten above that is 10⁹, so the increase is 1 packet per
    /// SYN interval.
    #[test]
    fn the_rate_grows_by_the_unused_capacity() {
        let mut native = native_after_slow_start();
        native.on_ack(&flow_state(10, 100));
        let rate = 1.0 / native.send_period().as_secs_f64();
        assert!((rate - 10_100.0).abs() < 1.0, "{rate}");
        let full = FlowState {
            capacity: 10_000.0,
            ..flow_state(20, 200)
        };
        native.on_ack(&full);
        let grown = 1.0 / native.send_period().as_secs_f64() - rate;
        assert!(
            (grown - 1.0).abs() < 0.2,
            "0.01 packets a SYN interval: {grown}"
        );
    }

    #[test]
    fn a_loss_takes_an_eighth_and_skips_the_next_increase() {
        let mut native = native_after_slow_start();
        native.on_loss(FIRST.plus(2000), &flow_state(5, 100));
        assert_eq!(native.send_period(), Time::from_nanos(112_500));
        native.on_ack(&flow_state(10, 110));
        assert_eq!(native.send_period(), Time::from_nanos(112_500));
        native.on_ack(&flow_state(20, 120));
        assert!(native.send_period() < Time::from_nanos(112_500));
    }

    #[test]
    fn one_loss_period_at_most_halves_the_rate() {
        let mut native = native_after_slow_start();
        native.on_loss(FIRST.plus(2000), &flow_state(5, 100));
        for _ in 0..100 {
            native.on_loss(FIRST.plus(500), &flow_state(6, 100));
        }
        let period = native.send_period().as_secs_f64();
        let expected = 1e-4 * DECREASE.powi(DECREASES_MAX as i32);
        assert!((period / expected - 1.0).abs() < 1e-3, "{period}");
    }
}
