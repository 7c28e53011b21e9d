// SPDX-License-Identifier: MIT OR Apache-2.0
//! Our arithmetic, call by call, on flows of Linux's own congestion controls (`vectors/README.md`):
//! told to do as Linux it must give the same window, the same ssthresh and the same state after each
//! call, without tolerance. As it is by default, it says how far that is from Linux.

mod counterpart;
mod layout;
mod vector;

use bpf::math::{Algorithm, Connection, algorithm};
use counterpart::{COUNTERPARTS, Counterpart, JIFFY_US};
use layout::Layout;
use model::tcp::congestion_control::{Ack, AckSample, CongestionControl, Window};
use units::Time;
use vector::{Call, Vector};

/// Our connection in the place of Linux's.
struct Replay<'a> {
    counterpart: &'a Counterpart,
    layout: Layout,
    connection: Connection,
    prior_cwnd: u32,
}

/// What a call came to.
struct Outcome {
    window: Window,
    /// Of `ssthresh` and `undo_cwnd`.
    returned: Option<u32>,
}

fn values(algorithm: Algorithm, told: &[(&str, u32)]) -> Vec<u32> {
    let value = |name, initial| {
        told.iter()
            .find(|(other, _)| *other == name)
            .map_or(initial, |it| it.1)
    };
    algorithm
        .parameters()
        .map(|it| value(it.name, it.initial))
        .collect()
}

impl<'a> Replay<'a> {
    fn new(counterpart: &'a Counterpart, told: &[(&str, u32)]) -> Self {
        let algorithm = algorithm(counterpart.algorithm).unwrap();
        Self {
            counterpart,
            layout: Layout::of(counterpart.algorithm, counterpart.layout),
            connection: algorithm.connection(&values(algorithm, told)),
            prior_cwnd: 0,
        }
    }

    /// Takes Linux's private state over.
    fn start_from(&mut self, call: &Call) {
        for member in self.counterpart.members {
            let value = member
                .unit
                .convert(call.private[member.column], call.jiffies);
            self.layout
                .set(self.connection.state_mut(), member.name, value);
        }
    }

    /// Time passes by the jiffy, as Linux's does.
    fn replay(&mut self, call: &Call) -> Outcome {
        let (mut window, now) = (call.before, Time::from_micros(call.jiffies * JIFFY_US));
        let mut returned = None;
        match call.kind.as_str() {
            "init" => self.connection.init(&mut window, now),
            "pkts_acked" => self.connection.pkts_acked(&window, &sample(call, now)),
            "cong_avoid" => self.connection.cong_avoid(&mut window, &ack(call, now)),
            "ssthresh" => {
                self.prior_cwnd = window.cwnd;
                returned = Some(self.connection.ssthresh(&window, now));
            }
            "set_state" => self
                .connection
                .set_state(&window, vector::state(&call.arg), now),
            "undo_cwnd" => {
                returned = Some(self.connection.undo_cwnd(&window, self.prior_cwnd, now))
            }
            "cwnd_event" | "ack" => {}
            other => panic!("{other}"),
        }
        Outcome { window, returned }
    }

    /// What is not as Linux has it, in words.
    fn differences(&mut self, call: &Call, outcome: &Outcome) -> Vec<String> {
        let mut found = Vec::new();
        if outcome.window != call.after {
            found.push(format!("{:?} for {:?}", outcome.window, call.after));
        }
        if outcome
            .returned
            .is_some_and(|returned| returned != call.number())
        {
            found.push(format!("returned {:?} for {}", outcome.returned, call.arg));
        }
        for member in self
            .counterpart
            .members
            .iter()
            .filter(|member| member.checked)
        {
            let wanted = member
                .unit
                .convert(call.private[member.column], call.jiffies);
            let ours = self.layout.get(self.connection.state_mut(), member.name);
            if ours != wanted {
                found.push(format!("{} {ours} for {wanted}", member.name));
            }
        }
        found
    }
}

fn sample(call: &Call, now: Time) -> AckSample {
    AckSample {
        now,
        pkts_acked: call.number(),
        rtt: u64::try_from(call.rtt_us).ok().map(Time::from_micros),
        in_flight: call.packets_out,
        state: call.state,
    }
}

fn ack(call: &Call, now: Time) -> Ack {
    Ack {
        now,
        acked: call.number(),
        in_flight: call.packets_out,
        cwnd_limited: call.limited,
    }
}

/// The vectors of one of Linux's congestion controls.
fn vectors(control: &str) -> Vec<Vector> {
    let prefix = format!("{control}-");
    let ours = |path: &std::path::PathBuf| {
        path.file_name()
            .unwrap()
            .to_str()
            .unwrap()
            .starts_with(&prefix)
    };
    let found: Vec<_> = vector::paths()
        .iter()
        .filter(|path| ours(path))
        .map(|path| Vector::read(path))
        .collect();
    assert!(
        !found.is_empty(),
        "no vector of {control}: `make oracle` records them"
    );
    found
}

/// Rows that are not as Linux's, of all.
fn replay_as_linux(counterpart: &Counterpart, vector: &Vector) -> (usize, Vec<String>) {
    let mut replay = Replay::new(counterpart, counterpart.linux);
    let mut excerpt = None;
    let mut differences = Vec::new();
    for (row, call) in vector.calls.iter().enumerate() {
        let outcome = replay.replay(call);
        if excerpt != Some(call.excerpt) {
            excerpt = Some(call.excerpt);
            replay.start_from(call);
            continue;
        }
        let found = replay.differences(call, &outcome);
        if !found.is_empty() {
            let at = format!(
                "{} row {row}, {} µs, {}",
                vector.name, call.time_us, call.kind
            );
            differences.push(format!("{at}: {}", found.join("; ")));
            replay.start_from(call);
        }
    }
    (vector.calls.len(), differences)
}

fn does_as_linux(control: &str) {
    let counterpart = COUNTERPARTS
        .iter()
        .find(|it| it.control == control)
        .unwrap();
    for vector in vectors(control) {
        assert_eq!(vector.control, control);
        let (rows, differences) = replay_as_linux(counterpart, &vector);
        eprintln!("| {} | {rows} | {} |", vector.name, differences.len());
        let first = differences
            .iter()
            .take(5)
            .cloned()
            .collect::<Vec<_>>()
            .join("\n");
        assert!(
            differences.is_empty(),
            "{} of {rows} rows differ:\n{first}",
            differences.len()
        );
    }
}

#[test]
fn trc_grows_and_shrinks_as_reno() {
    does_as_linux("reno");
}

#[test]
fn scalable_does_as_linux() {
    does_as_linux("scalable");
}

#[test]
fn hstcp_does_as_linux() {
    does_as_linux("highspeed");
}

#[test]
fn htcp_does_as_linux() {
    does_as_linux("htcp");
}

#[test]
fn bic_linux_does_as_linux() {
    does_as_linux("bic");
}
