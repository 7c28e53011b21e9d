// SPDX-License-Identifier: MIT OR Apache-2.0
//! Flows that share a path: what each gets of it, how alike they are, and how soon a late one has its share.

use crate::testbed::{Wire, config, open_as};
use longhaul_stats::fairness::jain;
use longhaul_udt::{
    Connection, Seq,
    congestion::{Bbr, Control, Native},
    packet::Packet,
};
use longhaul_units::Time;
use std::fmt::Write as _;

/// Flows from one end to the other over the same two wires.
struct Crowd {
    now: Time,
    flows: Vec<Flow>,
    wires: [Wire; 2],
    buffer: Vec<u8>,
}

/// Makes a rate control, from a seed last.
type Make = fn(Seq, u32, u64) -> Box<dyn Control>;

const NATIVE: Make = |first, window, seed| Box::new(Native::new(first, window, seed));
const BBR: Make = |first, window, seed| Box::new(Bbr::new(first, window, seed));

struct Flow {
    ends: [Connection; 2],
    received: u64,
}

impl Crowd {
    fn new(path: &[(&str, &str)]) -> Self {
        Self {
            now: Time::ZERO,
            flows: Vec::new(),
            wires: [Wire::new(path, &[], 1), Wire::new(path, &[], 2)],
            buffer: vec![0; 64 << 10],
        }
    }

    /// Another flow from now on.
    fn join(&mut self, make: Make) {
        let number = self.flows.len() as u32;
        let control = |first, window| make(first, window, u64::from(number) + 7);
        let names = [2 * number + 2, 2 * number + 3];
        let first = Seq::new(5000 * number);
        self.flows.push(Flow {
            ends: open_as(config(), first, &control, names, self.now),
            received: 0,
        });
    }

    fn run(&mut self, until: Time) {
        while self.now < until {
            let mut next = until;
            for flow in &mut self.flows {
                while flow.ends[0].send_buffer_free() >= 64 {
                    flow.ends[0].write(&self.buffer);
                }
                for (end, wire) in flow.ends.iter_mut().zip(&mut self.wires) {
                    loop {
                        let mut datagram = wire.buffer();
                        if !end.transmit(self.now, &mut datagram) {
                            wire.free.push(datagram);
                            break;
                        }
                        wire.send(self.now, datagram);
                    }
                    next = end.deadline().map_or(next, |deadline| next.min(deadline));
                }
            }
            for wire in &mut self.wires {
                next = wire
                    .line
                    .next_deadline()
                    .map_or(next, |deadline| next.min(deadline));
            }
            self.now = next.max(self.now + Time::from_nanos(1));
            self.deliver();
        }
    }

    fn deliver(&mut self) {
        for (wire, end) in [(0, 1), (1, 0)] {
            self.wires[wire].poll(self.now);
            for datagram in std::mem::take(&mut self.wires[wire].arrived) {
                let packet = Packet::read(&datagram).unwrap();
                let flow = &mut self.flows[packet.destination as usize / 2 - 1];
                flow.ends[end].handle(&packet, self.now);
                self.wires[wire].free.push(datagram);
            }
        }
        for flow in &mut self.flows {
            flow.received += flow.ends[1].read(&mut self.buffer) as u64;
        }
    }

    /// Mbit/s of each in this time.
    fn measure(&mut self, time: Time) -> Vec<f64> {
        let before: Vec<u64> = self.flows.iter().map(|flow| flow.received).collect();
        self.run(self.now + time);
        let rate = |(flow, before): (&Flow, u64)| {
            (flow.received - before) as f64 * 8e-6 / time.as_secs_f64()
        };
        self.flows.iter().zip(before).map(rate).collect()
    }
}

/// What flows that begin together get of a path.
fn together(make: Make) -> String {
    let mut table = String::from("RTT ms  flows  Mbit/s  Jain  ms waited\n");
    for (rtt, delay) in [(10, "5ms"), (80, "40ms")] {
        for count in [1, 2, 4, 8] {
            let mut crowd = Crowd::new(&[("rate", "100mbit"), ("delay", delay)]);
            (0..count).for_each(|_| crowd.join(make));
            crowd.run(Time::from_secs(20));
            crowd.wires[0].taken = (0, Time::ZERO);
            let rates = crowd.measure(Time::from_secs(20));
            let sum: f64 = rates.iter().sum();
            let (packets, taken) = crowd.wires[0].taken;
            let waited = taken.as_secs_f64() * 1e3 / packets as f64 - f64::from(rtt) / 2.0;
            let alike = jain(&rates).unwrap_or(1.0);
            writeln!(
                table,
                "{rtt:6}  {count:5}  {sum:6.1}  {alike:.2}  {waited:9.1}"
            )
            .unwrap();
        }
    }
    table
}

/// The rates of one flow and of another that comes 20 s later.
fn late(delay: &str, first: Make, second: Make) -> String {
    let mut crowd = Crowd::new(&[("rate", "100mbit"), ("delay", delay)]);
    crowd.join(first);
    crowd.run(Time::from_secs(20));
    crowd.join(second);
    let mut table = String::from("seconds  first  second\n");
    for second in [5, 10, 20, 40] {
        let time = second - crowd.now.since(Time::from_secs(20)).as_secs_f64() as u64;
        let rates = crowd.measure(Time::from_secs(time));
        writeln!(table, "{second:7}  {:5.1}  {:6.1}", rates[0], rates[1]).unwrap();
    }
    table
}

#[test]
fn native_flows_that_begin_together_share_a_path() {
    insta::assert_snapshot!(together(NATIVE));
}

#[test]
fn bbr_flows_that_begin_together_share_a_path() {
    insta::assert_snapshot!(together(BBR));
}

#[test]
fn a_native_flow_that_comes_late_gets_its_share() {
    insta::assert_snapshot!(late("20ms", NATIVE, NATIVE));
}

#[test]
fn a_bbr_flow_that_comes_late_gets_its_share() {
    insta::assert_snapshot!(late("20ms", BBR, BBR));
}

/// A native flow and one of BBR, whichever comes first.
#[test]
fn both_controls_live_on_one_path() {
    let mut table = String::new();
    for delay in ["5ms", "20ms", "90ms"] {
        writeln!(table, "{delay} each way, native first").unwrap();
        table += &late(delay, NATIVE, BBR);
        writeln!(table, "{delay} each way, BBR first").unwrap();
        table += &late(delay, BBR, NATIVE);
    }
    insta::assert_snapshot!(table);
}
