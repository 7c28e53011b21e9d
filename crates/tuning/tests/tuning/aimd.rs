// SPDX-License-Identifier: MIT OR Apache-2.0
//! Parallel bulk AIMD flows through one queue, as a fluid in small steps of simulated time.
//!
//! The controller has the same interface to it as `longhaul decp` has to a kernel. Windows,
//! round trips and counts go in; caps come out and are applied as the eBPF program applies them.

use longhaul_tuning::decp::model::{Change, Controller, Observation};
use longhaul_units::Time;
use rand::RngExt;
use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;
use std::collections::VecDeque;

pub(crate) const MSS: f64 = 1460.0;
const STEP_S: f64 = 0.01;

/// Bottleneck and number of flows.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Path {
    pub(crate) rate_bps: f64,
    pub(crate) rtt_s: f64,
    /// The queue before it, in bandwidth–delay products.
    pub(crate) buffer_bdp: f64,
    pub(crate) flows: usize,
    /// Probability that a segment is lost at random, not by a full queue.
    pub(crate) loss: f64,
    /// Greatest delay that hosts add to a round trip, as a share of it: random, and not queueing delay.
    pub(crate) noise: f64,
}

impl Path {
    fn segments_per_s(&self) -> f64 {
        self.rate_bps / 8.0 / MSS
    }

    /// Segments that the wire holds.
    pub(crate) fn bdp(&self) -> f64 {
        self.segments_per_s() * self.rtt_s
    }
}

#[derive(Debug, Clone)]
struct Flow {
    start_s: f64,
    window: f64,
    ssthresh: f64,
    cap: Option<u32>,
    delivered: f64,
    retransmits: u32,
    unreported: u32,
    /// Time at which the window is reduced: once, a round trip after the loss.
    reduction_due_s: Option<f64>,
    recovered_s: f64,
}

/// The state of all flows at one time.
pub(crate) struct FluidModel {
    pub(crate) path: Path,
    pub(crate) now_s: f64,
    flows: Vec<Flow>,
    random: Xoshiro256PlusPlus,
    /// Round-trip times of the last round trip, of which senders measure the mean.
    rtts: VecDeque<f64>,
    pub(crate) losses: u64,
}

impl FluidModel {
    pub(crate) fn new(path: Path, seed: u64) -> Self {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let flows = (0..path.flows).map(|_| Flow {
            start_s: random.random_range(0.0..2.0 * path.rtt_s),
            window: 10.0,
            ssthresh: f64::INFINITY,
            cap: None,
            delivered: 0.0,
            retransmits: 0,
            unreported: 0,
            reduction_due_s: None,
            recovered_s: 0.0,
        });
        Self {
            flows: flows.collect(),
            path,
            now_s: 0.0,
            random,
            rtts: VecDeque::new(),
            losses: 0,
        }
    }

    fn total(&self) -> f64 {
        let begun = self.flows.iter().filter(|flow| flow.start_s <= self.now_s);
        begun.map(|flow| flow.window).sum()
    }

    pub(crate) fn caps(&self) -> Vec<Option<u32>> {
        self.flows.iter().map(|flow| flow.cap).collect()
    }

    pub(crate) fn delivered(&self) -> Vec<f64> {
        self.flows.iter().map(|flow| flow.delivered).collect()
    }

    /// Advances all flows by one step.
    pub(crate) fn step(&mut self) {
        let bdp = self.path.bdp();
        let total = self.total();
        let room = self.path.buffer_bdp * bdp;
        let queue = (total - bdp).clamp(0.0, room);
        let noise = self.path.noise * self.random.random::<f64>();
        let rtt = self.path.rtt_s * (1.0 + noise) + queue / self.path.segments_per_s();
        self.rtts.push_back(rtt);
        if self.rtts.len() as f64 * STEP_S > self.path.rtt_s {
            self.rtts.pop_front();
        }
        let carried = (total / rtt).min(self.path.segments_per_s()) * STEP_S;
        let overflow = (total - bdp - room).max(0.0) / total.max(1.0);
        for at in 0..self.flows.len() {
            if self.flows[at].start_s <= self.now_s {
                let share = self.flows[at].window / total;
                self.flows[at].delivered += carried * share;
                self.lose_segments(at, rtt, carried * share, overflow);
                self.flows[at].grow(rtt);
            }
        }
        self.now_s += STEP_S;
    }

