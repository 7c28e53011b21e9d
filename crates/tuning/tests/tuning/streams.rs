// SPDX-License-Identifier: MIT OR Apache-2.0
//! Parallel streams of simulated TCP under DECP's controller.
//!
//! The controller has the same interface to them as `longhaul decp` has to a kernel. Windows,
//! round trips and counts go in; caps come out and are applied as the eBPF program applies them.

use longhaul_netem::{LinkConfig, Schedule, Setting};
use longhaul_tcpsim::{
    congestion_control::{CongestionControl, State, cubic::Cubic, reno::Reno},
    receiver::AckPolicy,
    sender,
    simulation::{FlowConfig, Path, Simulation},
};
use longhaul_tuning::decp::model::{Change, Controller, Observation, Settings};
use longhaul_units::Time;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// Payload of a packet, and the packet on the wire.
const PAYLOAD: u32 = 1448;
const PACKET: f64 = 1500.0;
/// Sampling interval.
const SAMPLE_INTERVAL: Time = Time::from_millis(50);
/// Interval within which all of iperf3's streams begin to send data, in microseconds.
const JITTER_US: u64 = 40_000;

/// Experiment: parallel streams, and other flows that the controller does not observe.
#[derive(Debug, Clone)]
pub(crate) struct Experiment {
    pub(crate) rate_mbit: u64,
    /// Length of the queue in bandwidth–delay products.
    pub(crate) queue: f64,
    /// Share of packets lost at random, 0 to 1.
    pub(crate) loss: f64,
    /// Time at which the random losses end.
    pub(crate) loss_ends: Option<Time>,
    /// Whether the streams use CUBIC instead of Reno. Other flows always use Reno.
    pub(crate) cubic: bool,
    pub(crate) streams: Vec<Stream>,
    /// Flows that the controller does not observe.
    pub(crate) uncontrolled: Vec<Stream>,
    pub(crate) seconds: u64,
    pub(crate) seed: u64,
}

/// Stream: its start, and its number of packets if it is finite.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stream {
    pub(crate) at: Time,
    pub(crate) packets: Option<u64>,
}

pub(crate) const RTT: Time = Time::from_millis(350);
/// Time that iperf3 takes to open one stream. It opens them one after another, and announces each to the other end.
const OPEN_TIME: Time = RTT;

impl Experiment {
    /// Starts streams as iperf3 does: all are opened first, then all begin within some milliseconds. They use Reno.
    pub(crate) fn iperf3(rate_mbit: u64, queue: f64, streams: usize, seconds: u64) -> Self {
        Self {
            rate_mbit,
            queue,
            loss: 0.0,
            loss_ends: None,
            cubic: false,
            streams: vec![Stream::at(OPEN_TIME * (streams as u64 + 1)); streams],
            uncontrolled: Vec::new(),
            seconds,
            seed: 7,
        }
    }

    fn flows(&self) -> Vec<FlowConfig> {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(self.seed);
        let mut flow = |stream: &Stream, cubic: bool| FlowConfig {
            start: stream.at + Time::from_micros(random.random_range(0..JITTER_US)),
            extra_rtt: Time::ZERO,
            sender: sender::SenderConfig {
                mss: PAYLOAD,
                packets: stream.packets,
                ..sender::SenderConfig::default()
            },
            acks: AckPolicy::default(),
            control: control(cubic),
        };
        let streams = self.streams.iter().map(|one| (one, self.cubic));
        let uncontrolled = self.uncontrolled.iter().map(|one| (one, false));
        streams
            .chain(uncontrolled)
            .map(|(one, cubic)| flow(one, cubic))
            .collect()
    }

    fn path(&self) -> Path {
        let rate = format!("{}mbit", self.rate_mbit);
        let queue = format!("{}p", (self.bdp() * self.queue) as u64);
        let loss = longhaul_netem::grammar::share_text(self.loss);
        let shape = |settings: &[(&str, &str)]| {
            let mut shape = LinkConfig::default();
            for (key, value) in settings {
                shape.apply(Setting::parse(key, value).expect("a setting"));
            }
            shape
        };
        Path {
            forward: shape(&[
                ("delay", "175ms"),
                ("rate", &rate),
                ("queue", &queue),
                ("loss", &loss),
            ]),
            reverse: shape(&[("delay", "175ms")]),
            forward_changes: self.loss_schedule(),
            seed: self.seed,
            ..Path::default()
        }
    }

    /// Returns the schedule that ends the random losses. Until then, they end some slow starts early.
    fn loss_schedule(&self) -> Schedule {
        let mut schedule = Schedule::default();
        if let Some(end) = self.loss_ends {
            schedule.add(end, Setting::parse("loss", "0").expect("a setting"));
        }
        schedule
    }

    /// Returns the bandwidth–delay product in packets.
    pub(crate) fn bdp(&self) -> f64 {
        self.rate_mbit as f64 * 1e6 / 8.0 / PACKET * RTT.as_secs_f64()
    }

    /// Returns the time at which the first stream has data to send.
    pub(crate) fn start(&self) -> Time {
        let all = self.streams.iter().chain(&self.uncontrolled);
        all.map(|stream| stream.at).min().unwrap_or(Time::ZERO)
    }

