// SPDX-License-Identifier: MIT OR Apache-2.0
//! Time series of one or more flows over a run, in even bins, from ten samples of TCP_INFO a second. Beside them are
//! the congestion windows and round-trip times of legs: for a single flow, those of all its legs; for several flows, which may
//! differ only in their congestion control, only that of each sender.

use super::{
    Flows, Recording, Sample,
    connections::{FlowEndpoint, connections_of},
    recording::{at_time, leg},
};
use crate::{
    network::Topology,
    scenario::{Flow, Scenario, measure::TimeSeriesMetric},
};
use indexmap::IndexMap;
use longhaul_report::scale::round_step;
use longhaul_results::{
    result::LegSeries,
    view::{TimeSeries, TimeSeriesId},
};
use longhaul_stats::{fairness::jain, sample::mean};
use longhaul_units::Time;
use std::collections::BTreeSet;

/// Bins of equal width over a part of a run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Bins {
    /// Seconds from the start of the run.
    pub(crate) begin_s: f64,
    pub(crate) width_s: f64,
    pub(crate) count: usize,
}

impl Bins {
    /// Returns the whole bins between two times. They are at least 0.1 s wide, the sampling
    /// interval.
    pub(crate) fn between(begin_s: f64, end_s: f64, width_s: f64) -> Self {
        let width_s = width_s.max(0.1);
        // The epsilon keeps the last bin despite rounding.
        let count = ((end_s - begin_s) / width_s + 1e-6).floor().max(0.0) as usize;
        Self {
            begin_s,
            width_s,
            count,
        }
    }

    fn edges(self) -> impl Iterator<Item = (f64, f64)> {
        let edge = move |n: usize| self.begin_s + n as f64 * self.width_s;
        (0..self.count).map(move |n| (edge(n), edge(n + 1)))
    }
}

/// Returns the metric of the flows in each bin; `None` without samples.
pub(crate) fn values(
    metric: TimeSeriesMetric,
    flows: &Flows<'_>,
    flow_numbers: &[usize],
    recording: &Recording,
    bins: Bins,
) -> Vec<Option<f64>> {
    let endpoint = |number: &usize| {
        if metric.is_sampled_at_sender() {
            flows.sender(*number)
        } else {
            flows.receiver(*number)
        }
    };
    let endpoints: Vec<FlowEndpoint<'_>> = flow_numbers.iter().map(endpoint).collect();
    let connections: Vec<Connection> = connections_of(&endpoints, recording)
        .into_iter()
        .filter_map(|samples| Connection::of(&samples))
        .collect();
    let all: Vec<&Connection> = match metric {
        TimeSeriesMetric::GoodputBps | TimeSeriesMetric::RetransmitsPerS => {
            connections.iter().collect()
        }
        _ => data_connections(&connections),
    };
    bins.edges().map(|span| value(metric, &all, span)).collect()
}

/// Connections that carry data. iperf3 has one more, its control connection.
fn data_connections(all: &[Connection]) -> Vec<&Connection> {
    let most = all.iter().map(|one| one.carried_bytes).fold(0.0, f64::max);
    all.iter()
        .filter(|one| one.carried_bytes * 1000.0 >= most && most > 0.0)
        .collect()
}

/// Samples of one end of a connection.
#[derive(Debug)]
struct Connection {
    /// Bytes carried in total, in the direction of the data.
    carried_bytes: f64,
    at_s: Vec<f64>,
    cwnd_bytes: Vec<f64>,
    srtt_us: Vec<f64>,
    received: Vec<(f64, f64)>,
    retransmits: Vec<(f64, f64)>,
}

