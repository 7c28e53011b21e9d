// SPDX-License-Identifier: MIT OR Apache-2.0
//! Analysis of the captures of a run, as `longhaul tap analyze` does it: metrics for checks, and
//! time series for the report.
//!
//! A flow is analysed in the capture of the link nearest to its sender, at the end where its data
//! enters and its ACKs leave. There it is closest to what the sender saw.

mod figures;
mod fine;
mod time_series;

use crate::{
    command_check,
    network::{Topology, link, sockets},
    scenario::{Flow, Link, Program, Scenario},
};
use anyhow::{Context, Result};
use fine::FineBins;
use longhaul_flow::{
    record,
    segment::{CapturePoint, Endpoint},
};
use longhaul_report::registry;
use longhaul_results::result::{CaptureSeries, Metrics, Run};
use serde::Deserialize;
use std::{
    collections::BTreeSet,
    fs::{self, File},
    io::{BufRead, BufReader},
    net::IpAddr,
    path::Path,
};

/// Flows in `result.json` of `longhaul tap analyze`.
#[derive(Deserialize)]
struct Analysis {
    capture_points: Vec<CapturePointName>,
    /// Flows, most payload first.
    flows: Vec<record::Flow>,
}

#[derive(Deserialize)]
struct CapturePointName {
    name: String,
}

/// A flow and the link whose capture is analysed for it.
struct CapturedFlow<'a> {
    flow: &'a Flow,
    link: &'a Link,
    /// End of the link, as `longhaul link` names it.
    end: &'static str,
    /// Addresses of the flow's hosts, one of which is the server.
    hosts: Vec<IpAddr>,
    /// Port of the server, if no other server uses it.
    port: Option<u16>,
}

/// Metrics and time series of a flow.
struct FlowAnalysis {
    flow: String,
    metrics: Metrics,
    time_series: Option<CaptureSeries>,
}

/// Analyses the captures of a run that has ended, and adds the metrics and time series to it.
/// Metrics have the flow's name as prefix if there are several transfers.
///
/// # Errors
/// A capture file cannot be read or removed.
pub(crate) fn add(scenario: &Scenario, directory: &Path, run: &mut Run) -> Result<()> {
    let (transfers, captured_flows) = captured_flows(scenario);
    for one in scenario.links.iter().filter(|link| link.capture) {
        let flows_of_link = captured_flows
            .iter()
            .filter(|captured_flow| captured_flow.link.name == one.name);
        for analysis in analyse_link(one, &flows_of_link.collect::<Vec<_>>(), directory)? {
            let name =
                |figure: &String| registry::metric_name(&analysis.flow, figure, transfers == 1);
            let metrics = analysis.metrics.iter();
            run.metrics
                .extend(metrics.map(|(figure, value)| (name(figure), *value)));
            let series = run.series.get_or_insert_default();
            series.captures.extend(analysis.time_series);
        }
    }
    Ok(())
}

/// Names of the flows that a capture records.
pub(crate) fn captured_flow_names(scenario: &Scenario) -> BTreeSet<String> {
    let (_, captured_flows) = captured_flows(scenario);
    captured_flows
        .iter()
        .map(|captured_flow| captured_flow.flow.name.clone())
        .collect()
}

/// Number of transfers, and those that a capture records.
fn captured_flows(scenario: &Scenario) -> (usize, Vec<CapturedFlow<'_>>) {
    let topology = Topology::of(scenario);
    let enabled = scenario
        .flows
        .iter()
        .filter(|flow| flow.enabled)
        .enumerate();
    let transfers: Vec<_> = enabled.filter(|(_, flow)| flow.transfers()).collect();
    let captured = transfers
        .iter()
        .filter_map(|(number, flow)| captured_flow(scenario, &topology, *number, flow));
    (transfers.len(), captured.collect())
}

fn captured_flow<'a>(
    scenario: &'a Scenario,
    topology: &Topology,
    number: usize,
    flow: &'a Flow,
) -> Option<CapturedFlow<'a>> {
    if !flow.program.is_tcp() {
        return None;
    }
    let path = topology.path(&flow.from, &flow.to)?;
    let capturing = |pair: &[String]| {
        let link = &scenario.links[topology.between(&pair[0], &pair[1])?];
        let end = if link.endpoints[0] == pair[0] {
            "left"
        } else {
            "right"
        };
        link.capture.then_some((link, end))
    };
    let (link, end) = path.windows(2).find_map(capturing)?;
    let addresses = [&flow.from, &flow.to].map(|host| topology.addresses(host));
    Some(CapturedFlow {
        flow,
        link,
        end,
        hosts: addresses.concat().into_iter().map(IpAddr::V4).collect(),
        port: (flow.program == Program::Iperf3).then(|| sockets::iperf_port(number)),
    })
}

