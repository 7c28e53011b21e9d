// SPDX-License-Identifier: MIT OR Apache-2.0
//! One-way-delay probes: their packets, and the link behaviour that they are compared with.

use super::{Topology, link};
use crate::scenario::{Flow, LinkKind, Scenario};
use longhaul_netem::LinkConfig;
use longhaul_probe::{self as probe, Timing};
use longhaul_units::Time;

/// Default time between packets: a light load beside any other flow.
const INTERVAL: Time = Time::from_millis(10);
/// Default packet size in bytes.
const LENGTH: u16 = 100;

/// Returns the packets of the probe.
///
/// # Errors
/// Neither or both of `count` and `duration`, or values out of range.
pub(crate) fn timing(flow: &Flow) -> Result<Timing, String> {
    let interval = flow.interval.unwrap_or(INTERVAL);
    let count = match (flow.count, flow.duration) {
        (Some(count), None) => count,
        (None, Some(duration)) if interval > Time::ZERO => {
            let packets = duration.as_nanos() / interval.as_nanos() * u64::from(flow.gso_segments);
            u32::try_from(packets).unwrap_or(u32::MAX)
        }
        _ => return Err("probe takes either count or, with an interval, duration".to_owned()),
    };
    let timing = Timing {
        count,
        interval_ns: interval.as_nanos(),
        packet_size: flow.packet_size.unwrap_or(LENGTH),
        gso_segments: flow.gso_segments,
    };
    timing.check().map(|()| timing)
}

/// Time for which the probe sends.
pub(crate) fn duration(flow: &Flow) -> Result<Time, String> {
    let timing = timing(flow)?;
    let messages = timing.count.div_ceil(timing.gso_segments.into());
    Ok(Time::from_nanos(timing.interval_ns) * messages.into())
}

/// Expected link behaviour, if the probe crosses one emulated link without a schedule.
pub(crate) fn expected(scenario: &Scenario, topology: &Topology, flow: &Flow) -> Option<Expected> {
    let link_config = link_config(scenario, topology, flow)?;
    let shares_queue = shares_queue(scenario, topology, flow);
    Some(Expected {
        link_config,
        shares_queue,
    })
}

fn link_config(scenario: &Scenario, topology: &Topology, flow: &Flow) -> Option<LinkConfig> {
    let index = topology.between(&flow.from, &flow.to)?;
    let link = &scenario.links[index];
    if link.kind != LinkKind::Emulated || link.options.contains_key("at") {
        return None;
    }
    let [link_config, _] =
        link::link_configs_from(link, &topology.wires[index], &flow.from).ok()?;
    Some(link_config)
}

/// Whether another flow sends data over the same link in the same direction, so that the probe's
/// packets may wait in a queue behind it.
fn shares_queue(scenario: &Scenario, topology: &Topology, flow: &Flow) -> bool {
    let same_direction = |other: &Flow| {
        let path = topology.path(&other.from, &other.to).unwrap_or_default();
        path.windows(2)
            .any(|hop| hop[0] == flow.from && hop[1] == flow.to)
    };
    let others = scenario.flows.iter().filter(|other| other.enabled);
    others
        .filter(|other| other.program.transfers())
        .any(same_direction)
}

/// Names of the metrics that compare the probe of `flow` with its link.
pub(crate) fn figures(scenario: &Scenario, topology: &Topology, flow: &Flow) -> Vec<&'static str> {
    let Some((expected, timing)) = expected(scenario, topology, flow).zip(timing(flow).ok()) else {
        return Vec::new();
    };
    let names = probe::figure_names(&expected.link_config, timing).into_iter();
    names.filter(|name| !expected.excludes(name)).collect()
}

/// Expected behaviour of the link that a probe crosses.
#[derive(Debug)]
pub(crate) struct Expected {
    pub(crate) link_config: LinkConfig,
    /// Whether part of the delay may be a queue of another flow.
    pub(crate) shares_queue: bool,
}

impl Expected {
    /// Whether a metric is left out: a queueing delay behind other flows is not an error of the
    /// link.
    pub(crate) fn excludes(&self, figure: &str) -> bool {
        self.shares_queue && figure.starts_with("delay_error")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(keys: &str) -> Flow {
        let start = "name = 'p'\nprogram = 'probe'\nfrom = 'a'\nto = 'b'\n";
        toml::from_str(&format!("{start}{keys}")).unwrap()
    }

    #[test]
    fn computes_packet_count_from_duration() {
        assert_eq!(timing(&flow("duration = '60s'")).unwrap().count, 6000);
        let dense = flow("duration = '2s'\ninterval = '1ms'\ngso_segments = 8");
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

    const LINK: &str = "title = 't'\nquestion = 'q'\n[[links]]\nname = 'wan'\nendpoints = ['a', 'b']\n\
        forward = ['delay=20ms']\nbackward = ['delay=30ms']\n";

    fn delay_from(from: &str, link: &str) -> Option<Time> {
        let to = if from == "a" { "b" } else { "a" };
        let flow =
            format!("[[flows]]\nname = 'p'\nprogram = 'probe'\nfrom = '{from}'\nto = '{to}'");
        let scenario: Scenario = toml::from_str(&format!("{link}{flow}")).unwrap();
        let topology = Topology::of(&scenario);
        Some(
            expected(&scenario, &topology, &scenario.flows[0])?
                .link_config
                .delay,
        )
    }

    #[test]
    fn only_transfers_in_the_same_direction_share_the_queue() {
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
            &(flow("bulk", "iperf3", "a", "b") + "enabled = false")
        ));
    }

    #[test]
    fn expects_the_link_config_of_the_probes_direction() {
        assert_eq!(delay_from("a", LINK), Some(Time::from_millis(20)));
        assert_eq!(delay_from("b", LINK), Some(Time::from_millis(30)));
        let changing = format!("{LINK}at = ['1s: delay 5ms']\n");
        assert_eq!(delay_from("a", &changing), None);
    }
}
