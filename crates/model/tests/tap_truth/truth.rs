// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs a flow, taps it at both ends, and writes down what only the simulation knows.

use model::{
    link::{Schedule, Setting, Shape},
    tap::{
        segment::Segment,
        simulated::{Look, SimulatedTap},
    },
    tcp::{
        congestion_control::{CongestionControl, State},
        receiver::AckPolicy,
        reno::Reno,
        sender::{Backoff, Counters, Settings},
        simulation::{FlowSettings, Path, Simulation},
    },
};
use units::{Bytes, Time};

pub const MSS: u64 = 1448;
/// How often the truth is written down.
const EVERY: Time = Time::from_millis(1);

/// One flow over one path.
pub struct Case {
    forth: Vec<(&'static str, &'static str)>,
    back: Vec<(&'static str, &'static str)>,
    changes: Vec<&'static str>,
    sender: Settings,
    acks: AckPolicy,
    control: Option<Box<dyn CongestionControl>>,
    writes: Vec<(f64, u64)>,
    seconds: f64,
}

/// What is known at a time.
#[derive(Debug, Clone, Copy)]
pub struct Sample {
    pub at_ns: u64,
    pub cwnd: u64,
    pub slow_start: bool,
    pub in_flight: u64,
    pub state: State,
    /// Bytes before the bottleneck.
    pub queue: u64,
}

/// A run, and all that is known of it.
pub struct Truth {
    pub at_sender: Vec<Segment>,
    pub at_receiver: Vec<Segment>,
    pub samples: Vec<Sample>,
    pub counters: Counters,
    pub backoffs: Vec<Backoff>,
    pub lost: u64,
    pub acked_packets: u64,
}

/// A Reno flow of `seconds` over a path of `delay` each way.
pub fn case(delay: &'static str, forth: &[(&'static str, &'static str)], seconds: f64) -> Case {
    Case {
        forth: [&[("delay", delay)], forth].concat(),
        back: vec![("delay", delay)],
        changes: Vec::new(),
        sender: Settings::default(),
        acks: AckPolicy {
            aggregate: Time::ZERO,
            ..AckPolicy::default()
        },
        control: None,
        writes: Vec::new(),
        seconds,
    }
}

impl Case {
    pub fn control(mut self, control: impl CongestionControl + 'static) -> Self {
        self.control = Some(Box::new(control));
        self
    }

    pub fn back(mut self, key: &'static str, value: &'static str) -> Self {
        self.back.push((key, value));
        self
    }

    pub fn change(mut self, text: &'static str) -> Self {
        self.changes.push(text);
        self
    }

    pub fn receive_window(mut self, bytes: u64) -> Self {
        self.sender.receive_window = Bytes::new(bytes);
        self
    }

    pub fn paced(mut self) -> Self {
        self.sender.paced = true;
        self
    }

    pub fn acks(mut self, packets: u32, aggregate: Time) -> Self {
        self.acks.packets = packets;
        self.acks.aggregate = aggregate;
        self
    }

    /// The application has so many packets at these times (in seconds), and no more.
    pub fn writes(mut self, writes: impl IntoIterator<Item = (f64, u64)>) -> Self {
        self.writes = writes.into_iter().collect();
        self.sender.packets = Some(0);
        self
    }

    pub fn packets(mut self, packets: u64) -> Self {
        self.sender.packets = Some(packets);
        self
    }

    pub fn run(self) -> Truth {
        self.run_as(false)
    }

    pub fn run_with_super_packets(self) -> Truth {
        self.run_as(true)
    }

    fn run_as(self, super_packets: bool) -> Truth {
        let look = Look {
            mss: MSS as u32,
            window: self.sender.receive_window.get().min(1 << 29),
            super_packets,
        };
        let end = Time::from_secs_f64(self.seconds);
        let mut writes = self.writes.into_iter().peekable();
        let path = Path {
            forth: shape(&self.forth),
            back: shape(&self.back),
            forth_changes: schedule(&self.changes),
            seed: 1,
            ..Path::default()
        };
        let flow = FlowSettings {
            start: Time::ZERO,
            extra_rtt: Time::ZERO,
            sender: self.sender,
            acks: self.acks,
            control: self.control.unwrap_or_else(|| Box::new(Reno)),
        };
        let mut simulation = Simulation::watched(path, vec![flow], SimulatedTap::new(look));
        let mut samples = Vec::new();
        while simulation.now() < end {
            while let Some((_, packets)) =
                writes.next_if(|(at, _)| Time::from_secs_f64(*at) <= simulation.now())
            {
                simulation.write(0, packets);
            }
            simulation.run_until(simulation.now() + EVERY);
            samples.push(sample(&mut simulation));
        }
        finish(simulation, samples)
    }
}

fn finish(mut simulation: Simulation<SimulatedTap>, samples: Vec<Sample>) -> Truth {
    let drops = simulation.drops();
    let tap = simulation.watch();
    let alone =
        |seen: Vec<(usize, Segment)>| seen.into_iter().map(|(_, segment)| segment).collect();
    let (at_sender, at_receiver) = (alone(tap.take_at_sender()), alone(tap.take_at_receiver()));
    let sender = simulation.sender(0);
    Truth {
        at_sender,
        at_receiver,
        samples,
        counters: sender.counters(),
        backoffs: sender.take_backoffs(),
        acked_packets: sender.acked(),
        lost: drops.loss + drops.overflow + drops.rule,
    }
}

fn sample(simulation: &mut Simulation<SimulatedTap>) -> Sample {
    let (at_ns, queue) = (simulation.now().as_nanos(), simulation.backlog_bytes());
    let sender = simulation.sender(0);
    Sample {
        at_ns,
        queue,
        cwnd: u64::from(sender.window().cwnd),
        slow_start: sender.window().in_slow_start(),
        in_flight: sender.in_flight(),
        state: sender.state(),
    }
}

impl Truth {
    /// The first time at which something is so, in seconds.
    pub fn first(&self, so: impl Fn(&Sample) -> bool) -> f64 {
        let sample = self.samples.iter().find(|sample| so(sample));
        sample.expect("it is so at some time").at_ns as f64 / 1e9
    }

    /// From when on a queue stands until `end`, in seconds.
    pub fn queue_stands_from(&self, end: f64) -> f64 {
        let before = |sample: &&Sample| sample.at_ns as f64 / 1e9 <= end;
        let empty = self
            .samples
            .iter()
            .take_while(before)
            .filter(|s| s.queue == 0)
            .last();
        empty.map_or(0.0, |sample| sample.at_ns as f64 / 1e9)
    }

    /// When losses are answered, in seconds.
    pub fn losses(&self) -> Vec<f64> {
        self.backoffs.iter().map(|b| b.at.as_secs_f64()).collect()
    }
}

pub fn shape(settings: &[(&str, &str)]) -> Shape {
    let mut shape = Shape::default();
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
