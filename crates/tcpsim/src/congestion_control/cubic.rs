// SPDX-License-Identifier: MIT OR Apache-2.0
//! CUBIC with HyStart as Linux has it (net/ipv4/tcp_cubic.c), for comparison with a kernel's.
//!
//! Differences from the kernel:
//!
//! - A jiffy is 4 ms (HZ=250) of the simulated clock.
//! - A HyStart round is a count of packets, because a congestion control sees no sequence numbers here.
//! - The end of slow start that HyStart finds in `pkts_acked` takes effect in `cong_avoid` of the same ACK.

use super::{
    Ack, AckSample, CongestionControl, State, Window,
    reno::{additive_increase, grow_in_slow_start},
};
use longhaul_units::Time;

/// Denominator of `BETA`: beta = 717/1024.
const BETA_SCALE: u64 = 1024;
const BETA: u64 = 717;
/// `bic_scale`·10: C = 0.4 in units of 2⁻¹⁰.
const CUBE_RTT_SCALE: u64 = 410;
const CUBE_FACTOR: u64 = (1 << 40) / CUBE_RTT_SCALE;
/// Unit of time as a power of two: 2⁻¹⁰ s.
const TIME_SHIFT: u32 = 10;
/// `beta_scale`: eight times the round trips for a packet of growth, where Reno backs off as CUBIC does.
const RENO_SCALE: u64 = 8 * (BETA_SCALE + BETA) / 3 / (BETA_SCALE - BETA);
/// Jiffies a second.
const HZ: u64 = 250;

const HYSTART_LOW_WINDOW: u32 = 16;
const HYSTART_SAMPLES: u32 = 8;
const HYSTART_ACK_GAP: Time = Time::from_millis(2);
const HYSTART_DELAY_MIN: u64 = 4_000_000;
const HYSTART_DELAY_MAX: u64 = 16_000_000;

/// CUBIC (RFC 9438) in Linux's fixed-point arithmetic.
#[derive(Debug, Clone)]
pub struct Cubic {
    cnt: u32,
    last_max_cwnd: u32,
    last_cwnd: u32,
    last_time: u64,
    origin_point: u32,
    k: u64,
    delay_min: Time,
    epoch_start: u64,
    ack_cnt: u32,
    reno_cwnd: u32,
    hystart: HyStart,
    paced: bool,
}

#[derive(Debug, Clone, Default)]
struct HyStart {
    /// Whether the end of slow start was found.
    found: bool,
    /// Whether the end was found with this ACK. A slow start that begins again later has no such end.
    ends: bool,
    /// Packets acknowledged so far.
    acked: u64,
    /// Value of `acked` at which the round ends.
    round_end: u64,
    round_start: Time,
    last_ack: Time,
    rtt_min: Time,
    samples: u32,
}

impl Cubic {
    /// Creates the state for a sender that is `paced` or not. HyStart tolerates longer ACK trains from a paced
    /// sender.
    #[must_use]
    pub fn new(paced: bool) -> Self {
        Self {
            cnt: 0,
            last_max_cwnd: 0,
            last_cwnd: 0,
            last_time: 0,
            origin_point: 0,
            k: 0,
            delay_min: Time::ZERO,
            epoch_start: 0,
            ack_cnt: 0,
            reno_cwnd: 0,
            hystart: HyStart::default(),
            paced,
        }
    }

    fn reset(&mut self, now: Time, packets_out: u32) {
        let hystart = std::mem::take(&mut self.hystart);
        *self = Self::new(self.paced);
        self.hystart.acked = hystart.acked;
        self.hystart.begin_round(now, packets_out);
    }

    /// Sets `cnt`, the ACKed packets for each packet of growth (`bictcp_update`).
    fn update(&mut self, cwnd: u32, acked: u32, now: Time) {
        let jiffies = jiffies(now);
        self.ack_cnt = self.ack_cnt.saturating_add(acked);
        if self.last_cwnd == cwnd && jiffies - self.last_time <= HZ / 32 {
            return;
        }
        if self.epoch_start == 0 || jiffies != self.last_time {
            self.last_cwnd = cwnd;
            self.last_time = jiffies;
            if self.epoch_start == 0 {
                self.begin_epoch(cwnd, acked, jiffies);
            }
            self.cnt = self.cubic_cnt(cwnd, jiffies);
        }
        self.apply_reno_friendliness(cwnd);
        self.cnt = self.cnt.max(2);
    }

    fn begin_epoch(&mut self, cwnd: u32, acked: u32, jiffies: u64) {
        self.epoch_start = jiffies;
        self.ack_cnt = acked;
        self.reno_cwnd = cwnd;
        let shortfall = self.last_max_cwnd.saturating_sub(cwnd);
        self.k = cubic_root(CUBE_FACTOR * u64::from(shortfall));
        self.origin_point = self.last_max_cwnd.max(cwnd);
    }

    /// Returns `cnt` for growth along the cubic curve.
    fn cubic_cnt(&self, cwnd: u32, jiffies: u64) -> u32 {
        let delay_min = self.delay_min.as_nanos().div_ceil(1_000_000_000 / HZ);
        let t = ((jiffies - self.epoch_start + delay_min) << TIME_SHIFT) / HZ;
        let offset = t.abs_diff(self.k);
        let delta = (CUBE_RTT_SCALE * offset * offset * offset) >> (10 + 3 * TIME_SHIFT);
        let origin = u64::from(self.origin_point);
        let target = if t < self.k {
            origin.saturating_sub(delta)
        } else {
            origin + delta
        };
        let more = target.saturating_sub(u64::from(cwnd));
        let cnt = match more {
            0 => cwnd.saturating_mul(100),
            more => (u64::from(cwnd) / more) as u32,
        };
        if self.last_max_cwnd == 0 {
            cnt.min(20)
        } else {
            cnt
        }
    }

