// SPDX-License-Identifier: MIT OR Apache-2.0
//! Simulated flow: runs it, taps it at both ends, and records what only the simulation knows.

use crate::simulated_capture::{PacketFormat, SimulatedCapture};
use longhaul_flow::{
    Flows, Sink,
    bin::Bin,
    record::Flow,
    segment::{CapturePoint, Segment},
};
use longhaul_netem::{LinkConfig, Schedule, Setting};
use longhaul_tcpsim::{
    congestion_control::{CongestionControl, reno::Reno},
    receiver::AckPolicy,
    sender::{Backoff, Counters, SenderConfig},
    simulation::{FlowConfig, Path, Simulation},
};
use longhaul_units::{Bytes, Time};

pub(crate) const MSS: u64 = 1448;
/// Interval between samples of the truth.
const SAMPLE_INTERVAL: Time = Time::from_millis(1);

/// One flow over one path.
pub(crate) struct Case {
    forward: Vec<(&'static str, &'static str)>,
    reverse: Vec<(&'static str, &'static str)>,
    changes: Vec<&'static str>,
    sender: SenderConfig,
    acks: AckPolicy,
    control: Option<Box<dyn CongestionControl>>,
    writes: Vec<(f64, u64)>,
    seconds: f64,
}

/// True state at one time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sample {
    pub(crate) at_ns: u64,
    pub(crate) cwnd: u64,
    pub(crate) in_flight: u64,
    /// Bytes queued before the bottleneck.
    pub(crate) queue: u64,
}

/// Segments and ground truth of a run.
pub(crate) struct GroundTruth {
    pub(crate) at_sender: Vec<Segment>,
    pub(crate) at_receiver: Vec<Segment>,
    pub(crate) samples: Vec<Sample>,
    pub(crate) counters: Counters,
    pub(crate) backoffs: Vec<Backoff>,
    pub(crate) lost: u64,
    pub(crate) acked_packets: u64,
}

/// Returns a Reno flow of `seconds` over a path of `delay` each way.
pub(crate) fn case(
    delay: &'static str,
    forward: &[(&'static str, &'static str)],
    seconds: f64,
) -> Case {
    Case {
        forward: [&[("delay", delay)], forward].concat(),
        reverse: vec![("delay", delay)],
        changes: Vec::new(),
        sender: SenderConfig::default(),
        acks: AckPolicy {
            gro_interval: Time::ZERO,
            ..AckPolicy::default()
        },
        control: None,
        writes: Vec::new(),
        seconds,
    }
}

impl Case {
    pub(crate) fn control(mut self, control: impl CongestionControl + 'static) -> Self {
        self.control = Some(Box::new(control));
        self
    }

    pub(crate) fn reverse(mut self, key: &'static str, value: &'static str) -> Self {
        self.reverse.push((key, value));
        self
    }

    pub(crate) fn change(mut self, text: &'static str) -> Self {
        self.changes.push(text);
        self
    }

    pub(crate) fn receive_window(mut self, bytes: u64) -> Self {
        self.sender.receive_window = Bytes::new(bytes);
        self
    }

    pub(crate) fn paced(mut self) -> Self {
        self.sender.paced = true;
        self
    }

    pub(crate) fn acks(mut self, packets: u32, gro_interval: Time) -> Self {
        self.acks.packets = packets;
        self.acks.gro_interval = gro_interval;
        self
    }

    /// Sets the application's writes as times in seconds and numbers of packets; it sends nothing else.
    pub(crate) fn writes(mut self, writes: impl IntoIterator<Item = (f64, u64)>) -> Self {
        self.writes = writes.into_iter().collect();
        self.sender.packets = Some(0);
        self
    }

    pub(crate) fn packets(mut self, packets: u64) -> Self {
        self.sender.packets = Some(packets);
        self
    }

    pub(crate) fn run(self) -> GroundTruth {
        self.run_with_format(false)
    }

    pub(crate) fn run_with_super_packets(self) -> GroundTruth {
        self.run_with_format(true)
    }

    fn run_with_format(self, super_packets: bool) -> GroundTruth {
        let format = PacketFormat {
            mss: MSS as u32,
            window: self.sender.receive_window.get().min(1 << 29),
            super_packets,
        };
        let end = Time::from_secs_f64(self.seconds);
        let mut writes = self.writes.into_iter().peekable();
        let path = Path {
            forward: shape(&self.forward),
            reverse: shape(&self.reverse),
            forward_changes: schedule(&self.changes),
            seed: 1,
            ..Path::default()
        };
        let flow = FlowConfig {
            start: Time::ZERO,
            extra_rtt: Time::ZERO,
            sender: self.sender,
            acks: self.acks,
            control: self.control.unwrap_or_else(|| Box::new(Reno)),
        };
        let mut simulation =
            Simulation::with_observer(path, vec![flow], SimulatedCapture::new(format));
        let mut samples = Vec::new();
        while simulation.now() < end {
            while let Some((_, packets)) =
                writes.next_if(|(at, _)| Time::from_secs_f64(*at) <= simulation.now())
            {
                simulation.write(0, packets);
            }
            simulation.run_until(simulation.now() + SAMPLE_INTERVAL);
            samples.push(sample(&mut simulation));
        }
        finish(simulation, samples)
    }
}

