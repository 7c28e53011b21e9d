// SPDX-License-Identifier: MIT OR Apache-2.0
//! Flows that share a path: what each gets of it, how alike they are, and how soon a late one has its share.

mod testbed;

use std::fmt::Write as _;
use testbed::{Wire, config, open_as};
use udt::{Connection, Mode, Seq, congestion::Native, packet::Packet};
use units::Time;

/// Flows from one end to the other over the same two wires.
struct Crowd {
    now: Time,
    flows: Vec<Flow>,
    wires: [Wire; 2],
    buffer: Vec<u8>,
}

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
    fn join(&mut self) {
        let number = self.flows.len() as u32;
        let control =
            |first, window| Box::new(Native::new(first, window, u64::from(number) + 7)) as _;
        let names = [2 * number + 2, 2 * number + 3];
        let first = Seq::new(5000 * number);
        self.flows.push(Flow {
            ends: open_as(config(Mode::Stream), first, &control, names, self.now),
            received: 0,
        });
    }

    fn run(&mut self, until: Time) {
        while self.now < until {
            let mut next = until;
            for flow in &mut self.flows {
                while flow.ends[0].room() >= 64 {
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

/// Jain's index: 1 if all are alike, 1/n if one has all (RFC 5166 §2.3).
fn jain(rates: &[f64]) -> f64 {
    let sum: f64 = rates.iter().sum();
    let squares: f64 = rates.iter().map(|rate| rate * rate).sum();
    sum * sum / (rates.len() as f64 * squares)
}

#[test]
fn flows_that_begin_together_share_a_path() {
    let mut table = String::from("RTT ms  flows  Mbit/s  Jain\n");
    for (rtt, delay) in [(10, "5ms"), (80, "40ms")] {
        for count in [1, 2, 4, 8] {
            let mut crowd = Crowd::new(&[("rate", "100mbit"), ("delay", delay)]);
            (0..count).for_each(|_| crowd.join());
            crowd.run(Time::from_secs(30));
            let rates = crowd.measure(Time::from_secs(30));
            let sum: f64 = rates.iter().sum();
            writeln!(table, "{rtt:6}  {count:5}  {sum:6.1}  {:.2}", jain(&rates)).unwrap();
        }
    }
    insta::assert_snapshot!(table);
}

#[test]
fn a_flow_that_comes_late_gets_its_share() {
    let mut crowd = Crowd::new(&[("rate", "100mbit"), ("delay", "20ms")]);
    crowd.join();
    crowd.run(Time::from_secs(20));
    crowd.join();
    let mut table = String::from("seconds  first  second\n");
    for second in [5, 10, 20, 40, 80] {
        let time = second - crowd.now.since(Time::from_secs(20)).as_secs_f64() as u64;
        let rates = crowd.measure(Time::from_secs(time));
        writeln!(table, "{second:7}  {:5.1}  {:6.1}", rates[0], rates[1]).unwrap();
    }
    insta::assert_snapshot!(table);
}
