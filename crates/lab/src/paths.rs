// SPDX-License-Identifier: MIT OR Apache-2.0
//! Paths of a result's flows: the legs of each, cell by cell, for predictions (`longhaul plan
//! check`). The scenario is read again, because a result holds it resolved for one cell only.

use crate::{
    network::{Topology, link, tcp_settings},
    scenario::{Flow, LinkKind, Program, Scenario},
    source::{Cell, Choices, ExperimentPlan, Source, library},
};
use anyhow::Result;
use longhaul_command::errln;
use longhaul_command::exit::Refusal;
use longhaul_netem::LinkConfig;
use longhaul_report::registry;
use longhaul_results::result::{self, LabResult};
use longhaul_units::{BitRate, Bytes, Time};

/// Path and size of one flow of one cell.
#[derive(Debug, Clone)]
pub struct FlowPath {
    /// Index into the result's cells.
    pub cell: usize,
    /// Name of the flow's goodput in the metrics.
    pub metric: String,
    /// Legs in the order in which data passes them.
    pub legs: Vec<Leg>,
    /// Number of parallel connections.
    pub streams: u32,
    /// Time at the beginning that does not count.
    pub omit: Time,
    /// Measured time; `None`: until `size` has arrived.
    pub duration: Option<Time>,
    /// Payload of the transfer.
    pub size: Option<Bytes>,
}

/// Path of one TCP connection: its emulated links together.
#[derive(Debug, Clone)]
pub struct Leg {
    /// Rate that the bottleneck leaves to this flow's connections, if all connections there have the
    /// same share.
    pub rate: BitRate,
    /// The round-trip time.
    pub rtt: Time,
    /// Ratio of lost data packets.
    pub loss: f64,
    /// Size of the bottleneck's queue.
    pub queue: Bytes,
    /// The largest packet, in bytes.
    pub mtu: u32,
    /// Largest receive and send buffer, `tcp_rmem` and `tcp_wmem`.
    pub buffers: [Bytes; 2],
    /// Largest window that the header field and window scaling can express.
    pub window_max: Bytes,
    /// The sender's congestion control.
    pub control: String,
}

/// Returns the paths of all flows of `result` that have a limited leg. `scenario` is a name or a
/// file, for a result whose own scenario name is not found. `set` has the `--set` options of the run.
///
/// # Errors
/// A usage error if the scenario differs from the one that was run.
pub fn flow_paths(
    result: &LabResult,
    scenario: Option<&str>,
    set: Vec<(String, String)>,
) -> Result<Vec<FlowPath>> {
    let source = library::find(scenario.unwrap_or(&result.scenario))?;
    let choices = Choices {
        quick: result.quick,
        set,
        repetitions: repetitions(result),
        ..Choices::default()
    };
    let mut experiment = ExperimentPlan::open(&source, &choices)?;
    if result.cells.iter().all(|cell| cell.simulated) {
        experiment.simulate();
    }
    experiment.cells.retain(|cell| {
        result
            .cells
            .iter()
            .any(|measured| is_same_cell(cell, measured))
    });
    check_same_scenario(result, &experiment, &source)?;
    let mut all = Vec::new();
    for (index, measured) in result.cells.iter().enumerate() {
        if let Some(cell) = experiment
            .cells
            .iter()
            .find(|cell| is_same_cell(cell, measured))
        {
            all.extend(flows(index, &cell.scenario));
        }
    }
    Ok(all)
}

fn repetitions(result: &LabResult) -> Option<u32> {
    let written = result.resolved.get("repetitions")?.as_u64()?;
    u32::try_from(written).ok()
}

fn is_same_cell(cell: &Cell, measured: &result::Cell) -> bool {
    let varied = serde_json::to_value(&cell.values).ok();
    varied == serde_json::to_value(&measured.parameters).ok() && cell.label == measured.label
}

/// Checks that the scenario still is the one that was run.
fn check_same_scenario(
    result: &LabResult,
    experiment: &ExperimentPlan,
    source: &Source,
) -> Result<()> {
    let Some(identity) = &result.identity else {
        errln!(
            "{}: the result has no identity of its scenario; whether {} has changed since is not known",
            result.scenario,
            source.origin
        );
        return Ok(());
    };
    if identity.digest == experiment.digest()? {
        return Ok(());
    }
    let version = longhaul_command::version();
    let other_causes = match identity.longhaul == version {
        true => "or --set differs".to_owned(),
        false => format!(
            "--set differs, or longhaul {}, which ran it, read it differently from {version} (then run it again)",
            identity.longhaul
        ),
    };
    Err(Refusal::usage(format!(
        "{} differs from the scenario that the result of {} was run with: it was changed since, \
         {other_causes}; give the scenario of the run (--scenario) and each --set of the run",
        source.origin, result.scenario
    )))
}