impl Connection {
    fn of(samples: &[Sample]) -> Option<Self> {
        let (first, last) = (samples.first()?, samples.last()?);
        let counter = |of: fn(&Sample) -> f64| {
            // The counters were zero one sample before the first.
            let before = (first.at_s - 0.1, 0.0);
            let rest = samples.iter().map(|sample| (sample.at_s, of(sample)));
            std::iter::once(before).chain(rest).collect()
        };
        let all = |of: fn(&Sample) -> f64| samples.iter().map(of).collect();
        let ended = &last.connection;
        Some(Self {
            carried_bytes: ended.bytes_acked.max(ended.bytes_received) as f64,
            at_s: all(|sample| sample.at_s),
            cwnd_bytes: all(|sample| sample.connection.cwnd_bytes as f64),
            srtt_us: all(|sample| sample.connection.rtt_us.into()),
            received: counter(|sample| sample.connection.bytes_received as f64),
            retransmits: counter(|sample| sample.connection.retransmits.into()),
        })
    }

    /// Growth of a counter per second.
    fn rate(points: &[(f64, f64)], (begin, end): (f64, f64)) -> f64 {
        (at_time(points, end) - at_time(points, begin)) / (end - begin)
    }

    /// Returns the mean of the samples in the span; `None` without samples.
    fn mean(&self, of: &[f64], (begin, end): (f64, f64)) -> Option<f64> {
        let first = self.at_s.partition_point(|at| *at < begin);
        let last = self.at_s.partition_point(|at| *at < end);
        mean(of[first..last].iter().copied())
    }

    /// Whether samples cover the span from its beginning to its end, with some slack.
    fn covers(&self, (begin, end): (f64, f64)) -> bool {
        let slack = (0.25 * (end - begin)).max(0.2);
        let (first, last) = (self.at_s.first(), self.at_s.last());
        first.is_some_and(|at| *at <= begin + slack) && last.is_some_and(|at| *at >= end - slack)
    }
}

fn value(metric: TimeSeriesMetric, all: &[&Connection], span: (f64, f64)) -> Option<f64> {
    let each = |of: fn(&Connection) -> &Vec<f64>| {
        all.iter().filter_map(move |one| one.mean(of(one), span))
    };
    match metric {
        TimeSeriesMetric::GoodputBps => sum(all
            .iter()
            .map(|one| 8.0 * Connection::rate(&one.received, span))),
        TimeSeriesMetric::RetransmitsPerS => sum(all
            .iter()
            .map(|one| Connection::rate(&one.retransmits, span))),
        TimeSeriesMetric::CwndBytes => sum(each(|one| &one.cwnd_bytes)),
        TimeSeriesMetric::SrttUs => mean(each(|one| &one.srtt_us)),
        TimeSeriesMetric::JainRatio => {
            let present = all.iter().filter(|one| one.covers(span));
            jain(
                &present
                    .map(|one| Connection::rate(&one.received, span))
                    .collect::<Vec<_>>(),
            )
        }
    }
}

fn sum(values: impl Iterator<Item = f64>) -> Option<f64> {
    values.fold(None, |sum, value| Some(sum.unwrap_or(0.0) + value))
}

/// Time series of one run that the scenario's figures draw, each once, in the finest bins that any
/// figure needs.
pub(crate) fn drawn_series(
    scenario: &Scenario,
    topology: &Topology,
    recording: &Recording,
) -> Vec<TimeSeries> {
    let flows = Flows::of(scenario, topology);
    let end_s = recording.end_s();
    let mut wanted: IndexMap<(String, Option<String>), (TimeSeriesMetric, f64)> = IndexMap::new();
    if scenario.figure.is_empty() {
        let goodput = TimeSeriesMetric::GoodputBps;
        wanted.extend(default_flows(&flows).into_iter().map(|flow| {
            let name = (goodput.name().to_owned(), Some(flow));
            (name, (goodput, round_width(end_s / 300.0)))
        }));
    }
    for spec in &scenario.figure {
        let width = spec
            .bin
            .map_or_else(|| round_width(end_s / 300.0), Time::as_secs_f64);
        for (metric, TimeSeriesId { metric: of, flow }) in spec.time_series_ids() {
            let entry = wanted.entry((of, flow)).or_insert((metric, width));
            entry.1 = entry.1.min(width);
        }
    }
    let time_series = |((of, flow), (metric, width)): (_, (TimeSeriesMetric, f64))| {
        let flow: Option<String> = flow;
        let flow_numbers = flows.select_transfers(flow.as_deref());
        let bins = Bins::between(
            0.0,
            end_s,
            width.max(round_width(end_s / TimeSeries::BINS_MAX as f64)),
        );
        (!flow_numbers.is_empty()).then(|| TimeSeries {
            name: TimeSeriesId { metric: of, flow },
            bin_ms: bins.width_s * 1e3,
            values: values(metric, &flows, &flow_numbers, recording, bins),
        })
    };
    wanted.into_iter().filter_map(time_series).collect()
}

