// SPDX-License-Identifier: MIT OR Apache-2.0
//! `longhaul probe` beside the other flows, judged against the link that it crosses.

use super::{finish, longhaul};
use crate::{
    measure::{
        Outcome,
        metric::{Producer, told_by},
    },
    network::{Topology, link},
    scenario::{Flow, LinkKind, Scenario},
};
use anyhow::{Context, Result, bail, ensure};
use longhaul_linux::netns::Netns;
use longhaul_netem::Shape;
use longhaul_probe::{self as probe, Recording, Timing, judge};
use longhaul_results::result::Metrics;
use longhaul_units::Time;
use serde::Serialize;
use serde_json::Value;
use std::{fs::File, io::BufReader, net::Ipv4Addr, path::Path, process::Stdio};

/// From one packet to the next, unless the flow says: light beside any other flow.
const INTERVAL: Time = Time::from_millis(10);
/// Bytes of a packet, unless the flow says.
const LENGTH: u16 = 100;
/// How long the probe waits for its last packets, beside twice the delay of the link.
const PATIENCE: Time = Time::from_secs(2);

/// What the flow sends, checked.
pub(crate) fn timing(flow: &Flow) -> Result<Timing, String> {
    let interval = flow.interval.unwrap_or(INTERVAL);
    let count = match (flow.count, flow.duration) {
        (Some(count), None) => count,
        (None, Some(duration)) if interval > Time::ZERO => {
            let packets = duration.as_nanos() / interval.as_nanos() * u64::from(flow.segments);
            u32::try_from(packets).unwrap_or(u32::MAX)
        }
        _ => return Err("probe takes either count or, with an interval, duration".to_owned()),
    };
    let timing = Timing {
        count,
        interval_ns: interval.as_nanos(),
        length: flow.length.unwrap_or(LENGTH),
        segments: flow.segments,
    };
    timing.check().map(|()| timing)
}

/// How long the flow sends.
pub(crate) fn lasts(flow: &Flow) -> Result<Time, String> {
    let timing = timing(flow)?;
    let messages = timing.count.div_ceil(timing.segments.into());
    Ok(Time::from_nanos(timing.interval_ns) * messages.into())
}

/// What the flow's packets should meet, if they cross one emulated link that stays as it is.
pub(crate) fn expected(scenario: &Scenario, topology: &Topology, flow: &Flow) -> Option<Expected> {
    let shape = wire(scenario, topology, flow)?;
    let shares_queue = shares_queue(scenario, topology, flow);
    Some(Expected {
        shape,
        shares_queue,
    })
}

fn wire(scenario: &Scenario, topology: &Topology, flow: &Flow) -> Option<Shape> {
    let index = topology.between(&flow.from, &flow.to)?;
    let link = &scenario.links[index];
    if link.kind != LinkKind::Emulated || link.options.contains_key("at") {
        return None;
    }
    let [forward, backward] = link::shapes(link, &topology.wires[index]).ok()?;
    let is_forward = link.between[0] == flow.from;
    Some(if is_forward { forward } else { backward })
}

/// Whether another flow sends its data the same way over the same link, so that the probe may stand
/// in that flow's queue.
fn shares_queue(scenario: &Scenario, topology: &Topology, flow: &Flow) -> bool {
    let same_way = |other: &Flow| {
        let path = topology.path(&other.from, &other.to).unwrap_or_default();
        path.windows(2)
            .any(|hop| hop[0] == flow.from && hop[1] == flow.to)
    };
    let others = scenario.flows.iter().filter(|other| other.when);
    others
        .filter(|other| other.program.transfers())
        .any(same_way)
}

/// The names of what the probe of `flow` can give.
pub(crate) fn figures(scenario: &Scenario, topology: &Topology, flow: &Flow) -> Vec<&'static str> {
    let mut all: Vec<_> = told_by(Producer::Probe).collect();
    let judged = expected(scenario, topology, flow).zip(timing(flow).ok());
    if let Some((expected, timing)) = judged {
        let names = probe::figures(&expected.shape, timing).into_iter();
        all.extend(names.filter(|name| !expected.hides(name)));
    }
    all
}

/// What a probe's packets should meet.
#[derive(Debug)]
pub(crate) struct Expected {
    shape: Shape,
    /// Whether its delay may be another flow's queue.
    shares_queue: bool,
}

impl Expected {
    /// A wait behind other packets is no error of the link.
    fn hides(&self, figure: &str) -> bool {
        self.shares_queue && figure.starts_with("delay_error")
    }
}