fn flows(cell: usize, scenario: &Scenario) -> Vec<FlowPath> {
    let topology = Topology::of(scenario);
    let active: Vec<&Flow> = scenario
        .flows
        .iter()
        .filter(|flow| flow.enabled && flow.program.transfers())
        .collect();
    let all = active.iter().filter(|flow| flow.program.is_tcp());
    let all = all.filter_map(|flow| {
        let legs = legs(flow, &active, scenario, &topology)?;
        Some(FlowPath {
            cell,
            metric: registry::metric_name(&flow.name, registry::GOODPUT, active.len() == 1),
            legs,
            streams: flow.streams,
            omit: flow.omit.unwrap_or_default(),
            duration: flow.duration.filter(|_| flow.program == Program::Iperf3),
            size: flow.size,
        })
    });
    all.filter(|flow| !flow.legs.is_empty()).collect()
}

/// Returns the legs of a flow: its path, split at the relays. Legs without a rate limit are left out.
fn legs(
    flow: &Flow,
    active: &[&Flow],
    scenario: &Scenario,
    topology: &Topology,
) -> Option<Vec<Leg>> {
    let path = topology.path(&flow.from, &flow.to)?;
    let mut legs = Vec::new();
    let mut begin = 0;
    for at in 1..path.len() {
        if at == path.len() - 1 || scenario.relays_on(&path[at]) {
            legs.extend(leg(&path[begin..=at], flow, active, scenario, topology)?);
            begin = at;
        }
    }
    Some(legs)
}

/// Combines the links between the hosts of one leg. Returns `Some(None)` if no link limits the rate, and
/// `None` if a link does not exist or its options are invalid.
fn leg(
    hosts: &[String],
    flow: &Flow,
    active: &[&Flow],
    scenario: &Scenario,
    topology: &Topology,
) -> Option<Option<Leg>> {
    let mut rtt = Time::ZERO;
    let mut delivered = 1.0;
    let mut mtu = 9000;
    let mut bottleneck: Option<(BitRate, Bytes)> = None;
    for pair in hosts.windows(2) {
        let index = topology.between(&pair[0], &pair[1])?;
        let link = &scenario.links[index];
        mtu = mtu.min(link.mtu);
        if link.kind != LinkKind::Emulated {
            continue;
        }
        let [link_config, back] =
            link::link_configs_from(link, &topology.addressed_links[index], &pair[0]).ok()?;
        rtt += link_config.delay + back.delay;
        delivered *= 1.0 - link_config.loss.mean();
        let share = share(&link_config, pair, flow, active, topology);
        if let Some(share) = share
            && bottleneck.as_ref().is_none_or(|(rate, _)| share < *rate)
        {
            bottleneck = Some((share, queue(&link_config, link.mtu)));
        }
    }
    let [receiver, sender] = [hosts.last()?, hosts.first()?];
    Some(bottleneck.map(|(rate, queue)| Leg {
        rate,
        rtt,
        loss: 1.0 - delivered,
        queue,
        mtu,
        buffers: [
            tcp_settings::receive_buffer(scenario, receiver),
            tcp_settings::send_buffer(scenario, sender),
        ],
        window_max: tcp_settings::largest_window(scenario, [sender, receiver]),
        control: control_name(&tcp_settings::sender_control(scenario, sender, flow)),
    }))
}

/// Returns the part of a link's rate that the flow's connections get, if each connection on the link gets
/// the same.
fn share(
    link_config: &LinkConfig,
    pair: &[String],
    flow: &Flow,
    active: &[&Flow],
    topology: &Topology,
) -> Option<BitRate> {
    let passes = |other: &&&Flow| {
        let path = topology.path(&other.from, &other.to).unwrap_or_default();
        path.windows(2).any(|hop| hop == pair)
    };
    let all: u32 = active
        .iter()
        .filter(passes)
        .map(|other| other.streams)
        .sum();
    let rate = link_config.rate.mean()?;
    let own = u64::from(flow.streams);
    Some(BitRate::from_bits(
        rate.bits() * own / u64::from(all.max(flow.streams)),
    ))
}

/// Returns the name of a congestion control without its parameters. The formulas do not use them.
fn control_name(control: &str) -> String {
    control.split(':').next().unwrap_or(control).to_owned()
}

/// Returns the size of a queue in bytes. A limit in packets counts as packets of the largest size.
fn queue(link_config: &LinkConfig, mtu: u32) -> Bytes {
    let limit = link_config.queue_capacity();
    let packets = (limit.packets as u64).saturating_mul(mtu.into());
    Bytes::new(limit.bytes.min(packets))
}

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul_results::result;

    const SCENARIO: &str = r#"
