// SPDX-License-Identifier: MIT OR Apache-2.0
//! Routes of the calling thread's network namespace that tell TCP how to use them (the metrics of `ip-route(8)`),
//! through rtnetlink. No rights are needed.

use super::route_dump::dump;
use netlink_packet_route::{
    AddressFamily, RouteNetlinkMessage,
    link::{LinkAttribute, LinkMessage},
    route::{RouteAddress, RouteAttribute, RouteMessage, RouteMetric, RouteType},
};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, io};

/// A route with metrics.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Route {
    /// `default`, or a prefix.
    pub destination: String,
    /// Whether it is a route of IPv6.
    pub is_ipv6: bool,
    /// Words after `ip route change` that state the route without metrics. A route with several next hops has none.
    pub words: Option<String>,
    /// Metrics by their names in `ip-route(8)`, in its units; `rto_min` is in milliseconds.
    pub metrics: BTreeMap<String, u32>,
    /// Bit mask of metrics that TCP may not change, by the numbers of `RTAX_…` (`include/uapi/linux/rtnetlink.h`).
    pub locked: u32,
}

/// Number of RTAX_CWND.
const CWND: u32 = 7;
/// Number of RTAX_MTU.
const MTU: u32 = 2;
/// Protocol and scope that `ip route` uses where none is given (RTPROT_BOOT, RT_SCOPE_UNIVERSE).
const DEFAULT_PROTOCOL: u8 = 3;
const DEFAULT_SCOPE: u8 = 0;
/// The main table (RT_TABLE_MAIN), which `ip route` uses.
const MAIN_TABLE: u32 = 254;

impl Route {
    /// Whether TCP may not let its congestion window grow beyond the metric `cwnd`.
    #[must_use]
    pub fn is_cwnd_locked(&self) -> bool {
        self.locked & 1 << CWND != 0
    }

    /// Returns the words after `ip route change` that keep the route, but not the metrics that `removed` names.
    #[must_use]
    pub fn words_without(&self, removed: &[&str]) -> Option<String> {
        let kept = self
            .metrics
            .iter()
            .filter(|(name, _)| !removed.contains(&name.as_str()));
        let metrics = kept.map(|(name, value)| self.metric_words(name, *value));
        let all: Vec<String> = std::iter::once(self.words.clone()?)
            .chain(metrics)
            .collect();
        Some(all.join(" "))
    }

    fn metric_words(&self, name: &str, value: u32) -> String {
        let locks = |number: u32| self.locked & 1 << number != 0;
        let lock = match name {
            "mtu" if locks(MTU) => " lock",
            "cwnd" if locks(CWND) => " lock",
            _ => "",
        };
        match name {
            "rto_min" => format!("rto_min {value}ms"),
            _ => format!("{name}{lock} {value}"),
        }
    }
}

/// Returns the routes to other hosts that have metrics, in the kernel's order.
pub fn with_metrics() -> io::Result<Vec<Route>> {
    let mut found = Vec::new();
    let query = RouteNetlinkMessage::GetRoute(RouteMessage::default());
    dump(query, |answer| {
        if let RouteNetlinkMessage::NewRoute(route) = answer
            && metrics(&route).is_some()
            && route.header.kind == RouteType::Unicast
        {
            found.push(route);
        }
    })?;
    let names = interface_names()?;
    Ok(found.iter().map(|route| read(route, &names)).collect())
}

fn interface_names() -> io::Result<BTreeMap<u32, String>> {
    let mut names = BTreeMap::new();
    let query = RouteNetlinkMessage::GetLink(LinkMessage::default());
    dump(query, |answer| {
        let RouteNetlinkMessage::NewLink(link) = answer else {
            return;
        };
        for attribute in link.attributes {
            if let LinkAttribute::IfName(name) = attribute {
                names.insert(link.header.index, name);
            }
        }
    })?;
    Ok(names)
}

fn metrics(route: &RouteMessage) -> Option<&[RouteMetric]> {
    route
        .attributes
        .iter()
        .find_map(|attribute| match attribute {
            RouteAttribute::Metrics(metrics) => Some(metrics.as_slice()),
            _ => None,
        })
}

fn read(route: &RouteMessage, names: &BTreeMap<u32, String>) -> Route {
    let all = metrics(route).unwrap_or_default();
    let destination = destination(route);
    let locked = all.iter().find_map(|metric| match metric {
        RouteMetric::Lock(mask) => Some(*mask),
        _ => None,
    });
    Route {
        is_ipv6: route.header.address_family == AddressFamily::Inet6,
        words: words(route, &destination, names),
        destination,
        metrics: all.iter().filter_map(named).collect(),
        // Without the attribute, no metric is locked.
        locked: locked.unwrap_or(0),
    }
}

/// Returns the metrics that are numbers of their own in `ip-route(8)`.
fn named(metric: &RouteMetric) -> Option<(String, u32)> {
    let (name, value) = match metric {
        RouteMetric::Mtu(value) => ("mtu", value),
        RouteMetric::Window(value) => ("window", value),
        RouteMetric::SsThresh(value) => ("ssthresh", value),
        RouteMetric::Cwnd(value) => ("cwnd", value),
        RouteMetric::Advmss(value) => ("advmss", value),
        RouteMetric::Reordering(value) => ("reordering", value),
        RouteMetric::Hoplimit(value) => ("hoplimit", value),
        RouteMetric::InitCwnd(value) => ("initcwnd", value),
        RouteMetric::InitRwnd(value) => ("initrwnd", value),
        RouteMetric::RtoMin(value) => ("rto_min", value),
        RouteMetric::QuickAck(value) => ("quickack", value),
        _ => return None,
    };
    (*value > 0).then(|| (name.to_owned(), *value))
}

