// SPDX-License-Identifier: MIT OR Apache-2.0
//! Replay of flows of Linux's own congestion controls (`vectors/README.md`) with our arithmetic, call by
//! call. With Linux's parameters, window, ssthresh and state must be equal after each call. With the
//! defaults, the difference from Linux is measured.

mod counterpart;
mod layout;
mod vector;

use counterpart::{COUNTERPARTS, Counterpart, JIFFY_US};
use layout::Layout;
use longhaul_congestion::math::{Algorithm, Connection, algorithm};
use longhaul_tcpsim::congestion_control::{Ack, AckSample, CongestionControl, Window};
use longhaul_units::Time;
use std::ops::RangeInclusive;
use vector::{Call, Vector};

/// Our connection in place of Linux's.
struct Replay<'a> {
    counterpart: &'a Counterpart,
    /// Members: the column of the vector, and offset and size in our state.
    places: Vec<(usize, (usize, usize))>,
    connection: Connection,
    prior_cwnd: u32,
}

/// Outcome of a call.
struct Outcome {
    window: Window,
    /// Return value of `ssthresh` and `undo_cwnd`.
    returned: Option<u32>,
}

fn values(algorithm: Algorithm, parameters: &[(&str, u32)]) -> Vec<u32> {
    let value = |name, initial| {
        parameters
            .iter()
            .find(|(other, _)| *other == name)
            .map_or(initial, |it| it.1)
    };
    algorithm
        .parameters()
        .map(|it| value(it.name, it.default))
        .collect()
}

impl<'a> Replay<'a> {
    fn new(counterpart: &'a Counterpart, vector: &Vector, parameters: &[(&str, u32)]) -> Self {
        let algorithm = algorithm(counterpart.algorithm).unwrap();
        let layout = Layout::of(counterpart.algorithm, counterpart.layout);
        let column = |name| {
            vector
                .private
                .iter()
                .position(|column| column == name)
                .unwrap()
        };
        Self {
            counterpart,
            places: counterpart
                .members
                .iter()
                .map(|it| (column(it.column), layout.range(it.name)))
                .collect(),
            connection: algorithm.connection(&values(algorithm, parameters)),
            prior_cwnd: 0,
        }
    }

    /// Copies Linux's private state.
    fn start_from(&mut self, call: &Call) {
        for (member, &(column, place)) in self.counterpart.members.iter().zip(&self.places) {
            let value = member.unit.convert(call.private[column], call.jiffies);
            layout::set(self.connection.state_mut(), place, value);
        }
    }

    fn replay(&mut self, call: &Call, now: Time) -> Outcome {
        let mut window = call.before;
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
                returned = Some(self.connection.undo_cwnd(&window, self.prior_cwnd, now));
            }
            "cwnd_event" | "ack" => {}
            other => panic!("{other}"),
        }
        Outcome { window, returned }
    }

    /// Describes the differences from Linux.
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
        let members = self.counterpart.members.iter().zip(&self.places);
        for (member, &(column, place)) in members.filter(|(member, _)| member.checked) {
            let wanted = member.unit.convert(call.private[column], call.jiffies);
            let ours = layout::get(self.connection.state_mut(), place);
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

/// Returns the vectors of one of Linux's congestion controls.
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

/// Returns the number of rows and the differences from Linux.
fn replay_as_linux(counterpart: &Counterpart, vector: &Vector) -> (usize, Vec<String>) {
    let mut replay = Replay::new(counterpart, vector, counterpart.linux);
    let mut excerpt = None;
    let mut differences = Vec::new();
    for (row, call) in vector.calls.iter().enumerate() {
        // Time advances in jiffies, as in Linux.
        let outcome = replay.replay(call, Time::from_micros(call.jiffies * JIFFY_US));
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

fn assert_matches_linux(control: &str) {
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

/// Comparison of our defaults with Linux, over one flow.
#[derive(Default)]
struct Beside {
    /// Ratio of ours to Linux's, for each reduction in congestion avoidance.
    ssthresh: Vec<f64>,
    /// Growth in congestion avoidance, in packets: ours, Linux's.
    grown: (u32, u32),
}

impl Beside {
    fn add(&mut self, call: &Call, outcome: &Outcome) {
        let avoidance = !call.before.in_slow_start();
        if call.kind == "ssthresh" && avoidance {
            let ours = f64::from(outcome.returned.unwrap());
            self.ssthresh.push(ours / f64::from(call.number()));
        }
        if call.kind == "cong_avoid" && avoidance {
            self.grown.0 += outcome.window.cwnd - call.before.cwnd;
            self.grown.1 += call.after.cwnd - call.before.cwnd;
        }
    }
}

/// Applies each call to Linux's window before it, and compares the result.
fn beside_linux(counterpart: &Counterpart, vector: &Vector) -> Beside {
    let mut replay = Replay::new(counterpart, vector, &[]);
    let mut beside = Beside::default();
    let mut excerpt = None;
    for call in &vector.calls {
        let outcome = replay.replay(
            call,
            Time::from_micros(vector.calls[0].jiffies * JIFFY_US + call.time_us),
        );
        if excerpt != Some(call.excerpt) {
            excerpt = Some(call.excerpt);
            replay.start_from(call);
        } else {
            beside.add(call, &outcome);
        }
    }
    beside
}

#[test]
fn defaults_differ_from_linux_as_documented() {
    eprintln!("| flow | reductions | ssthresh, ours by Linux's | growth, ours by Linux's |");
    // A row's b differs from the next one's by an eighth at most, and Linux takes the next; it counts
    // ACKs, of 1 to 16 packets.
    check_beside("highspeed", 0.875..=1.0, 0.5..=16.0);
    // Linux rounds round trips up by less than a jiffy, which beta feels where the queue is short, and
    // drops part of its credit at each step.
    check_beside("htcp", 0.96..=1.04, 0.9..=1.4);
}

fn check_beside(control: &str, backoff: RangeInclusive<f64>, growth: RangeInclusive<f64>) {
    let counterpart = COUNTERPARTS
        .iter()
        .find(|it| it.control == control)
        .unwrap();
    for vector in vectors(control) {
        let Beside { ssthresh, grown } = beside_linux(counterpart, &vector);
        let least = ssthresh.iter().copied().fold(f64::INFINITY, f64::min);
        let most = ssthresh.iter().copied().fold(0.0, f64::max);
        let grown = f64::from(grown.0) / f64::from(grown.1);
        eprintln!(
            "| {} | {} | {least:.4}–{most:.4} | {grown:.3} |",
            vector.name,
            ssthresh.len()
        );
        assert!(
            backoff.contains(&least) && backoff.contains(&most),
            "{}",
            vector.name
        );
        assert!(growth.contains(&grown), "{}: {grown}", vector.name);
    }
}

#[test]
fn trc_matches_reno() {
    assert_matches_linux("reno");
}

#[test]
fn scalable_matches_linux() {
    assert_matches_linux("scalable");
}

#[test]
fn hstcp_matches_linux() {
    assert_matches_linux("highspeed");
}

#[test]
fn htcp_matches_linux() {
    assert_matches_linux("htcp");
}

#[test]
fn bic_linux_matches_linux() {
    assert_matches_linux("bic");
}
