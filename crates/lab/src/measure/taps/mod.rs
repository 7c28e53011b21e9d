// SPDX-License-Identifier: MIT OR Apache-2.0
//! Analysis of the captures of a run, as `longhaul tap analyze` does it: metrics for checks, and
//! time series for the report.
//!
//! A flow is analysed in the capture of the link nearest to its sender, at the end where its data
//! enters and its ACKs leave. There it is closest to what the sender saw.

mod course;
mod figures;
mod fine;

use crate::{
    network::{Topology, link, ports},
    scenario::{Flow, Link, Program, Scenario},
};
use anyhow::{Context, Result};
use fine::FineBins;
use longhaul_flow::{
    record,
    segment::{CapturePoint, Endpoint},
};
use longhaul_report::registry;
use longhaul_results::result::{Metrics, Run, TapSeries};
use std::{collections::BTreeSet, fs, net::IpAddr, path::Path};

/// Most bins of 1 ms that the analysis of a capture holds, over both ends and all flows: 190 MB.
/// With more, flows have neither a time series nor the metrics that need it.
const BINS_MAX: usize = 1 << 20;

/// A flow and the link whose capture is analysed for it.
struct Look<'a> {
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
struct Seen {
    flow: String,
    metrics: Metrics,
    course: Option<TapSeries>,
}

/// Analyses the captures of a run that has ended, and adds the metrics and time series to it.
/// Metrics have the flow's name as prefix if there are several transfers.
///
/// # Errors
/// A capture file cannot be read or removed.
pub(crate) fn add(scenario: &Scenario, directory: &Path, run: &mut Run) -> Result<()> {
    let (transfers, looks) = looks(scenario);
    for one in scenario.links.iter().filter(|link| link.tap) {
        let own = looks.iter().filter(|look| look.link.name == one.name);
        for seen in at(one, &own.collect::<Vec<_>>(), directory)? {
            let name = |figure: &String| registry::name_of(&seen.flow, figure, transfers == 1);
            let metrics = seen.metrics.iter();
            run.metrics
                .extend(metrics.map(|(figure, value)| (name(figure), *value)));
            let series = run.series.get_or_insert_default();
            series.taps.extend(seen.course);
        }
    }
    Ok(())
}

/// Names of the flows that a capture records.
pub(crate) fn flows_seen(scenario: &Scenario) -> BTreeSet<String> {
    let (_, looks) = looks(scenario);
    looks.iter().map(|look| look.flow.name.clone()).collect()
}

/// Number of transfers, and those that a capture records.
fn looks(scenario: &Scenario) -> (usize, Vec<Look<'_>>) {
    let topology = Topology::of(scenario);
    let on = scenario.flows.iter().filter(|flow| flow.when).enumerate();
    let transfers: Vec<_> = on.filter(|(_, flow)| flow.program.transfers()).collect();
    let seen = transfers
        .iter()
        .filter_map(|(number, flow)| look(scenario, &topology, *number, flow));
    (transfers.len(), seen.collect())
}

fn look<'a>(
    scenario: &'a Scenario,
    topology: &Topology,
    number: usize,
    flow: &'a Flow,
) -> Option<Look<'a>> {
    if !flow.program.is_tcp() {
        return None;
    }
    let path = topology.path(&flow.from, &flow.to)?;
    let tapped = |pair: &[String]| {
        let link = &scenario.links[topology.between(&pair[0], &pair[1])?];
        let end = if link.between[0] == pair[0] {
            "left"
        } else {
            "right"
        };
        link.tap.then_some((link, end))
    };
    let (link, end) = path.windows(2).find_map(tapped)?;
    let addresses = [&flow.from, &flow.to].map(|host| topology.addresses(host));
    Some(Look {
        flow,
        link,
        end,
        hosts: addresses.concat().into_iter().map(IpAddr::V4).collect(),
        port: (flow.program == Program::Iperf3).then(|| ports::iperf_port(number)),
    })
}

/// Analyses the capture of `link` for these flows.
fn at(link: &Link, looks: &[&Look<'_>], directory: &Path) -> Result<Vec<Seen>> {
    let record = link::tap(link, directory);
    let place = || format!("the tap of link {}", link.name);
    let seen = match looks.is_empty() {
        true => Vec::new(),
        false => analysed(&record, looks).with_context(place)?,
    };
    if !link.tap_keep {
        fs::remove_file(&record).with_context(place)?;
    }
    Ok(seen)
}

fn analysed(record: &Path, looks: &[&Look<'_>]) -> Result<Vec<Seen>> {
    let finished = longhaul_analysis::capture_with_bins(record, BINS_MAX)?;
    let connections = connections(&finished, looks);
    let both = looks.iter().zip(connections);
    Ok(both
        .filter_map(|(look, connection)| Some(seen(&finished, look, connection?)))
        .collect())
}

/// Connection of each flow: the largest to its server that is not yet assigned. Beside a relay with
/// its own addresses there is no such connection; then the largest one that is left.
fn connections<'a>(
    finished: &'a longhaul_analysis::Finished,
    looks: &[&Look<'_>],
) -> Vec<Option<&'a record::Flow>> {
    let mut taken = BTreeSet::new();
    let mut claim = |look: &Look<'_>, strict: bool| {
        let end = vantage(finished, look.end)?;
        let fits = |flow: &&record::Flow| {
            let Endpoint { address, port } = flow.server;
            let own = look.hosts.contains(&address) && look.port.is_none_or(|own| own == port);
            flow.capture_point == end && (own || !strict)
        };
        let mut largest_first = finished.analysis.flows.iter().filter(fits);
        largest_first.find(|flow| taken.insert(flow.number))
    };
    let sure: Vec<_> = looks.iter().map(|look| claim(look, true)).collect();
    let all = looks.iter().zip(sure);
    all.map(|(look, sure)| sure.or_else(|| claim(look, false)))
        .collect()
}

fn vantage(finished: &longhaul_analysis::Finished, end: &str) -> Option<CapturePoint> {
    let mut points = finished.analysis.vantages.iter();
    let at = points.position(|point| point.name == end)?;
    Some(CapturePoint(at as u32))
}

fn seen(finished: &longhaul_analysis::Finished, look: &Look<'_>, flow: &record::Flow) -> Seen {
    let upload = flow.upload.data.unique_bytes >= flow.download.data.unique_bytes;
    let direction = if upload { &flow.upload } else { &flow.download };
    let width_ns = finished.analysis.bins_ns.first().copied().unwrap_or(1);
    let rows = finished.bins.as_deref();
    let fine = rows.and_then(|rows| FineBins::of(rows, (flow.number, upload), width_ns));
    Seen {
        flow: look.flow.name.clone(),
        metrics: figures::of(direction, fine.as_ref()),
        course: fine.map(|fine| TapSeries {
            flow: look.flow.name.clone(),
            link: look.link.name.clone(),
            ..course::of(direction, &fine)
        }),
    }
}