/// Flows whose goodput is drawn if the scenario has no figures, as far as samples identify them.
fn default_flows(flows: &Flows<'_>) -> Vec<String> {
    let transfers = flows.select_transfers(None);
    let is_identified = |number: &&usize| {
        let receiver = flows.receiver(**number);
        let mut others = transfers.iter().filter(|other| other != number);
        !others.any(|other| receiver.is_ambiguous_with(&flows.receiver(*other)))
    };
    let several = transfers.len() > 1;
    let drawn = transfers.iter().filter(|_| several).filter(is_identified);
    let name = |number: &usize| flows.all[*number].name.clone();
    drawn.take(FLOWS_MAX).map(name).collect()
}

/// Rounds up to 0.1, 0.2, 0.5, 1, 2, 5 … seconds.
fn round_width(width_s: f64) -> f64 {
    round_step(width_s.max(0.1))
}

/// Most flows whose legs are stored and drawn. Each costs some 20 KB of `result.json` per run; the
/// legs of others are only in the raw records.
const FLOWS_MAX: usize = 8;

/// Returns the legs of one run, flow by flow, each in the order of its path.
pub(super) fn legs(
    scenario: &Scenario,
    topology: &Topology,
    recording: &Recording,
) -> Vec<LegSeries> {
    let flows = Flows::of(scenario, topology);
    let mut all = Vec::new();
    let mut drawn_pairs = BTreeSet::new();
    let mut drawn_senders: Vec<usize> = Vec::new();
    let transfers = flows.select_transfers(None);
    // Only TCP has these windows.
    let tcp = transfers
        .iter()
        .filter(|number| flows.all[**number].program.is_tcp());
    for number in tcp.copied().take(FLOWS_MAX) {
        let flow = flows.all[number];
        let ends = path_ends(scenario, flow, topology);
        let mut pairs = ends.windows(2);
        let ambiguous = |other: &usize| {
            flows
                .sender(number)
                .is_ambiguous_with(&flows.sender(*other))
        };
        if transfers.len() > 1 {
            // Flows with the same sender cannot be told apart: they share one line.
            let (true, Some(first)) = (!drawn_senders.iter().any(ambiguous), pairs.next()) else {
                continue;
            };
            let same = transfers.iter().copied().filter(|other| ambiguous(other));
            let name = leg_name(
                &same.map(|other| flows.all[other]).collect::<Vec<_>>(),
                first,
            );
            let samples: Vec<Sample> = flows.sender(number).connections(recording).concat();
            all.extend(leg(samples.iter(), name));
            drawn_senders.push(number);
        }
        // The kernel of a relay cannot assign forwarded bytes to flows. The busiest connection
        // stands for all of them, once.
        for pair in pairs.filter(|pair| drawn_pairs.insert([pair[0].clone(), pair[1].clone()])) {
            all.extend(recording.leg(&pair[0], format!("{}–{}", pair[0], pair[1])));
        }
    }
    all
}

/// Formats a name such as "bulk (reno) a–b", or "get, put a–b" for flows with the same sender.
fn leg_name(flows: &[&Flow], ends: &[String]) -> String {
    let names: Vec<&str> = flows.iter().map(|flow| flow.name.as_str()).collect();
    let control = flows.first().and_then(|flow| flow.cc.as_ref());
    let control = control.map_or(String::new(), |control| format!(" ({control})"));
    format!("{}{control} {}–{}", names.join(", "), ends[0], ends[1])
}

