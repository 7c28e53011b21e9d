// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the taps of a run saw of its flows, as `longhaul tap analyze` finds it: metrics for checks, and
//! courses for the report.
//!
//! A flow is looked at by the tapped link nearest to its sender, at the end where its data goes in and its
//! ACKs come out: there is what the sender had to go by.

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
    segment::{Endpoint, Vantage},
};
use longhaul_report::registry;
use longhaul_results::result::{Metrics, Run, TapSeries};
use std::{collections::BTreeSet, fs, net::IpAddr, path::Path};

/// Bins of 1 ms that a tap's analysis keeps, over both ends and all flows: 190 MB. More than that, and flows
/// have neither a course nor the metrics that are made of it.
const BINS_MAX: usize = 1 << 20;

/// A flow and the tap that sees it.
struct Look<'a> {
    flow: &'a Flow,
    link: &'a Link,
    /// The end of the link, as `longhaul link` calls it.
    end: &'static str,
    /// Addresses of its ends, one of which is the server.
    hosts: Vec<IpAddr>,
    /// The server's port, if nobody else has the same.
    port: Option<u16>,
}

/// What is to be said of a flow.
struct Seen {
    flow: String,
    metrics: Metrics,
    course: Option<TapSeries>,
}

/// Analyses the taps of a run that has ended, and adds what they say to it. Metrics stand under the flow's
/// name if there are several transfers.
///
/// # Errors
/// A tap's file cannot be read.
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

/// The names of the flows that a tap sees.
pub(crate) fn flows_seen(scenario: &Scenario) -> BTreeSet<String> {
    let (_, looks) = looks(scenario);
    looks.iter().map(|look| look.flow.name.clone()).collect()
}

/// How many transfers there are, and those that a tap sees.
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

/// What the tap of `link` says of the flows that it sees.
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

/// The connection of each flow: the largest to its server that no flow before it has. Beside a relay with
/// addresses of its own there is none; then the largest that is left.
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
            flow.vantage == end && (own || !strict)
        };
        let mut largest_first = finished.analysis.flows.iter().filter(fits);
        largest_first.find(|flow| taken.insert(flow.number))
    };
    let sure: Vec<_> = looks.iter().map(|look| claim(look, true)).collect();
    let all = looks.iter().zip(sure);
    all.map(|(look, sure)| sure.or_else(|| claim(look, false)))
        .collect()
}

fn vantage(finished: &longhaul_analysis::Finished, end: &str) -> Option<Vantage> {
    let mut points = finished.analysis.vantages.iter();
    let at = points.position(|point| point.name == end)?;
    Some(Vantage(at as u32))
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
