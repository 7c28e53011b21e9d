// SPDX-License-Identifier: MIT OR Apache-2.0
//! Metrics and time series of a run, from what its programs reported and from the samples. The metrics of `[[measure]]` are
//! statistics over time series, such as the rate after a switch or the settling time.

use super::{
    Flows, Recording,
    time_series::{self, Bins},
};
use crate::{
    network::{Topology, link},
    scenario::{
        Flow, LinkKind, MeasureSpec, Scenario,
        measure::{Level, Stat, level},
    },
};
use longhaul_report::registry;
use longhaul_results::result::{Event, Metrics, Run, Series};
use longhaul_stats::{fairness, sample};
use longhaul_units::Time;
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
    metrics.extend(measured_metrics(scenario, topology, recording));
    let begin = begin_s(flow);
    let mut series = total_goodput(&transfers, begin, recording);
    series.legs = time_series::legs(scenario, topology, recording);
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

/// Computes every measure of a run whose part of the run has at least one whole bin.
pub(crate) fn measured_metrics(
    scenario: &Scenario,
    topology: &Topology,
    recording: &Recording,
) -> Metrics {
    let flows = Flows::of(scenario, topology);
    let context = MeasureContext {
        scenario,
        topology,
        flows,
    };
    let value = |spec: &MeasureSpec| {
        let value = spec.value(&context, recording)?;
        Some((spec.name.clone(), value))
    };
    scenario.measure.iter().filter_map(value).collect()
}

/// Scenario of a run, with its flows identified.
pub(crate) struct MeasureContext<'a> {
    pub(crate) scenario: &'a Scenario,
    pub(crate) topology: &'a Topology,
    pub(crate) flows: Flows<'a>,
}

impl MeasureSpec {
    fn value(&self, context: &MeasureContext<'_>, recording: &Recording) -> Option<f64> {
        let flow_numbers = self.flow_numbers(context);
        let bins = self.bins(recording.end_s());
        let all = time_series::values(self.metric, &context.flows, &flow_numbers, recording, bins);
        let values = || all.iter().flatten().copied();
        let quantile = |share| sample::quantile(&sample::sorted(values()), share);
        match self.stat {
            Stat::SettlingTime => {
                let level = self.level(context)?;
                settling_time(&all, level, bins.width_s, self.hold.map(Time::as_secs_f64))
            }
            Stat::Mean => sample::mean(values()),
            Stat::Median => sample::median(&sample::sorted(values())),
            Stat::Min => quantile(0.0),
            Stat::Max => quantile(1.0),
            Stat::P05 => quantile(0.05),
            Stat::P95 => quantile(0.95),
        }
    }

    fn bins(&self, end_s: f64) -> Bins {
        let end = self.to.map_or(end_s, |to| to.as_secs_f64().min(end_s));
        Bins::between(self.from.as_secs_f64(), end, self.bin.as_secs_f64())
    }

    pub(crate) fn flow_numbers(&self, context: &MeasureContext<'_>) -> Vec<usize> {
        context.flows.select_transfers(self.flow.as_deref())
    }

    /// Capacity of the slowest link on the path of the first flow, in bits a second.
    pub(crate) fn capacity(&self, context: &MeasureContext<'_>) -> Option<f64> {
        let flow = context.flows.all[*self.flow_numbers(context).first()?];
        slowest_link_rate(context.scenario, context.topology, flow)
    }

    fn level(&self, context: &MeasureContext<'_>) -> Option<f64> {
        match level(self.target.as_ref()?, self.metric)? {
            Level::Share(share) => Some(share * self.capacity(context)?),
            Level::Value(value) => Some(value),
        }
    }
}

/// Rate of the slowest link on the flow's path, in bits a second.
fn slowest_link_rate(scenario: &Scenario, topology: &Topology, flow: &Flow) -> Option<f64> {
    let path = topology.path(&flow.from, &flow.to)?;
    let rate = |pair: &[String]| {
        let index = topology.between(&pair[0], &pair[1])?;
        let link = &scenario.links[index];
        if link.kind == LinkKind::Veth {
            return None;
        }
        let [link_config, _] = link::configs_from(link, &pair[0]).ok()?;
        link_config.rate.mean().map(|rate| rate.bits() as f64)
    };
    path.windows(2).filter_map(rate).min_by(f64::total_cmp)
}

/// Settling time: the end of the first bin from which on all bins, for `hold_s` seconds, reach the
/// level. The length of all bins if there is none; `None` without bins.
fn settling_time(
    values: &[Option<f64>],
    level: f64,
    width_s: f64,
    hold_s: Option<f64>,
) -> Option<f64> {
    let reached = |value: &Option<f64>| value.is_some_and(|value| value >= level);
    let bins_to_hold = hold_s.map(|hold| ((hold / width_s).ceil() as usize).max(1));
    let stays_reached = |n: &usize| {
        let rest = &values[*n..];
        // A hold that the end of the run cuts short counts as met.
        rest[..bins_to_hold.unwrap_or(rest.len()).min(rest.len())]
            .iter()
            .all(reached)
    };
    let bins = (0..values.len())
        .find(stays_reached)
        .map_or(values.len(), |n| n + 1);
    (!values.is_empty()).then_some(bins as f64 * width_s)
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

#[cfg(test)]
mod statistic_tests {
    use super::*;

    #[test]
    fn settling_time_requires_the_level_to_hold() {
        let values = [1.0, 9.0, 2.0, 9.0, 9.0, 9.0, 1.0].map(Some);
        assert_eq!(settling_time(&values, 9.0, 0.5, Some(0.5)), Some(1.0));
        assert_eq!(settling_time(&values, 9.0, 0.5, Some(1.0)), Some(2.0));
        assert_eq!(settling_time(&values[..6], 9.0, 0.5, None), Some(2.0));
        assert_eq!(
            settling_time(&values, 9.0, 0.5, None),
            Some(3.5),
            "never: the whole length"
        );
        assert_eq!(settling_time(&[None, Some(9.0)], 9.0, 1.0, None), Some(2.0));
        assert_eq!(settling_time(&[], 9.0, 1.0, None), None);
    }
}
