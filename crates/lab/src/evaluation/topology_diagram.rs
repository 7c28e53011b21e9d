// SPDX-License-Identifier: MIT OR Apache-2.0
//! Topology diagram of the report. It shows the path of the first flow, and the paths of other
//! flows that use further links. Each link has the range of its options over all cells.

use crate::{
    network::{Topology, link},
    scenario::{Link, LinkKind, Scenario},
};
use longhaul_results::result::{Testbed, TestbedHost, TestbedLink};
use std::collections::BTreeSet;

/// Diagram of the testbeds of all cells. Empty if no enabled flow has a path.
pub(crate) fn testbed(scenarios: &[&Scenario]) -> Testbed {
    let mut flow_paths = scenarios
        .iter()
        .flat_map(|scenario| flow_paths(scenario))
        .collect::<Vec<_>>();
    let firsts = scenarios.iter().filter_map(|scenario| first_path(scenario));
    let Some(first) = firsts.reduce(|longest, path| {
        if path.len() > longest.len() {
            path
        } else {
            longest
        }
    }) else {
        return Testbed::default();
    };
    let mut seen = hops(&first);
    flow_paths.retain(|path| {
        let new = hops(path);
        let is_new = !new.is_subset(&seen);
        seen.extend(new);
        is_new
    });
    Testbed {
        other_paths: flow_paths
            .iter()
            .map(|path| diagram(path, scenarios))
            .collect(),
        ..diagram(&first, scenarios)
    }
}

/// Hosts on the path of each enabled flow.
fn flow_paths(scenario: &Scenario) -> Vec<Vec<String>> {
    let topology = Topology::of(scenario);
    let flows = scenario.flows.iter().filter(|flow| flow.enabled);
    flows
        .filter_map(|flow| topology.path(&flow.from, &flow.to))
        .collect()
}

fn first_path(scenario: &Scenario) -> Option<Vec<String>> {
    flow_paths(scenario).into_iter().next()
}

/// Pairs of neighbours, regardless of direction.
fn hops(path: &[String]) -> BTreeSet<[String; 2]> {
    let pair = |two: &[String]| {
        let mut pair = [two[0].clone(), two[1].clone()];
        pair.sort();
        pair
    };
    path.windows(2).map(pair).collect()
}

fn diagram(path: &[String], scenarios: &[&Scenario]) -> Testbed {
    let note = |name: &String| {
        let mut notes = scenarios
            .iter()
            .filter_map(|scenario| scenario.hosts.get(name)?.note.clone());
        notes.next()
    };
    let host = |name: &String| TestbedHost {
        name: name.clone(),
        note: note(name),
    };
    let link = |pair: &[String]| {
        scenarios
            .iter()
            .filter_map(|scenario| link_in_cell(scenario, pair))
            .reduce(|one, other| combine(one, &other))
    };
    Testbed {
        hosts: path.iter().map(host).collect(),
        links: path.windows(2).filter_map(link).collect(),
        other_paths: Vec::new(),
    }
}

/// Link from a host to its neighbour in one cell.
fn link_in_cell(scenario: &Scenario, pair: &[String]) -> Option<TestbedLink> {
    let topology = Topology::of(scenario);
    let index = topology.between(&pair[0], &pair[1])?;
    let link = &scenario.links[index];
    Some(describe_link(link, &pair[0]))
}

/// Describes a link with its rate, loss and queue in the direction away from the host `from`. The
/// RTT is the sum of the delays of both directions, as a ping measures it.
fn describe_link(link: &Link, from: &str) -> TestbedLink {
    let plain = TestbedLink {
        name: link.name.clone(),
        ..TestbedLink::default()
    };
    let link_configs = (link.kind == LinkKind::Emulated).then(|| link::configs_from(link, from));
    let Some(Ok([link_config, back])) = link_configs else {
        return plain;
    };
    let rtt = link_config.delay + back.delay;
    let rate = link_config.rate.mean();
    let queue = link_config.queue_capacity().bytes;
    TestbedLink {
        rate_bps: rate.map(|rate| rate.bits() as f64),
        rtt_us: rtt.as_secs_f64() * 1e6,
        loss: link_config.loss.mean(),
        queue_bytes: (rate.is_some() && queue < u64::MAX).then_some(queue as f64),
        ..plain
    }
}

/// Combines the descriptions of one link in two cells: the minimum of rate, RTT and loss, and the
/// maximum where they differ. The queue is that of `one`.
fn combine(one: TestbedLink, other: &TestbedLink) -> TestbedLink {
    let (rate_bps, rate_bps_max) = match (one.rate_bps, other.rate_bps) {
        (Some(a), Some(b)) => {
            let (least, most) = range(a, one.rate_bps_max, b);
            (Some(least), most)
        }
        (limit, None) | (None, limit) => (limit, one.rate_bps_max),
    };
    let (rtt_us, rtt_us_max) = range(one.rtt_us, one.rtt_us_max, other.rtt_us);
    let (loss, loss_max) = range(one.loss, one.loss_max, other.loss);
    TestbedLink {
        rate_bps,
        rate_bps_max,
        rtt_us,
        rtt_us_max,
        loss,
        loss_max,
        ..one
    }
}

fn range(least: f64, most: Option<f64>, new: f64) -> (f64, Option<f64>) {
    let (low, high) = (least.min(new), most.unwrap_or(least).max(new));
    (low, (low < high).then_some(high))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scenario(delay: &str) -> Scenario {
        toml::from_str(&format!(
            r#"
            title = "t"
            question = "q"
            [[links]]
            name = "in"
            kind = "veth"
            endpoints = ["a", "r"]
            [[links]]
            name = "wan"
            endpoints = ["r", "s"]
            delay = "{delay}"
            rate = "100mbit"
            loss = 0.01
            [[links]]
            name = "in2"
            kind = "veth"
            endpoints = ["b", "r"]
            [[flows]]
            name = "one"
            program = "iperf3"
            from = "a"
            to = "s"
            duration = "1s"
            [[flows]]
            name = "back"
            program = "iperf3"
            from = "s"
            to = "a"
            duration = "1s"
            [[flows]]
            name = "two"
            program = "iperf3"
            from = "b"
            to = "s"
            duration = "1s"
            "#
        ))
        .unwrap()
    }

    fn names(testbed: &Testbed) -> Vec<&str> {
        testbed
            .hosts
            .iter()
            .map(|host| host.name.as_str())
            .collect()
    }

    #[test]
    fn flows_with_further_links_get_their_own_row() {
        let scenario = scenario("1ms");
        let testbed = testbed(&[&scenario]);
        assert_eq!(names(&testbed), ["a", "r", "s"]);
        assert_eq!(
            testbed.other_paths.len(),
            1,
            "the reverse path has the same links"
        );
        assert_eq!(names(&testbed.other_paths[0]), ["b", "r", "s"]);
        assert_eq!(testbed.links[1].rate_bps, Some(1e8));
        assert_eq!(testbed.links[1].rtt_us_max, None);
    }

    #[test]
    fn varied_link_options_are_shown_as_a_range() {
        let (short, long) = (scenario("1ms"), scenario("10ms"));
        let link = &testbed(&[&long, &short, &long]).links[1];
        assert_eq!((link.rtt_us, link.rtt_us_max), (2e3, Some(2e4)));
        assert_eq!((link.loss, link.loss_max), (0.01, None));
    }
}