    /// Runs for `seconds` after the first stream has data to send, under a controller if `settings` are given;
    /// `after` runs after each sample.
    pub(crate) fn run(
        &self,
        settings: Option<Settings>,
        mut after: impl FnMut(&mut Running),
    ) -> Outcome {
        let mut running = Running {
            simulation: Simulation::new(self.path(), self.flows()),
            controller: settings.map(Controller::new),
            caps: vec![None; self.streams.len()],
            pending: vec![None; self.streams.len()],
            experiment: self.clone(),
        };
        let mut now = Time::ZERO;
        while now < self.start() + Time::from_secs(self.seconds) {
            now += SAMPLE_INTERVAL;
            running.simulation.run_until(now);
            running.sample();
            after(&mut running);
        }
        running.outcome()
    }
}

impl Stream {
    pub(crate) fn at(at: Time) -> Self {
        Self { at, packets: None }
    }
}

fn control(cubic: bool) -> Box<dyn CongestionControl> {
    if cubic {
        Box::new(Cubic::new(false))
    } else {
        Box::new(Reno)
    }
}

/// Running experiment.
pub(crate) struct Running {
    pub(crate) simulation: Simulation,
    pub(crate) controller: Option<Controller>,
    pub(crate) caps: Vec<Option<u32>>,
    /// Changes that are not yet applied to their sockets.
    pending: Vec<Option<Change>>,
    experiment: Experiment,
}

/// Result of a run.
#[derive(Debug, Clone)]
pub(crate) struct Outcome {
    /// Share of the link's capacity that all flows use, uncontrolled ones too.
    pub(crate) utilisation: f64,
    pub(crate) jain: f64,
    pub(crate) slowest_to_fastest: f64,
    pub(crate) retransmitted: u64,
    /// Packets that uncontrolled flows delivered.
    pub(crate) uncontrolled_packets: u64,
}

impl Running {
    fn sample(&mut self) {
        let now = self.simulation.now();
        let seen: Vec<_> = (0..self.caps.len()).map(|at| self.observe(at)).collect();
        let Some(controller) = &mut self.controller else {
            return;
        };
        for change in controller.on_sample(now, &seen) {
            self.pending[change.id as usize] = Some(change);
        }
        for at in 0..self.caps.len() {
            self.apply_change(at);
        }
    }

    /// Returns the observation that the kernel would report of a stream.
    fn observe(&mut self, at: usize) -> Observation {
        let (now, data_start) = (self.simulation.now(), self.experiment.streams[at].at + RTT);
        let announced = u32::from(now >= OPEN_TIME * (at as u64 + 1));
        let sender = self.simulation.sender(at);
        let window = sender.window();
        let counters = sender.counters();
        Observation {
            id: at as u64,
            window_segments: if sender.state() > State::Disorder {
                window.ssthresh
            } else {
                window.cwnd
            },
            window_max_segments: u32::MAX,
            slow_start: window.in_slow_start() && sender.state() <= State::Disorder,
            mss_bytes: PAYLOAD,
            delivered_segments: counters.delivered as u32 + announced,
            retransmits: counters.retransmitted as u32,
            rtt: sender.srtt(),
            rtt_min: sender.rtt_min(),
            cap: self.caps[at],
            // Observed as bulk at the sample after the first data.
            bulk: now > data_start + SAMPLE_INTERVAL && !sender.is_done(),
        }
    }

    /// Applies the pending change as `window_cap.bpf.c` does.
    fn apply_change(&mut self, at: usize) {
        let now = self.simulation.now();
        let Some(change) = self.pending[at] else {
            return;
        };
        let sender = self.simulation.sender(at);
        if sender.state() > State::Disorder {
            return;
        }
        let window = *sender.window();
        match change.cap {
            None => {
                if self.caps[at].take().is_some() {
                    sender.unclamp_cwnd(now);
                }
                self.pending[at] = None;
            }
            Some(cap) => {
                let clamp = self.caps[at].unwrap_or(u32::MAX);
                let grows_by_slow_start =
                    change.slow_start_to_cap && window.cwnd < cap && window.ssthresh < cap;
                let lowers = cap < window.cwnd || (window.in_slow_start() && cap < window.ssthresh);
                let raises = clamp < cap && window.cwnd >= clamp;
                if grows_by_slow_start || (cap != clamp && (lowers || raises)) {
                    sender.clamp_cwnd(cap);
                    self.caps[at] = Some(cap);
                }
                self.pending[at] = Some(Change {
                    slow_start_to_cap: false,
                    ..change
                });
            }
        }
    }

    pub(crate) fn windows(&mut self) -> Vec<u32> {
        (0..self.caps.len())
            .map(|at| self.simulation.sender(at).window().cwnd)
            .collect()
    }

    fn outcome(&mut self) -> Outcome {
        let streams = self.caps.len();
        let acked: Vec<f64> = (0..self.simulation.flows())
            .map(|at| self.simulation.sender(at).acked() as f64)
            .collect();
        let (controlled, uncontrolled) = acked.split_at(streams);
        let sum: f64 = controlled.iter().sum();
        let squares: f64 = controlled.iter().map(|x| x * x).sum();
        let capacity_packets =
            self.experiment.rate_mbit as f64 * 1e6 / 8.0 / PACKET * self.experiment.seconds as f64;
        let uncontrolled: f64 = uncontrolled.iter().sum();
        Outcome {
            utilisation: (sum + uncontrolled) / capacity_packets,
            jain: sum * sum / squares / streams as f64,
            slowest_to_fastest: controlled.iter().copied().fold(f64::INFINITY, f64::min)
                / controlled.iter().copied().fold(0.0, f64::max),
            retransmitted: (0..streams)
                .map(|at| self.simulation.sender(at).counters().retransmitted)
                .sum(),
            uncontrolled_packets: uncontrolled as u64,
        }
    }
}
