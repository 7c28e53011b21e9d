// SPDX-License-Identifier: MIT OR Apache-2.0
//! Metrics and time series of a run, from what its programs reported and from the samples.

use super::{Recording, legs, statistic, time_series};
use crate::{
    network::Topology,
    scenario::{Flow, Scenario},
};
use longhaul_report::registry;
use longhaul_results::result::{Event, Metrics, Run, Series};
use longhaul_stats::fairness;
use std::collections::BTreeSet;

/// Outcome of one flow: measured by its program from its first byte sent to its last byte received.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Outcome {
    /// Payload bytes delivered.
    pub(crate) bytes: u64,
    pub(crate) seconds: f64,
    /// Retransmitted segments, if the program knows.
    pub(crate) retransmits: Option<u64>,
    /// Goodput of each connection in bits a second, if the program knows.
    pub(crate) connections_bps: Vec<f64>,
    /// Metrics that only this program reports.
    pub(crate) extra: Metrics,
}

/// Computes the metrics and time series of a run. `events` are the link changes during it.
pub(crate) fn summarize(
    scenario: &Scenario,
    topology: &Topology,
    flows: &[&Flow],
    outcomes: &[Outcome],
    recording: &Recording,
    events: Vec<Event>,
) -> Run {
    let all = || flows.iter().copied().zip(outcomes);
    let transfers: Vec<_> = all().filter(|(flow, _)| flow.transfers()).collect();
    let mut metrics = goodput(&transfers);
    for (flow, outcome) in all().filter(|(flow, _)| !flow.transfers()) {
        metrics.extend(reported_metrics(flow, outcome, flows.len() == 1));
    }
    let Some((flow, _)) = transfers.first() else {
        return Run {
            metrics,
            ..Run::default()
        };
    };
    let retransmits = retransmits(&transfers, recording, topology);
    metrics.insert(registry::RETRANSMITS.to_owned(), retransmits);
    metrics.extend(statistic::of(scenario, topology, recording));
    let begin = begin_s(flow);
    let mut series = total_goodput(&transfers, begin, recording);
    series.legs = legs::of(scenario, topology, recording);
    series.time_series = time_series::drawn_series(scenario, topology, recording);
    series.begin_s = begin;
    series.events = events;
    Run {
        metrics,
        series: Some(series),
        ..Run::default()
    }
}

/// Seconds into the run from which `flow` counts.
fn begin_s(flow: &Flow) -> f64 {
    (flow.start + flow.omit.unwrap_or_default()).as_secs_f64()
}

/// Goodput from `begin` seconds on, summed over all receiving hosts.
fn total_goodput(transfers: &[(&Flow, &Outcome)], begin: f64, recording: &Recording) -> Series {
    let mut sum = Series::default();
    let receivers: BTreeSet<&String> = transfers.iter().map(|(flow, _)| &flow.to).collect();
    for receiver in receivers {
        let arriving_here = || transfers.iter().filter(|(flow, _)| flow.to == *receiver);
        let bytes = arriving_here().map(|(_, outcome)| outcome.bytes).sum();
        let ends = arriving_here().map(|(flow, outcome)| begin_s(flow) + outcome.seconds);
        let end = ends.fold(begin, f64::max);
        let series = recording.series(receiver, begin, bytes, end - begin);
        sum.bin_ms = series.bin_ms;
        let bins = sum.goodput_bps.len().max(series.goodput_bps.len());
        sum.goodput_bps.resize(bins, 0.0);
        for (all, here) in sum.goodput_bps.iter_mut().zip(series.goodput_bps) {
            *all += here;
        }
    }
    sum
}

/// Goodput of all transfers, and of each if there are several. Empty without transfers.
fn goodput(transfers: &[(&Flow, &Outcome)]) -> Metrics {
    let mut metrics = Metrics::new();
    let rate = |outcome: &Outcome| outcome.bytes as f64 * 8.0 / outcome.seconds;
    if let [(_, only)] = transfers {
        metrics.extend(only.extra.clone());
    }
    if !transfers.is_empty() {
        let sum = transfers.iter().map(|(_, outcome)| rate(outcome)).sum();
        metrics.insert(registry::GOODPUT.to_owned(), sum);
    }
    for (flow, outcome) in transfers.iter().filter(|_| transfers.len() > 1) {
        metrics.insert(
            registry::metric_name(&flow.name, registry::GOODPUT, false),
            rate(outcome),
        );
        metrics.extend(reported_metrics(flow, outcome, false));
    }
    if share_a_path(transfers) {
        let rates = connection_rates(transfers);
        let jain = fairness::jain(&rates).map(|index| (registry::JAIN.to_owned(), index));
        let slowest = fairness::slowest(&rates).map(|share| (registry::SLOWEST.to_owned(), share));
        metrics.extend(jain.into_iter().chain(slowest));
    }
    metrics
}

