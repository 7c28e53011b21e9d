// SPDX-License-Identifier: MIT OR Apache-2.0
//! Congestion windows and round-trip times for the report. A single flow has all its legs. Of
//! several flows, each has the leg of its sender, since they may differ only in their congestion
//! control.

use super::{Flows, Recording, Sample, recording};
use crate::{
    network::Topology,
    scenario::{Flow, Scenario},
};
use longhaul_results::result::LegSeries;
use std::collections::BTreeSet;

/// Most flows whose legs are stored and drawn. Each costs some 20 KB of `result.json` per run; the
/// legs of others are only in the raw records.
pub(crate) const FLOWS_MAX: usize = 8;

/// Returns the legs of one run, flow by flow, each in the order of its path.
pub(crate) fn of(
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
        let ends = ends(scenario, flow, topology);
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
            let name = name(
                &same.map(|other| flows.all[other]).collect::<Vec<_>>(),
                first,
            );
            let samples: Vec<Sample> = flows.sender(number).connections(recording).concat();
            all.extend(recording::leg(samples.iter(), name));
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
fn name(flows: &[&Flow], ends: &[String]) -> String {
    let names: Vec<&str> = flows.iter().map(|flow| flow.name.as_str()).collect();
    let control = flows.first().and_then(|flow| flow.cc.as_ref());
    let control = control.map_or(String::new(), |control| format!(" ({control})"));
    format!("{}{control} {}–{}", names.join(", "), ends[0], ends[1])
}

/// Hosts that terminate a TCP connection of `flow`, from its source to its destination.
fn ends(scenario: &Scenario, flow: &Flow, topology: &Topology) -> Vec<String> {
    let path = topology.path(&flow.from, &flow.to).unwrap_or_default();
    let ends = |host: &String| *host == flow.from || *host == flow.to || scenario.relays_on(host);
    path.into_iter().filter(ends).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::time_series::tests::sample;

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
        let legs = of(
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