    /// Loses segments at random, or in a burst at the full queue; reduces the window a round trip later.
    fn lose_segments(&mut self, at: usize, rtt: f64, sent: f64, overflow: f64) {
        let burst = overflow * (1.0 - overflow).max(0.1) + self.path.loss;
        let spared = (-(burst * sent)).exp();
        let flow = &mut self.flows[at];
        if self.random.random::<f64>() > spared {
            let lost = (overflow * sent).ceil().max(1.0);
            flow.unreported += lost as u32;
            self.losses += lost as u64;
            if flow.reduction_due_s.is_none() && self.now_s >= flow.recovered_s {
                flow.reduction_due_s = Some(self.now_s + rtt);
            }
        }
        if flow
            .reduction_due_s
            .is_some_and(|answers| answers <= self.now_s)
        {
            flow.reduction_due_s = None;
            flow.retransmits += std::mem::take(&mut flow.unreported);
            flow.recovered_s = self.now_s + rtt;
            flow.window = (flow.window / 2.0).max(2.0);
            flow.ssthresh = flow.window;
        }
    }

    /// Returns the observations that the kernel would report of all flows.
    pub(crate) fn observe(&self) -> Vec<Observation> {
        let rtt = self.rtts.iter().sum::<f64>() / self.rtts.len().max(1) as f64;
        let seen = self.flows.iter().enumerate().map(|(at, flow)| Observation {
            id: at as u64,
            window_segments: flow.window as u32,
            window_max_segments: u32::MAX,
            slow_start: flow.window < flow.ssthresh,
            mss_bytes: MSS as u32,
            delivered_segments: flow.delivered as u32,
            retransmits: flow.retransmits,
            rtt: Time::from_secs_f64(rtt),
            rtt_min: Time::from_secs_f64(self.path.rtt_s),
            cap: flow.cap,
            bulk: flow.start_s <= self.now_s,
        });
        seen.collect()
    }

    /// Runs for `seconds`, under a controller with a sample every 0.05 s if there is one. `after` runs after each sample.
    pub(crate) fn run(
        &mut self,
        seconds: f64,
        mut controller: Option<&mut Controller>,
        mut after: impl FnMut(&Self),
    ) {
        let until = self.now_s + seconds;
        let mut sample_s = self.now_s;
        while self.now_s < until {
            self.step();
            if let Some(controller) = controller.as_deref_mut().filter(|_| self.now_s >= sample_s) {
                sample_s += 0.05;
                self.apply(controller);
                after(self);
            }
        }
    }

    fn apply(&mut self, controller: &mut Controller) {
        for change in controller.on_sample(Time::from_secs_f64(self.now_s), &self.observe()) {
            self.flows[change.id as usize].apply_cap(change);
        }
    }
}

impl Flow {
    /// RFC 5681: twice a round trip below ssthresh, by a segment above; never above the cap.
    fn grow(&mut self, rtt: f64) {
        let rounds = STEP_S / rtt;
        if self.window < self.ssthresh {
            self.window = (self.window * 2.0_f64.powf(rounds)).min(self.ssthresh);
        } else {
            self.window += rounds;
        }
        if let Some(cap) = self.cap {
            self.window = self.window.min(f64::from(cap));
        }
    }

    /// Applies a change as `window_cap.bpf.c` does to a socket.
    fn apply_cap(&mut self, change: Change) {
        let Some(segments) = change.cap else {
            self.cap = None;
            return;
        };
        let limit = f64::from(segments);
        let lowers = limit < self.window.max(self.ssthresh);
        let raises = self
            .cap
            .is_some_and(|old| old < segments && self.window >= f64::from(old));
        let grows_by_slow_start = change.slow_start_to_cap && limit > self.window;
        if lowers || raises || grows_by_slow_start {
            self.cap = change.cap;
            self.ssthresh = limit;
        }
    }
}