/// Whether all transfers have the same source and destination, so that they share the capacity.
fn share_a_path(transfers: &[(&Flow, &Outcome)]) -> bool {
    let ends = |(flow, _): &(&Flow, &Outcome)| (flow.from.clone(), flow.to.clone());
    transfers
        .windows(2)
        .all(|two| ends(&two[0]) == ends(&two[1]))
}

/// Rates of all connections, in bits a second. A program that does not report each connection has one rate.
fn connection_rates(transfers: &[(&Flow, &Outcome)]) -> Vec<f64> {
    let rates = |outcome: &Outcome| {
        if outcome.connections_bps.is_empty() {
            vec![outcome.bytes as f64 * 8.0 / outcome.seconds]
        } else {
            outcome.connections_bps.clone()
        }
    };
    let all = transfers.iter();
    all.flat_map(|(_, outcome)| rates(outcome)).collect()
}

/// Metrics that only the flow's program reports, with the flow's name unless it is `alone`.
fn reported_metrics(flow: &Flow, outcome: &Outcome, alone: bool) -> Metrics {
    let figures = outcome.extra.iter();
    figures
        .map(|(figure, value)| (registry::metric_name(&flow.name, figure, alone), *value))
        .collect()
}

/// Retransmitted segments: the count of the samples on all legs or of the programs, whichever is
/// larger.
fn retransmits(transfers: &[(&Flow, &Outcome)], recording: &Recording, topology: &Topology) -> f64 {
    let hosts = topology.hosts.iter();
    let seen: u64 = hosts.map(|host| recording.retransmits(host)).sum();
    let reported: Option<u64> = transfers
        .iter()
        .map(|(_, outcome)| outcome.retransmits)
        .sum();
    reported.map_or(seen, |reported| reported.max(seen)) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::Sample;
    use longhaul_linux::sock_diag::Connection;
    use std::sync::Arc;

    fn flow(name: &str) -> Flow {
        toml::from_str(&format!(
            "name = '{name}'\nprogram = 'iperf3'\nfrom = 'a'\nto = 'b'"
        ))
        .unwrap()
    }

    fn outcome(connections_bps: &[f64]) -> Outcome {
        Outcome {
            bytes: 1000,
            seconds: 1.0,
            retransmits: None,
            connections_bps: connections_bps.to_vec(),
            extra: Metrics::from([("first_byte_s".to_owned(), 0.5)]),
        }
    }

    #[test]
    fn metrics_of_several_transfers_have_their_names() {
        let (a, b) = (flow("a"), flow("b"));
        let (one, two) = (outcome(&[]), outcome(&[]));
        let metrics = goodput(&[(&a, &one), (&b, &two)]);
        assert_eq!(metrics["goodput_bps"], 16_000.0);
        assert_eq!(metrics["b_goodput_bps"], 8000.0);
        assert_eq!(metrics["a_first_byte_s"], 0.5);
        assert_eq!(goodput(&[(&a, &one)])["first_byte_s"], 0.5);
    }

    #[test]
    fn sums_goodput_over_both_receiving_hosts() {
        let arriving_here = flow("there");
        let back = Flow {
            from: "b".to_owned(),
            to: "a".to_owned(),
            ..flow("back")
        };
        let sample = |host: &str, at_s, bytes_received| Sample {
            at_s,
            host: Arc::from(host),
            connection: Connection {
                bytes_received,
                ..Connection::between(([10, 9, 0, 1], 1).into(), ([10, 9, 0, 2], 2).into())
            },
        };
        let ends = ["a", "b"].map(|host| sample(host, 1.0, 1000));
        let recording = Recording::new(ends.to_vec());
        let (one, two) = (outcome(&[]), outcome(&[]));
        let time_series = total_goodput(&[(&arriving_here, &one), (&back, &two)], 0.0, &recording);
        assert_eq!(time_series.goodput_bps.len(), 10);
        assert!(
            (time_series.goodput_bps[9] - 16_000.0).abs() < 1.0,
            "{time_series:?}"
        );
    }

    #[test]
    fn fairness_is_computed_over_connections() {
        let (a, b) = (flow("a"), flow("b"));
        let of_both =
            |one: &[f64], two: &[f64]| goodput(&[(&a, &outcome(one)), (&b, &outcome(two))]);
        assert_eq!(of_both(&[5.0, 5.0], &[5.0])["jain_ratio"], 1.0);
        assert_eq!(of_both(&[9.0, 0.0], &[0.0])["jain_ratio"], 1.0 / 3.0);
        assert_eq!(of_both(&[9.0, 6.0], &[3.0])["slowest_ratio"], 1.0 / 3.0);
        assert!(!goodput(&[(&a, &outcome(&[5.0]))]).contains_key("jain_ratio"));
        let elsewhere = Flow {
            from: "c".to_owned(),
            ..flow("c")
        };
        let metrics = |other| goodput(&[(&a, &outcome(&[])), (other, &outcome(&[]))]);
        assert!(metrics(&b).contains_key("jain_ratio"));
        assert!(!metrics(&elsewhere).contains_key("jain_ratio"));
    }
}