/// Hosts that terminate a TCP connection of `flow`, from its source to its destination.
fn path_ends(scenario: &Scenario, flow: &Flow, topology: &Topology) -> Vec<String> {
    let path = topology.path(&flow.from, &flow.to).unwrap_or_default();
    let ends = |host: &String| *host == flow.from || *host == flow.to || scenario.relays_on(host);
    path.into_iter().filter(ends).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::{network::Topology, scenario::Scenario};
    use longhaul_linux::sock_diag;
    use std::sync::Arc;

    /// Sample of a connection of the flow with the server port `server`, at the host of the server.
    pub(crate) fn sample(at_s: f64, host: &str, server: u16, client: u16, received: u64) -> Sample {
        let (local, remote) = (
            ([10, 9, 0, 2], server).into(),
            ([10, 9, 0, 1], client).into(),
        );
        let connection = sock_diag::Connection {
            congestion: "cubic".to_owned(),
            rtt_us: 20_000,
            min_rtt_us: 900,
            cwnd_bytes: received / 100,
            retransmits: u32::try_from(received / 1_000_000).unwrap(),
            bytes_received: received,
            ..sock_diag::Connection::between(local, remote)
        };
        Sample {
            at_s,
            host: Arc::from(host),
            connection,
        }
    }

    /// Scenario with two iperf3 uploads from a to b.
    pub(crate) const SCENARIO: &str = "title = 't'\nquestion = 'q'\n\
        [[links]]\nname = 'wan'\nendpoints = ['a', 'b']\nrate = '40mbit'\n\
        [[flows]]\nname = 'one'\nprogram = 'iperf3'\nfrom = 'a'\nto = 'b'\nduration = '10s'\n\
        direction = 'upload'\n[[flows]]\nname = 'two'\nprogram = 'iperf3'\nfrom = 'a'\nto = 'b'\n\
        duration = '10s'\ndirection = 'upload'\n";

    /// Ten seconds with two connections of flow 0 at these rates (bytes a second), and one
    /// connection of flow 1 that carries 1 MB/s.
    pub(crate) fn two_flows(first: u64, second: u64) -> Recording {
        let samples = (1..=100).flat_map(|n: u64| {
            let at_s = n as f64 / 10.0;
            [
                sample(at_s, "b", 5201, 40_000, first * n / 10),
                sample(at_s, "b", 5201, 40_001, second * n / 10),
                sample(at_s, "b", 5201, 40_002, 300),
                sample(at_s, "b", 5202, 40_003, 100_000 * n),
            ]
        });
        Recording::new(samples.collect())
    }

    fn of(metric: TimeSeriesMetric, flow_numbers: &[usize], bins: Bins) -> Vec<Option<f64>> {
        let scenario: Scenario = toml::from_str(SCENARIO).unwrap();
        let flows = Flows::of(&scenario, &Topology::of(&scenario));
        values(
            metric,
            &flows,
            flow_numbers,
            &two_flows(3_000_000, 1_000_000),
            bins,
        )
    }

    #[test]
    fn computes_goodput_per_flow_and_bin() {
        let rates = |flow_numbers: &[usize]| -> Vec<f64> {
            let bins = Bins::between(2.0, 5.0, 1.0);
            let all = of(TimeSeriesMetric::GoodputBps, flow_numbers, bins).into_iter();
            all.map(|rate| (rate.unwrap() / 1e5).round() / 10.0)
                .collect()
        };
        assert_eq!(rates(&[0]), [32.0, 32.0, 32.0]);
        assert_eq!(rates(&[1]), [8.0, 8.0, 8.0]);
        assert_eq!(rates(&[0, 1]), [40.0, 40.0, 40.0]);
    }

    #[test]
    fn ignores_the_control_connection_of_iperf3() {
        let bins = Bins::between(2.0, 4.0, 2.0);
        let jain = of(TimeSeriesMetric::JainRatio, &[0], bins)[0].unwrap();
        assert!((jain - 0.8).abs() < 1e-6, "{jain}");
        assert_eq!(of(TimeSeriesMetric::JainRatio, &[1], bins), [None]);
    }

    #[test]
    fn sender_metrics_need_samples_of_the_sending_host() {
        let bins = Bins::between(0.0, 10.0, 1.0);
        assert_eq!(
            of(TimeSeriesMetric::CwndBytes, &[0], bins)[3],
            None,
            "no samples of host a"
        );
        assert!(
            TimeSeriesMetric::SrttUs.is_sampled_at_sender()
                && !TimeSeriesMetric::GoodputBps.is_sampled_at_sender()
        );
    }

    #[test]
    fn only_whole_bins_count() {
        assert_eq!(Bins::between(1.0, 3.9, 1.0).count, 2);
        assert_eq!(Bins::between(0.0, 0.3, 0.1).count, 3);
        assert_eq!(Bins::between(5.0, 3.0, 1.0).count, 0);
        assert_eq!(Bins::between(0.0, 1.0, 0.001).count, 10);
    }

    #[test]
    fn rounds_bin_widths() {
        assert_eq!(
            [0.0, 0.1, 0.11, 0.3, 0.7, 3.0].map(round_width),
            [0.1, 0.1, 0.2, 0.5, 1.0, 5.0]
        );
    }
}

