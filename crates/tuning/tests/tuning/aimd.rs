// SPDX-License-Identifier: MIT OR Apache-2.0
//! Parallel bulk AIMD flows through one queue, as a fluid in small steps of simulated time.
//!
//! What stands between the law and it is what stands between `longhaul decp` and a kernel: windows,
//! round trips and counts go in, caps come out and are put on as the eBPF program puts them on.

use longhaul_tuning::decp::model::{Change, Law, Observation};
use longhaul_units::Time;
use rand::RngExt;
use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;
use std::collections::VecDeque;

pub(crate) const MSS: f64 = 1460.0;
const STEP_S: f64 = 0.01;

/// The bottleneck, and who uses it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Path {
    pub(crate) rate_bps: f64,
    pub(crate) rtt_s: f64,
    /// The queue before it, in bandwidth–delay products.
    pub(crate) buffer_bdp: f64,
    pub(crate) flows: usize,
    /// Losses that no queue causes, for each segment.
    pub(crate) loss: f64,
    /// What hosts add to each round trip at most, as a share of it: no queue, and not always there.
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
    begins_s: f64,
    window: f64,
    ssthresh: f64,
    cap: Option<u32>,
    delivered: f64,
    retransmits: u32,
    unreported: u32,
    /// Losses are answered a round trip later, and once.
    answers_s: Option<f64>,
    recovered_s: f64,
}

/// The state of all flows at one time.
pub(crate) struct Fluid {
    pub(crate) path: Path,
    pub(crate) now_s: f64,
    flows: Vec<Flow>,
    random: Xoshiro256PlusPlus,
    /// Round trips, as senders will have measured them.
    rtts: VecDeque<f64>,
    pub(crate) losses: u64,
}

impl Fluid {
    pub(crate) fn new(path: Path, seed: u64) -> Self {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let flows = (0..path.flows).map(|_| Flow {
            begins_s: random.random_range(0.0..2.0 * path.rtt_s),
            window: 10.0,
            ssthresh: f64::INFINITY,
            cap: None,
            delivered: 0.0,
            retransmits: 0,
            unreported: 0,
            answers_s: None,
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
        let begun = self.flows.iter().filter(|flow| flow.begins_s <= self.now_s);
        begun.map(|flow| flow.window).sum()
    }

    pub(crate) fn caps(&self) -> Vec<Option<u32>> {
        self.flows.iter().map(|flow| flow.cap).collect()
    }

    pub(crate) fn delivered(&self) -> Vec<f64> {
        self.flows.iter().map(|flow| flow.delivered).collect()
    }

    /// One step of all flows.
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
            if self.flows[at].begins_s <= self.now_s {
                let share = self.flows[at].window / total;
                self.flows[at].delivered += carried * share;
                self.suffer(at, rtt, carried * share, overflow);
                self.flows[at].grow(rtt);
            }
        }
        self.now_s += STEP_S;
    }

    /// A segment is lost at random, or with the burst in which it meets the full queue.
    fn suffer(&mut self, at: usize, rtt: f64, sent: f64, overflow: f64) {
        let burst = overflow * (1.0 - overflow).max(0.1) + self.path.loss;
        let spared = (-(burst * sent)).exp();
        let flow = &mut self.flows[at];
        if self.random.random::<f64>() > spared {
            let lost = (overflow * sent).ceil().max(1.0);
            flow.unreported += lost as u32;
            self.losses += lost as u64;
            if flow.answers_s.is_none() && self.now_s >= flow.recovered_s {
                flow.answers_s = Some(self.now_s + rtt);
            }
        }
        if flow.answers_s.is_some_and(|answers| answers <= self.now_s) {
            flow.answers_s = None;
            flow.retransmits += std::mem::take(&mut flow.unreported);
            flow.recovered_s = self.now_s + rtt;
            flow.window = (flow.window / 2.0).max(2.0);
            flow.ssthresh = flow.window;
        }
    }

    /// What the kernel says of all flows.
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
            bulk: flow.begins_s <= self.now_s,
        });
        seen.collect()
    }

    /// Runs for so long, under a law that looks every 0.05 s if there is one. `after` sees every look.
    pub(crate) fn run(
        &mut self,
        seconds: f64,
        mut law: Option<&mut Law>,
        mut after: impl FnMut(&Self),
    ) {
        let until = self.now_s + seconds;
        let mut look_s = self.now_s;
        while self.now_s < until {
            self.step();
            if let Some(law) = law.as_deref_mut().filter(|_| self.now_s >= look_s) {
                look_s += 0.05;
                self.obey(law);
                after(self);
            }
        }
    }

    fn obey(&mut self, law: &mut Law) {
        for change in law.look(Time::from_secs_f64(self.now_s), &self.observe()) {
            self.flows[change.id as usize].put(change);
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

    /// As `window_cap.bpf.c` puts it on a socket.
    fn put(&mut self, change: Change) {
        let Some(segments) = change.cap else {
            self.cap = None;
            return;
        };
        let limit = f64::from(segments);
        let lowers = limit < self.window.max(self.ssthresh);
        let raises = self
            .cap
            .is_some_and(|old| old < segments && self.window >= f64::from(old));
        let fills = change.fill && limit > self.window;
        if lowers || raises || fills {
            self.cap = change.cap;
            self.ssthresh = limit;
        }
    }
}
