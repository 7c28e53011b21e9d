// SPDX-License-Identifier: MIT OR Apache-2.0
//! One-way-delay probes: the packets that they send, and the link with which their measurements are
//! compared.

use super::{Topology, link};
use crate::scenario::{Flow, LinkKind, Scenario};
use longhaul_netem::{
    LinkConfig,
    conformance::{Timing, figure_names},
};
use longhaul_units::Time;

/// Default time between packets: a light load beside any other flow.
const INTERVAL: Time = Time::from_millis(10);
/// Default packet size in bytes.
const PACKET_SIZE: u16 = 100;

/// Returns number, size and interval of the probe's packets.
///
/// # Errors
/// `count` and `duration` are both given or both missing, or a value is out of range.
pub(crate) fn timing(flow: &Flow) -> Result<Timing, String> {
    let interval = flow.interval.unwrap_or(INTERVAL);
    let count = match (flow.count, flow.duration) {
        (Some(count), None) => count,
        (None, Some(duration)) if interval > Time::ZERO => {
            let packets = duration.as_nanos() / interval.as_nanos() * u64::from(flow.gso_segments);
            u32::try_from(packets).unwrap_or(u32::MAX)
        }
        _ => return Err("probe takes count, or duration with an interval above 0".to_owned()),
    };
    let timing = Timing {
        count,
        interval_ns: interval.as_nanos(),
        packet_size: flow.packet_size.unwrap_or(PACKET_SIZE),
        gso_segments: flow.gso_segments,
    };
    timing.check().map(|()| timing)
}

/// Returns the time for which the probe sends.
pub(crate) fn duration(flow: &Flow) -> Result<Time, String> {
    let timing = timing(flow)?;
    let messages = timing.count.div_ceil(timing.gso_segments.into());
    Ok(Time::from_nanos(timing.interval_ns) * messages.into())
}

/// Returns what to expect of the link, if the probe's path is one emulated link that does not
/// change with time.
pub(crate) fn expected_link(
    scenario: &Scenario,
    topology: &Topology,
    flow: &Flow,
) -> Option<ExpectedLink> {
    let link_config = link_config(scenario, topology, flow)?;
    let shares_queue = shares_queue(scenario, topology, flow);
    Some(ExpectedLink {
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
    let [link_config, _] = link::configs_from(link, &flow.from).ok()?;
    Some(link_config)
}

/// Returns whether another flow sends data over the same link in the same direction. The probe's
/// packets may then wait in a queue behind that data.
fn shares_queue(scenario: &Scenario, topology: &Topology, flow: &Flow) -> bool {
    let same_direction = |other: &Flow| {
        let path = topology.path(&other.from, &other.to).unwrap_or_default();
        path.windows(2)
            .any(|hop| hop[0] == flow.from && hop[1] == flow.to)
    };
    let others = scenario.flows.iter().filter(|other| other.enabled);
    others.filter(|other| other.transfers()).any(same_direction)
}

/// Returns the names of the metrics that compare the probe `flow` with its link.
pub(crate) fn metric_names(
    scenario: &Scenario,
    topology: &Topology,
    flow: &Flow,
) -> Vec<&'static str> {
    let Some((expected, timing)) = expected_link(scenario, topology, flow).zip(timing(flow).ok())
    else {
        return Vec::new();
    };
    let names = figure_names(&expected.link_config, timing).into_iter();
    names.filter(|name| !expected.excludes(name)).collect()
}

/// Expected behaviour of the link that a probe crosses.
#[derive(Debug)]
pub(crate) struct ExpectedLink {
    pub(crate) link_config: LinkConfig,
    /// Whether the probe's packets may wait behind those of another flow.
    pub(crate) shares_queue: bool,
}

impl ExpectedLink {
    /// Returns whether a metric is left out. Waiting behind another flow is delay, but no error of
    /// the link.
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
            expected_link(&scenario, &topology, &scenario.flows[0])?
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