#[cfg(test)]
mod leg_tests {
    use super::tests::sample;
    use super::*;

    const LINKS: &str = "title = 't'\nquestion = 'q'\n\
        [[links]]\nname = 'near'\nendpoints = ['a', 'r']\n\
        [[links]]\nname = 'far'\nendpoints = ['r', 'b']\n";

    fn scenario(flows: &[&str], relay: bool) -> Scenario {
        let flow = |(n, keys): (usize, &&str)| {
            format!("[[flows]]\nname = 'f{n}'\nfrom = 'a'\nto = 'b'\nsize = '1MB'\n{keys}\n")
        };
        let flows: String = flows.iter().enumerate().map(flow).collect();
        let relay = if relay {
            "[relays.r]\nenabled = true\n"
        } else {
            ""
        };
        toml::from_str(&[LINKS, relay, &flows].concat()).unwrap()
    }

    fn names(flows: &[&str], relay: bool, samples: Vec<Sample>) -> Vec<String> {
        let scenario = scenario(flows, relay);
        let legs = legs(
            &scenario,
            &Topology::of(&scenario),
            &Recording::new(samples),
        );
        legs.into_iter().map(|leg| leg.name).collect()
    }

    /// Samples of iperf3 servers, which send a download, at these ports.
    fn sent(ports: &[u16]) -> Vec<Sample> {
        let samples = ports.iter();
        samples
            .map(|port| sample(1.0, "a", *port, 40_000, 1000))
            .collect()
    }

    #[test]
    fn flows_between_the_same_hosts_have_one_leg_each() {
        let (reno, bic) = (
            "program = 'iperf3'\ncc = 'reno'",
            "program = 'iperf3'\ncc = 'lh_bic'",
        );
        assert_eq!(
            names(&[reno, bic], false, sent(&[5201, 5202])),
            ["f0 (reno) a–b", "f1 (lh_bic) a–b"]
        );
        assert_eq!(names(&[reno], false, sent(&[5201])), ["a–b"]);
    }

    #[test]
    fn flows_with_the_same_sender_share_a_leg() {
        let curl = "program = 'curl'";
        assert_eq!(names(&[curl, curl], false, sent(&[80])), ["f0, f1 a–b"]);
    }

    #[test]
    fn leg_of_a_relay_is_drawn_once() {
        let flow = "program = 'iperf3'";
        let relayed = sample(1.0, "r", 50_000, 5201, 1000);
        let samples = [sent(&[5201, 5202]), vec![relayed]].concat();
        assert_eq!(
            names(&[flow, flow], true, samples),
            ["f0 a–r", "r–b", "f1 a–r"]
        );
    }
}