fn destination(route: &RouteMessage) -> String {
    let address = route
        .attributes
        .iter()
        .find_map(|attribute| match attribute {
            RouteAttribute::Destination(address) => address_text(address),
            _ => None,
        });
    match address {
        Some(address) => format!("{address}/{}", route.header.destination_prefix_length),
        None => "default".to_owned(),
    }
}

fn address_text(address: &RouteAddress) -> Option<String> {
    match address {
        RouteAddress::Inet(address) => Some(address.to_string()),
        RouteAddress::Inet6(address) => Some(address.to_string()),
        _ => None,
    }
}

/// States the route in words of `ip route`, so that a change of it finds the same one.
fn words(route: &RouteMessage, destination: &str, names: &BTreeMap<u32, String>) -> Option<String> {
    let is_composed = |attribute: &RouteAttribute| {
        use RouteAttribute::{MultiPath, NhId, Via};
        matches!(attribute, MultiPath(_) | Via(_) | NhId(_))
    };
    if route.attributes.iter().any(is_composed) {
        return None;
    }
    let mut words = vec![destination.to_owned()];
    for name in ["via", "dev", "src", "metric"] {
        let mut values = route
            .attributes
            .iter()
            .filter_map(|one| value(one, name, names));
        words.extend(values.next().map(|value| format!("{name} {value}")));
    }
    words.extend(other_than_default(route));
    Some(words.join(" "))
}

/// Returns the value of an attribute if `ip route` has it under this name.
fn value(attribute: &RouteAttribute, name: &str, names: &BTreeMap<u32, String>) -> Option<String> {
    match (name, attribute) {
        ("via", RouteAttribute::Gateway(to)) => address_text(to),
        ("dev", RouteAttribute::Oif(index)) => names.get(index).cloned(),
        ("src", RouteAttribute::PrefSource(from)) => address_text(from),
        ("metric", RouteAttribute::Priority(number)) => Some(number.to_string()),
        _ => None,
    }
}

/// Returns protocol, scope and table where `ip route` uses others.
fn other_than_default(route: &RouteMessage) -> impl Iterator<Item = String> {
    let header = &route.header;
    let large = route
        .attributes
        .iter()
        .find_map(|attribute| match attribute {
            RouteAttribute::Table(number) => Some(*number),
            _ => None,
        });
    let table = large.unwrap_or(u32::from(header.table));
    let (protocol, scope) = (u8::from(header.protocol), u8::from(header.scope));
    [
        ("proto", u32::from(protocol), u32::from(DEFAULT_PROTOCOL)),
        ("scope", u32::from(scope), u32::from(DEFAULT_SCOPE)),
        ("table", table, MAIN_TABLE),
    ]
    .into_iter()
    .filter(|(_, number, default)| number != default)
    .map(|(name, number, _)| format!("{name} {number}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    fn default_route(metrics: Vec<RouteMetric>) -> RouteMessage {
        let mut route = RouteMessage::default();
        route.header.address_family = AddressFamily::Inet;
        route.header.table = 254;
        route.header.protocol = DEFAULT_PROTOCOL.into();
        route.attributes = vec![
            RouteAttribute::Table(254),
            RouteAttribute::Metrics(metrics),
            RouteAttribute::Gateway(RouteAddress::Inet(Ipv4Addr::new(10, 0, 0, 1))),
            RouteAttribute::Oif(2),
        ];
        route
    }

    fn names() -> BTreeMap<u32, String> {
        [(2, "eth0".to_owned())].into()
    }

    #[test]
    fn states_a_route_without_some_metrics() {
        let metrics = vec![
            RouteMetric::Lock(1 << CWND),
            RouteMetric::Window(10_000),
            RouteMetric::Cwnd(40),
            RouteMetric::RtoMin(5000),
            RouteMetric::Mtu(0),
        ];
        let route = read(&default_route(metrics), &names());
        assert!(route.is_cwnd_locked());
        assert_eq!(
            route.words_without(&[]).unwrap(),
            "default via 10.0.0.1 dev eth0 cwnd lock 40 rto_min 5000ms window 10000"
        );
        assert_eq!(
            route.words_without(&["window", "cwnd"]).unwrap(),
            "default via 10.0.0.1 dev eth0 rto_min 5000ms"
        );
    }

    #[test]
    fn states_table_protocol_and_priority() {
        let mut message = default_route(vec![RouteMetric::Window(1)]);
        message.header.protocol = 16.into();
        message.header.destination_prefix_length = 8;
        message.attributes[0] = RouteAttribute::Table(1000);
        message.attributes.push(RouteAttribute::Priority(100));
        let network = RouteAddress::Inet(Ipv4Addr::new(10, 0, 0, 0));
        message
            .attributes
            .push(RouteAttribute::Destination(network));
        let route = read(&message, &names());
        assert_eq!(
            route.words.unwrap(),
            "10.0.0.0/8 via 10.0.0.1 dev eth0 metric 100 proto 16 table 1000"
        );
    }

    #[test]
    fn route_with_several_next_hops_has_no_words() {
        let mut message = default_route(vec![RouteMetric::Window(1)]);
        message
            .attributes
            .push(RouteAttribute::MultiPath(Vec::new()));
        assert_eq!(read(&message, &names()).words_without(&[]), None);
    }

    #[test]
    fn reads_routes_of_this_host() {
        assert!(
            with_metrics()
                .unwrap()
                .iter()
                .all(|route| !route.destination.is_empty())
        );
    }
}
