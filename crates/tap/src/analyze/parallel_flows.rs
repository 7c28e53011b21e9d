// SPDX-License-Identifier: MIT OR Apache-2.0
//! Flows between the same two hosts that share time: the sum of their rates is that of the line.

use super::connections::Connection;
use longhaul_flow::record::{Direction, Flow};
use longhaul_units::{BitRate, Bytes, Time};
use std::{collections::BTreeMap, fmt::Write as _, net::IpAddr};

/// Maximum number of lines.
const LINES_MAX: usize = 5;
/// A flow with less than this fraction of the bytes of the largest one between the same hosts does not count: it is
/// no transfer, but for instance the control connection of one.
const SMALL_DIVISOR: u64 = 100;
/// Least number of bytes of a transfer that tells something about the line.
const BYTES_MIN: u64 = 100_000;

/// Data of one flow from one host to another.
#[derive(Debug, Clone, Copy)]
struct Transfer {
    from_ns: u64,
    to_ns: u64,
    bytes: u64,
}

/// Transfers that share time, each with another one.
#[derive(Debug, Clone, Copy)]
struct Group {
    flows: u64,
    from_ns: u64,
    to_ns: u64,
    bytes: u64,
}

/// Sender, receiver and capture point.
type Path = (IpAddr, IpAddr, u32);

/// Returns a line for each of the largest groups of flows in the same direction between two hosts that share time.
pub(super) fn parallel_flow_lines(connections: &[Connection<'_>]) -> String {
    let mut groups: Vec<(Path, Group)> = Vec::new();
    for (path, transfers) in transfers_by_path(connections) {
        let parallel = group(transfers).into_iter().filter(|group| group.flows > 1);
        groups.extend(parallel.map(|group| (path, group)));
    }
    groups.sort_by_key(|(_, group)| std::cmp::Reverse(group.bytes));
    let mut text = String::new();
    for (path, group) in groups.iter().take(LINES_MAX) {
        let _ = writeln!(text, "{}", format_group(*path, *group));
    }
    text
}

fn format_group((from, to, _): Path, group: Group) -> String {
    let bytes = Bytes::new(group.bytes);
    let span = Time::from_nanos(group.to_ns - group.from_ns);
    let rate = BitRate::mean(bytes, span).map_or_else(String::new, |rate| format!("  {rate}"));
    let flows = group.flows;
    format!("{flows} flows from {from} to {to} together: {bytes}  in {span}{rate}")
}

fn transfers_by_path(connections: &[Connection<'_>]) -> BTreeMap<Path, Vec<Transfer>> {
    let mut paths: BTreeMap<Path, Vec<Transfer>> = BTreeMap::new();
    for connection in connections {
        let Flow { client, server, .. } = connection.at_client;
        let ends = [(client, server), (server, client)];
        for ((from, to), (flow, direction)) in ends.into_iter().zip(connection.directions()) {
            let path = (from.address, to.address, flow.capture_point.0);
            paths.entry(path).or_default().extend(transfer(direction));
        }
    }
    paths
}

fn transfer(direction: &Direction) -> Option<Transfer> {
    let from_ns = direction.data.first_data_ns?;
    Some(Transfer {
        from_ns,
        to_ns: from_ns.saturating_add(direction.transfer_ns()?),
        bytes: match direction.acks.acked_bytes {
            0 => direction.data.unique_bytes,
            acked => acked,
        },
    })
}

/// Returns the groups of transfers, without small ones.
fn group(mut transfers: Vec<Transfer>) -> Vec<Group> {
    let largest = transfers.iter().map(|one| one.bytes).max().unwrap_or(0);
    transfers.retain(|one| one.bytes > BYTES_MIN.max(largest / SMALL_DIVISOR));
    transfers.sort_by_key(|one| one.from_ns);
    let mut groups: Vec<Group> = Vec::new();
    for one in transfers {
        match groups.last_mut().filter(|group| one.from_ns < group.to_ns) {
            Some(group) => {
                group.flows += 1;
                group.to_ns = group.to_ns.max(one.to_ns);
                group.bytes += one.bytes;
            }
            None => groups.push(Group {
                flows: 1,
                from_ns: one.from_ns,
                to_ns: one.to_ns,
                bytes: one.bytes,
            }),
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixtures::short_flow;

    const SECOND_NS: u64 = 1_000_000_000;

    fn flow(number: u64, from_s: u64, to_s: u64, bytes: u64) -> Flow {
        let mut flow = short_flow(number);
        let data = &mut flow.upload.data;
        (data.first_data_ns, data.last_data_ns) =
            (Some(from_s * SECOND_NS), Some(to_s * SECOND_NS));
        data.unique_bytes = bytes;
        flow
    }

    fn lines(flows: &[Flow]) -> String {
        let connection = |flow| Connection {
            at_client: flow,
            at_server: None,
        };
        let connections: Vec<_> = flows.iter().map(connection).collect();
        parallel_flow_lines(&connections)
    }

    #[test]
    fn adds_up_flows_that_share_time() {
        let mut flows: Vec<_> = (0..4).map(|n| flow(n, 10, 20, 15_000_000)).collect();
        flows.push(flow(5, 9, 21, 1_000));
        flows.push(flow(6, 20, 30, 15_000_000));
        let ends = (flows[0].client.address, flows[0].server.address);
        let expected = format!(
            "4 flows from {} to {} together: 60 MB  in 10 s  48 Mbit/s\n",
            ends.0, ends.1
        );
        assert_eq!(lines(&flows), expected);
        assert_eq!(lines(&flows[3..]), "");
        assert_eq!(lines(&[flow(1, 10, 20, 300), flow(2, 10, 20, 200)]), "");
    }

    #[test]
    fn flows_of_other_hosts_or_capture_points_do_not_count() {
        let mut flows: Vec<_> = (0..3).map(|n| flow(n, 10, 20, 1_000_000)).collect();
        flows[1].server.address = IpAddr::from([192, 0, 2, 1]);
        flows[2].capture_point.0 += 1;
        assert_eq!(lines(&flows), "");
    }
}