/// Analyses the capture of `link` for these flows.
fn analyse_link(
    link: &Link,
    captured_flows: &[&CapturedFlow<'_>],
    directory: &Path,
) -> Result<Vec<FlowAnalysis>> {
    let record = link::capture_file(link, directory);
    let place = || format!("cannot analyse or remove the capture of link {}", link.name);
    let analysis = if captured_flows.is_empty() {
        Vec::new()
    } else {
        analyse_capture(&record, captured_flows).with_context(place)?
    };
    if !link.keep_capture {
        fs::remove_file(&record).with_context(place)?;
    }
    Ok(analysis)
}

fn analyse_capture(
    record: &Path,
    captured_flows: &[&CapturedFlow<'_>],
) -> Result<Vec<FlowAnalysis>> {
    // In the sandbox's own memory: if the lab is killed, nothing is left.
    let scratch = tempfile::tempdir_in("/run")?;
    let mut command = command_check::longhaul()?;
    let command = command.args(["tap", "analyze", "--csv", "--out"]);
    command_check::run(command.arg(scratch.path()).arg(record))?;
    let open = |name: &str| File::open(scratch.path().join(name)).map(BufReader::new);
    let analysis: Analysis = serde_json::from_reader(open("result.json")?)?;
    let connections = connections(&analysis, captured_flows);
    let both = captured_flows.iter().zip(connections);
    both.filter_map(|(captured_flow, connection)| Some((captured_flow, connection?)))
        .map(|(captured_flow, connection)| {
            analyse_flow(captured_flow, connection, open("series-1ms.csv")?)
        })
        .collect()
}

/// Connection of each flow: the largest to its server that is not yet assigned. Beside a relay with
/// its own addresses there is no such connection; then the largest one that is left.
fn connections<'a>(
    analysis: &'a Analysis,
    captured_flows: &[&CapturedFlow<'_>],
) -> Vec<Option<&'a record::Flow>> {
    let mut assigned = BTreeSet::new();
    let mut find = |captured_flow: &CapturedFlow<'_>, strict: bool| {
        let end = capture_point(analysis, captured_flow.end)?;
        let fits = |flow: &&record::Flow| {
            let Endpoint { address, port } = flow.server;
            let is_server = captured_flow.hosts.contains(&address)
                && captured_flow
                    .port
                    .is_none_or(|server_port| server_port == port);
            flow.capture_point == end && (is_server || !strict)
        };
        let mut largest_first = analysis.flows.iter().filter(fits);
        largest_first.find(|flow| assigned.insert(flow.number))
    };
    let exact: Vec<_> = captured_flows
        .iter()
        .map(|captured_flow| find(captured_flow, true))
        .collect();
    let all = captured_flows.iter().zip(exact);
    all.map(|(captured_flow, exact)| exact.or_else(|| find(captured_flow, false)))
        .collect()
}

fn capture_point(analysis: &Analysis, end: &str) -> Option<CapturePoint> {
    let mut points = analysis.capture_points.iter();
    let index = points.position(|point| point.name == end)?;
    Some(CapturePoint(index as u32))
}

fn analyse_flow(
    captured_flow: &CapturedFlow<'_>,
    flow: &record::Flow,
    series: impl BufRead,
) -> Result<FlowAnalysis> {
    let upload = flow.upload.data.unique_bytes >= flow.download.data.unique_bytes;
    let direction = if upload { &flow.upload } else { &flow.download };
    let fine = FineBins::read(series, flow.number, upload)?;
    Ok(FlowAnalysis {
        flow: captured_flow.flow.name.clone(),
        metrics: figures::of(direction, fine.as_ref()),
        time_series: fine.map(|fine| CaptureSeries {
            flow: captured_flow.flow.name.clone(),
            link: captured_flow.link.name.clone(),
            ..time_series::of(direction, &fine)
        }),
    })
}
