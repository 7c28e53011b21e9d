// SPDX-License-Identifier: MIT OR Apache-2.0
//! Figures of `longhaul tap analyze`.

use crate::tap_peers::{Direction, counts::Counts};
use serde_json::Value;
use std::{
    collections::BTreeMap,
    net::IpAddr,
    path::Path,
    process::{Command, Output},
};

/// Figures of what one end sent.
#[derive(Debug, PartialEq)]
pub(crate) struct Ours {
    /// Figures of its data.
    data: Value,
    /// Figures of the ACKs for its data, which the other end sent.
    received_acks: Value,
    /// Figures of the ACKs that it sent.
    acks: Value,
    rtt: Value,
}

impl Ours {
    pub(crate) fn data(&self, name: &str) -> u64 {
        number(&self.data, name)
    }

    /// Returns a figure of the ACKs that it sent.
    pub(crate) fn acks(&self, name: &str) -> u64 {
        number(&self.acks, name)
    }

    /// Returns a figure of the ACKs that it received.
    pub(crate) fn received(&self, name: &str) -> u64 {
        number(&self.received_acks, name)
    }

    /// Returns the number of retransmitted packets of all kinds.
    pub(crate) fn retransmissions(&self) -> u64 {
        let kinds = ["fast", "timeout", "spurious", "other"];
        let count = |kind: &&str| self.data(&format!("{kind}_retransmissions"));
        kinds.iter().map(count).sum()
    }

    /// Returns the number of RTT samples from data and ACK.
    pub(crate) fn rtt_samples(&self) -> u64 {
        number(&self.rtt, "count")
    }

    /// Returns minimum, mean and maximum RTT, ms.
    pub(crate) fn rtt_ms(&self) -> [f64; 3] {
        ["min", "mean", "max"].map(|name| self.rtt[name].as_f64().unwrap() / 1e6)
    }
}

fn number(of: &Value, name: &str) -> u64 {
    of[name]
        .as_u64()
        .unwrap_or_else(|| panic!("no {name} in {of}"))
}

/// Reads both directions of every flow.
pub(crate) fn read(file: &Path) -> BTreeMap<Direction, Ours> {
    let output = analyze(file);
    assert!(output.status.success(), "{output:?}");
    let analysis: Value = serde_json::from_slice(&output.stdout).unwrap();
    let flows = analysis["flows"].as_array().unwrap();
    flows.iter().flat_map(both).collect()
}

/// Returns the packets of each direction, copies included, of all flows between the same ends together, and whether
/// all flows are listed; `None` if the file is no capture.
pub(crate) fn counts(file: &Path) -> Option<(Counts, bool)> {
    let analysis: Value = serde_json::from_slice(&analyze(file).stdout).ok()?;
    let mut counts = Counts::new();
    for flow in analysis["flows"].as_array().unwrap() {
        for ((direction, ours), way) in both(flow).into_iter().zip(["upload", "download"]) {
            // There is no record without copies.
            let copies = flow[way]["copies"]["copies"].as_u64().unwrap_or(0);
            *counts.entry(direction).or_default() += ours.data("packets") + copies;
        }
    }
    Some((counts, analysis["remainder"]["flows"] == 0))
}

fn analyze(file: &Path) -> Output {
    let mut command = Command::new(longhaul_testprograms::longhaul());
    command.args(["tap", "analyze", "--json"]).arg(file);
    command.output().unwrap()
}

fn both(flow: &Value) -> [(Direction, Ours); 2] {
    let [client, server] = ["client", "server"].map(|end| end_of(&flow[end]));
    let ours = |own: &Value, other: &Value| Ours {
        data: own["data"].clone(),
        received_acks: own["acks"].clone(),
        acks: other["acks"].clone(),
        rtt: own["rtt_by_acks"].clone(),
    };
    let (up, down) = (&flow["upload"], &flow["download"]);
    [
        ((client, server), ours(up, down)),
        ((server, client), ours(down, up)),
    ]
}

fn end_of(end: &Value) -> (IpAddr, u16) {
    let address = end["address"].as_str().unwrap().parse().unwrap();
    (address, end["port"].as_u64().unwrap() as u16)
}