    /// Lowers `cnt` where Reno's window would be larger (RFC 9438 section 4.3).
    fn apply_reno_friendliness(&mut self, cwnd: u32) {
        let per_packet = ((u64::from(cwnd) * RENO_SCALE) >> 3).max(1) as u32;
        // The kernel's loop has a strict "greater than".
        let more = self.ack_cnt.saturating_sub(1) / per_packet;
        self.ack_cnt -= more * per_packet;
        self.reno_cwnd += more;
        if self.reno_cwnd > cwnd {
            self.cnt = self.cnt.min(cwnd / (self.reno_cwnd - cwnd));
        }
    }

    /// Returns the delay that ACK aggregation may add (`hystart_ack_delay`): four of the largest super-packets
    /// at the pacing rate, 1 ms at most.
    fn ack_delay(cwnd: u32, rtt: Time) -> Time {
        const GSO_PACKETS: u64 = 45;
        let pacing = 2 * u64::from(cwnd);
        Time::from_nanos(rtt.as_nanos() * 4 * GSO_PACKETS / pacing).min(Time::from_millis(1))
    }

    /// Finds the end of slow start by the length of an ACK train or by the RTT's increase (`hystart_update`).
    fn detect_slow_start_end(&mut self, window: &Window, sample: &AckSample, rtt: Time) {
        let before = self.hystart.acked - u64::from(sample.pkts_acked);
        if self.hystart.acked > self.hystart.round_end {
            let out =
                window.cwnd - (self.hystart.acked - before).min(u64::from(window.cwnd)) as u32;
            self.hystart.begin_round(sample.now, out);
        }
        if window.cwnd < HYSTART_LOW_WINDOW {
            return;
        }
        let mut longest = self.delay_min + Self::ack_delay(window.cwnd, rtt);
        if !self.paced {
            longest = Time::from_nanos(longest.as_nanos() / 2);
        }
        let hystart = &mut self.hystart;
        if sample.now.since(hystart.last_ack) <= HYSTART_ACK_GAP {
            hystart.last_ack = sample.now;
            hystart.found |= sample.now.since(hystart.round_start) > longest;
        }
        hystart.rtt_min = hystart.rtt_min.min(rtt);
        if hystart.samples < HYSTART_SAMPLES {
            hystart.samples += 1;
        } else {
            let eighth = self.delay_min.as_nanos() / 8;
            let threshold = eighth.clamp(HYSTART_DELAY_MIN, HYSTART_DELAY_MAX);
            hystart.found |= hystart.rtt_min > self.delay_min + Time::from_nanos(threshold);
        }
    }
}

impl HyStart {
    /// Starts a round with `packets_out` in flight after this ACK (`bictcp_hystart_reset`).
    fn begin_round(&mut self, now: Time, packets_out: u32) {
        self.round_start = now;
        self.last_ack = now;
        self.round_end = self.acked + u64::from(packets_out);
        self.rtt_min = Time::MAX;
        self.samples = 0;
    }
}

/// Returns the ticks of the kernel's clock. The first tick is 1, because an epoch of 0 means that there is
/// none.
fn jiffies(now: Time) -> u64 {
    1 + now.as_nanos() / (1_000_000_000 / HZ)
}

/// Returns the exact cube root. The kernel's is an approximation with an error below 0.2 %.
fn cubic_root(a: u64) -> u64 {
    (a as f64).cbrt() as u64
}

impl CongestionControl for Cubic {
    fn init(&mut self, window: &mut Window, now: Time) {
        self.reset(now, window.cwnd);
    }

    fn ssthresh(&mut self, window: &Window, _now: Time) -> u32 {
        let cwnd = u64::from(window.cwnd);
        self.epoch_start = 0;
        self.last_max_cwnd = if window.cwnd < self.last_max_cwnd {
            (cwnd * (BETA_SCALE + BETA) / (2 * BETA_SCALE)) as u32
        } else {
            window.cwnd
        };
        ((cwnd * BETA / BETA_SCALE) as u32).max(2)
    }

    fn cong_avoid(&mut self, window: &mut Window, ack: &Ack) {
        if std::mem::take(&mut self.hystart.ends) && window.in_slow_start() {
            window.ssthresh = window.cwnd;
        }
        let acked = grow_in_slow_start(window, ack);
        if acked > 0 {
            self.update(window.cwnd, acked, ack.now);
            additive_increase(window, self.cnt.max(1), acked);
        }
    }

    fn pkts_acked(&mut self, window: &Window, sample: &AckSample) {
        self.hystart.acked += u64::from(sample.pkts_acked);
        let Some(rtt) = sample.rtt else { return };
        // Round trips within a second after a recovery are not the path's.
        if self.epoch_start > 0 && jiffies(sample.now) - self.epoch_start < HZ {
            return;
        }
        if self.delay_min == Time::ZERO || rtt < self.delay_min {
            self.delay_min = rtt;
        }
        if !self.hystart.found && window.in_slow_start() {
            self.detect_slow_start_end(window, sample, rtt);
            self.hystart.ends = self.hystart.found;
        }
    }

    fn set_state(&mut self, window: &Window, state: State, now: Time) {
        if state == State::Loss {
            self.reset(now, window.cwnd);
        }
    }
}