fn finish(mut simulation: Simulation<SimulatedCapture>, samples: Vec<Sample>) -> GroundTruth {
    let drops = simulation.drops();
    let capture = simulation.observer_mut();
    let alone =
        |seen: Vec<(usize, Segment)>| seen.into_iter().map(|(_, segment)| segment).collect();
    let (at_sender, at_receiver) = (
        alone(capture.take_at_sender()),
        alone(capture.take_at_receiver()),
    );
    let sender = simulation.sender(0);
    GroundTruth {
        at_sender,
        at_receiver,
        samples,
        counters: sender.counters(),
        backoffs: sender.take_backoffs(),
        acked_packets: sender.acked(),
        lost: drops.loss + drops.overflow + drops.aqm,
    }
}

fn sample(simulation: &mut Simulation<SimulatedCapture>) -> Sample {
    let (at_ns, queue) = (simulation.now().as_nanos(), simulation.backlog_bytes());
    let sender = simulation.sender(0);
    Sample {
        at_ns,
        queue,
        cwnd: u64::from(sender.window().cwnd),
        in_flight: sender.in_flight(),
    }
}

impl GroundTruth {
    /// Returns the flow as analysed at the sender's end.
    pub(crate) fn flow(&self) -> Flow {
        analyse(&self.at_sender)
    }

    /// Returns the flow as seen by a capture point `before` the receiver: data passes earlier than at the receiver,
    /// ACKs later. This assumes no queue on that part of the path.
    pub(crate) fn flow_before_receiver(&self, before: Time) -> Flow {
        let before = before.as_nanos();
        let mut segments = self.at_receiver.clone();
        for segment in &mut segments {
            segment.at_ns = if segment.from_low {
                segment.at_ns - before
            } else {
                segment.at_ns + before
            };
        }
        segments.sort_by_key(|segment| segment.at_ns);
        analyse(&segments)
    }

    /// Returns the first time at which `so` holds, in seconds.
    pub(crate) fn first_time(&self, so: impl Fn(&Sample) -> bool) -> f64 {
        let sample = self.samples.iter().find(|sample| so(sample));
        sample.expect("it is so at some time").at_ns as f64 / 1e9
    }

    /// Returns the start of the last standing queue before `end`, in seconds.
    pub(crate) fn queue_start(&self, end: f64) -> f64 {
        let before = |sample: &&Sample| sample.at_ns as f64 / 1e9 <= end;
        let empty = self
            .samples
            .iter()
            .take_while(before)
            .filter(|s| s.queue == 0)
            .last();
        empty.map_or(0.0, |sample| sample.at_ns as f64 / 1e9)
    }

    /// Returns the times of the sender's reactions to losses, in seconds.
    pub(crate) fn loss_times(&self) -> Vec<f64> {
        self.backoffs.iter().map(|b| b.at.as_secs_f64()).collect()
    }
}

/// Sink that keeps the last flow, which is the only one.
#[derive(Default)]
struct Last(Option<Flow>);

impl Sink for Last {
    fn receive_bin(&mut self, _: u64, _: bool, _: usize, _: u64, _: &Bin) {}

    fn receive_flow(&mut self, flow: Flow) {
        self.0 = Some(flow);
    }
}

pub(crate) fn analyse(segments: &[Segment]) -> Flow {
    analyse_with(segments, longhaul_flow::Settings::default())
}

pub(crate) fn analyse_with(segments: &[Segment], settings: longhaul_flow::Settings) -> Flow {
    let (mut flows, mut last) = (Flows::new(settings), Last::default());
    for (number, segment) in (0..).zip(segments) {
        let key = SimulatedCapture::key(0);
        flows.process_segment(number, CapturePoint(0), &key, segment, &mut last);
    }
    flows.finish(&mut last);
    last.0.expect("a flow")
}

pub(crate) fn shape(settings: &[(&str, &str)]) -> LinkConfig {
    let mut shape = LinkConfig::default();
    for (key, value) in settings {
        shape.apply(Setting::parse(key, value).unwrap());
    }
    shape.check().unwrap();
    shape
}

fn schedule(changes: &[&str]) -> Schedule {
    let mut schedule = Schedule::default();
    for change in changes {
        schedule.add_text(change).unwrap();
    }
    schedule
}