/// Makes the probe of `flow` to `address`.
pub(crate) async fn measure(
    flow: &Flow,
    address: Ipv4Addr,
    expected: Option<&Expected>,
    record: &Path,
) -> Result<Outcome> {
    let timing = timing(flow).map_err(anyhow::Error::msg)?;
    let mut command = longhaul::command()?;
    command
        .args(["probe", "--json", "--from", &flow.from, "--to", &flow.to])
        .args(arguments(timing, expected))
        .arg("--records")
        .arg(record)
        .arg(address.to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let output = finish(command, "longhaul probe", &Netns::current()?).await?;
    if !output.status.success() {
        bail!("{}", String::from_utf8_lossy(&output.stderr).trim());
    }
    let place = || format!("cannot read {}", record.display());
    let recording = Recording::read(BufReader::new(File::open(record).with_context(place)?));
    outcome(&recording.with_context(place)?, expected)
}

fn arguments(timing: Timing, expected: Option<&Expected>) -> [String; 5] {
    let delay = expected.map_or(Time::ZERO, |expected| expected.shape.delay);
    [
        format!("--count={}", timing.count),
        format!(
            "--interval={}",
            Time::from_nanos(timing.interval_ns).exact()
        ),
        format!("--length={}", timing.length),
        format!("--segments={}", timing.segments),
        format!("--wait={}", (PATIENCE + delay * 2).exact()),
    ]
}

/// Figures that an investigation looks up in the record.
const RECORD_ONLY: [&str; 6] = [
    "sent",
    "duplicated",
    "reordered",
    "dropped_at_receiver",
    "delay_min_us",
    "delay_max_us",
];

fn outcome(recording: &Recording, expected: Option<&Expected>) -> Result<Outcome> {
    let summary = &recording.summary;
    let corrupts = expected.is_some_and(|expected| expected.shape.corrupt.get() > 0.0);
    ensure!(
        summary.dropped_at_receiver == 0 || corrupts,
        "this machine was too slow to receive the probe: {} packets found no room",
        summary.dropped_at_receiver
    );
    let mut extra = numbers(summary)?;
    if let Some(expected) = expected {
        extra.extend(numbers(&judge(recording, &expected.shape))?);
        extra.retain(|name, _| !expected.hides(name));
    }
    extra.retain(|name, _| !RECORD_ONLY.contains(&name.as_str()));
    Ok(Outcome {
        bytes: 0,
        seconds: 0.0,
        retransmits: None,
        connections_bps: Vec::new(),
        extra,
    })
}

/// The numbers of a flat record.
fn numbers(record: &impl Serialize) -> Result<Metrics> {
    let Value::Object(fields) = serde_json::to_value(record)? else {
        bail!("a probe's record is no object");
    };
    let number = |(name, value): (String, Value)| Some((name, value.as_f64()?));
    Ok(fields.into_iter().filter_map(number).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(keys: &str) -> Flow {
        let start = "name = 'p'\nprogram = 'probe'\nfrom = 'a'\nto = 'b'\n";
        toml::from_str(&format!("{start}{keys}")).unwrap()
    }

    #[test]
    fn a_duration_is_so_many_packets() {
        assert_eq!(timing(&flow("duration = '60s'")).unwrap().count, 6000);
        let dense = flow("duration = '2s'\ninterval = '1ms'\nsegments = 8");
        assert_eq!(timing(&dense).unwrap().count, 16_000);
        assert_eq!(
            timing(&flow("count = 7\ninterval = '0s'")).unwrap().count,
            7
        );
        for bad in [
            "",
            "count = 1\nduration = '1s'",
            "duration = '1s'\ninterval = '0s'",
        ] {
            assert!(timing(&flow(bad)).is_err(), "{bad}");
        }
        assert!(timing(&flow("duration = '10h'")).is_err(), "too many");
    }

    const LINK: &str = "title = 't'\nquestion = 'q'\n[[links]]\nname = 'wan'\nbetween = ['a', 'b']\n\
        forward = ['delay=20ms']\nbackward = ['delay=30ms']\n";

    fn delay_from(from: &str, link: &str) -> Option<Time> {
        let to = if from == "a" { "b" } else { "a" };
        let flow =
            format!("[[flows]]\nname = 'p'\nprogram = 'probe'\nfrom = '{from}'\nto = '{to}'");
        let scenario: Scenario = toml::from_str(&format!("{link}{flow}")).unwrap();
        let topology = Topology::of(&scenario);
        Some(
            expected(&scenario, &topology, &scenario.flows[0])?
                .shape
                .delay,
        )
    }

    #[test]
    fn only_data_of_the_same_way_makes_a_queue() {
        let flow = |name: &str, program: &str, from: &str, to: &str| {
            format!(
                "[[flows]]\nname = '{name}'\nprogram = '{program}'\nfrom = '{from}'\nto = '{to}'\n"
            )
        };
        let shared = |others: &str| {
            let text = format!("{LINK}{}{others}", flow("p", "probe", "a", "b"));
            let scenario: Scenario = toml::from_str(&text).unwrap();
            let topology = Topology::of(&scenario);
            shares_queue(&scenario, &topology, &scenario.flows[0])
        };
        assert!(shared(&flow("bulk", "iperf3", "a", "b")));
        assert!(!shared(&flow("bulk", "iperf3", "b", "a")));
        assert!(!shared(&flow("other", "probe", "a", "b")));
        assert!(!shared(
            &(flow("bulk", "iperf3", "a", "b") + "when = false")
        ));
    }

    #[test]
    fn each_direction_is_judged_by_its_own_settings() {
        assert_eq!(delay_from("a", LINK), Some(Time::from_millis(20)));
        assert_eq!(delay_from("b", LINK), Some(Time::from_millis(30)));
        let changing = format!("{LINK}at = ['1s: delay 5ms']\n");
        assert_eq!(delay_from("a", &changing), None);
    }
}