title = "t"
question = "q"
[parameters]
loss = 0.0
relayed = false
[matrix]
loss = [0.0, 0.01]
relayed = [false, true]
[[links]]
name = "edge"
endpoints = ["client", "relay"]
delay = "5ms"
loss = "${loss}"
rate = "100mbit"
queue = "100p"
[[links]]
name = "line"
endpoints = ["relay", "server"]
delay = "20ms"
rate = "50mbit"
[relays.relay]
enabled = "${relayed}"
transparent = "0.0.0.0:3129"
intercept = [5201]
[sysctl]
"net.ipv4.tcp_rmem" = "4096 131072 1000000"
[hosts.client]
congestion_control = "reno"
[[flows]]
name = "upload"
program = "iperf3"
direction = "upload"
from = "client"
to = "server"
duration = "10s"
streams = 2
"#;

    fn result() -> LabResult {
        let cell = |loss: f64, relayed: bool| result::Cell {
            parameters: [("loss", loss.into()), ("relayed", relayed.into())]
                .map(|(key, value): (&str, serde_json::Value)| (key.to_owned(), value))
                .into_iter()
                .collect(),
            ..result::Cell::default()
        };
        LabResult {
            cells: vec![cell(0.01, true), cell(0.0, false)],
            ..LabResult::default()
        }
    }

    #[test]
    fn path_is_split_at_relays() {
        let file = tempfile::Builder::new().suffix(".toml").tempfile().unwrap();
        std::fs::write(file.path(), SCENARIO).unwrap();
        let flows = flow_paths(&result(), file.path().to_str(), vec![]).unwrap();
        let [relayed, direct] = &flows[..] else {
            panic!("{flows:?}")
        };
        let rtts = |flow: &FlowPath| flow.legs.iter().map(|leg| leg.rtt).collect::<Vec<_>>();
        assert_eq!(rtts(relayed), [10, 40].map(Time::from_millis));
        assert_eq!(rtts(direct), [Time::from_millis(50)]);
        assert!((relayed.legs[0].loss - 0.01).abs() < 1e-9 && relayed.legs[1].loss < 1e-9);
        let line = &direct.legs[0];
        // 100 packets of 1,500 bytes.
        assert_eq!(relayed.legs[0].queue, Bytes::new(150_000));
        assert_eq!(
            (line.rate.bits(), line.buffers),
            (50_000_000, [1_000_000, 4 << 20].map(Bytes::new))
        );
        assert_eq!(
            (line.control.as_str(), relayed.legs[1].control.as_str()),
            ("reno", "cubic")
        );
        assert_eq!((direct.metric.as_str(), direct.streams), ("goodput_bps", 2));
    }

    #[test]
    fn flows_congestion_control_applies_at_its_source() {
        let file = tempfile::Builder::new().suffix(".toml").tempfile().unwrap();
        let chosen = SCENARIO.replace("streams = 2", "streams = 2\ncc = 'lh_bic:ack_shift=3'");
        std::fs::write(file.path(), chosen).unwrap();
        let flows = flow_paths(&result(), file.path().to_str(), vec![]).unwrap();
        let controls = |flow: &FlowPath| -> Vec<String> {
            flow.legs.iter().map(|leg| leg.control.clone()).collect()
        };
        assert_eq!(controls(&flows[0]), ["lh_bic", "cubic"]);
        assert_eq!(controls(&flows[1]), ["lh_bic"]);
    }

    #[test]
    fn relay_uses_the_control_of_the_side_that_sends() {
        let file = tempfile::Builder::new().suffix(".toml").tempfile().unwrap();
        let leg_controls = |text: &str, scenario: &str| {
            let text = format!("intercept = [5201]\n{text}");
            let text = scenario.replace("intercept = [5201]", &text);
            std::fs::write(file.path(), text).unwrap();
            let flows = flow_paths(&result(), file.path().to_str(), vec![]).unwrap();
            let legs = flows[0].legs.iter();
            legs.map(|leg| leg.control.clone()).collect::<Vec<_>>()
        };
        let reno_upstream = "cc_downstream = 'cubic'\ncc_upstream = 'reno'";
        assert_eq!(leg_controls(reno_upstream, SCENARIO), ["reno", "reno"]);
        let download = SCENARIO
            .replace("upload", "download")
            .replace("from = \"client\"", "from = \"server\"")
            .replace("to = \"server\"", "to = \"client\"");
        let reno_downstream = "cc_downstream = 'reno'\ncc_upstream = 'cubic'";
        assert_eq!(leg_controls(reno_downstream, &download), ["cubic", "reno"]);
    }

    #[test]
    fn window_without_scaling_ends_at_64_kb() {
        let file = tempfile::Builder::new().suffix(".toml").tempfile().unwrap();
        let unscaled = SCENARIO.replace(
            "congestion_control = \"reno\"",
            "sysctl = { \"net.ipv4.tcp_window_scaling\" = 0 }",
        );
        std::fs::write(file.path(), unscaled).unwrap();
        let flows = flow_paths(&result(), file.path().to_str(), vec![]).unwrap();
        let windows = |flow: &FlowPath| -> Vec<u64> {
            flow.legs.iter().map(|leg| leg.window_max.get()).collect()
        };
        assert_eq!(windows(&flows[0]), [65_535, 1 << 30]);
        assert_eq!(windows(&flows[1]), [65_535]);
    }
}
