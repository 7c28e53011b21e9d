// SPDX-License-Identifier: MIT OR Apache-2.0
//! Connections of the summary. One that was captured at two points has two flows with the same verdict.

use crate::report::Analysis;
use longhaul_flow::record::{Direction, Flow, TwoPointComparison};
use std::collections::BTreeSet;

/// Connection with the flows of its capture points.
#[derive(Debug, Clone, Copy)]
pub(super) struct Connection<'a> {
    /// Flow at the only capture point, or at the one nearer to the client.
    pub(super) at_client: &'a Flow,
    /// Flow at the other capture point, which is nearer to the server.
    pub(super) at_server: Option<&'a Flow>,
}

impl<'a> Connection<'a> {
    /// Returns its flows, that with the lower number first.
    pub(super) fn flows(self) -> Vec<&'a Flow> {
        let mut flows: Vec<_> = std::iter::once(self.at_client)
            .chain(self.at_server)
            .collect();
        flows.sort_by_key(|flow| flow.number);
        flows
    }

    /// Returns both directions: the client's data and the server's, each with its flow nearer to the sender.
    pub(super) fn directions(self) -> [(&'a Flow, &'a Direction); 2] {
        let at_server = self.at_server.unwrap_or(self.at_client);
        [
            (self.at_client, &self.at_client.upload),
            (at_server, &at_server.download),
        ]
    }
}

/// Returns the connections of the listed flows, in their order.
pub(super) fn connections(analysis: &Analysis) -> Vec<Connection<'_>> {
    let pairs = analysis.two_point_comparisons.iter();
    let pairs: Vec<_> = pairs.filter_map(|pair| points(analysis, pair)).collect();
    let mut known = BTreeSet::new();
    let mut found = Vec::new();
    for flow in &analysis.flows {
        if known.insert(flow.number) {
            let connection = connection(&pairs, flow);
            known.extend(connection.flows().iter().map(|flow| flow.number));
            found.push(connection);
        }
    }
    found
}

fn connection<'a>(pairs: &[[&'a Flow; 2]], flow: &'a Flow) -> Connection<'a> {
    let has_flow = |pair: &&[&Flow; 2]| pair.iter().any(|one| one.number == flow.number);
    let pair = pairs.iter().find(has_flow).copied();
    let [at_client, at_server] = pair.unwrap_or([flow, flow]);
    Connection {
        at_client,
        at_server: (at_server.number != at_client.number).then_some(at_server),
    }
}

/// Returns the flows of a comparison, that at the point nearer to the client first.
fn points<'a>(analysis: &'a Analysis, pair: &TwoPointComparison) -> Option<[&'a Flow; 2]> {
    let find = |number: u64| analysis.flows.iter().find(|flow| flow.number == number);
    let (left, right) = (find(pair.left)?, find(pair.right)?);
    Some(if pair.client_is_left {
        [left, right]
    } else {
        [right, left]
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixtures::{short_flow, two_point_comparison};

    #[test]
    fn flows_of_two_points_are_one_connection() {
        let mut pair = two_point_comparison();
        (pair.left, pair.right, pair.client_is_left) = (3, 7, false);
        let analysis = Analysis {
            flows: [1, 3, 5, 7].map(short_flow).to_vec(),
            two_point_comparisons: vec![pair],
            ..Analysis::default()
        };
        let numbers = |connection: &Connection<'_>| {
            let other = connection.at_server.map(|flow| flow.number);
            (connection.at_client.number, other)
        };
        let found: Vec<_> = connections(&analysis).iter().map(numbers).collect();
        assert_eq!(found, [(1, None), (7, Some(3)), (5, None)]);
        let both = connections(&analysis)[1].flows();
        assert_eq!([both[0].number, both[1].number], [3, 7]);
    }
}
