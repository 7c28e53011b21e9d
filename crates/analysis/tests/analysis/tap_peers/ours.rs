// SPDX-License-Identifier: MIT OR Apache-2.0
//! What `longhaul tap analyze` says.

use crate::tap_peers::Way;
use serde_json::Value;
use std::{collections::BTreeMap, net::IpAddr, path::Path, process::Command};

/// Of what one end sent.
#[derive(Debug)]
pub(crate) struct Ours {
    /// Its data.
    data: Value,
    /// ACKs for its data: what the other end sent.
    for_it: Value,
    /// ACKs that it sent.
    acks: Value,
    rtt: Value,
}

impl Ours {
    pub(crate) fn data(&self, name: &str) -> u64 {
        number(&self.data, name)
    }

    /// Of the ACKs that it sent.
    pub(crate) fn acks(&self, name: &str) -> u64 {
        number(&self.acks, name)
    }

    /// Of the ACKs that it got.
    pub(crate) fn acked(&self, name: &str) -> u64 {
        number(&self.for_it, name)
    }

    /// Packets that were sent again, whatever for.
    pub(crate) fn retransmissions(&self) -> u64 {
        let kinds = ["fast", "timeout", "spurious", "other"];
        let count = |kind: &&str| self.data(&format!("{kind}_retransmissions"));
        kinds.iter().map(count).sum()
    }

    /// Samples of data and ACK.
    pub(crate) fn rtt_samples(&self) -> u64 {
        number(&self.rtt, "count")
    }

    /// Least, mean and greatest in ms.
    pub(crate) fn rtt_ms(&self) -> [f64; 3] {
        ["min", "mean", "max"].map(|name| self.rtt[name].as_f64().unwrap() / 1e6)
    }
}

fn number(of: &Value, name: &str) -> u64 {
    of[name]
        .as_u64()
        .unwrap_or_else(|| panic!("no {name} in {of}"))
}

/// Both ways of every flow.
pub(crate) fn read(file: &Path) -> BTreeMap<Way, Ours> {
    let output = Command::new(longhaul_testbed::longhaul())
        .args(["tap", "analyze", "--json"])
        .arg(file)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let analysis: Value = serde_json::from_slice(&output.stdout).unwrap();
    analysis["flows"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(both)
        .collect()
}

fn both(flow: &Value) -> [(Way, Ours); 2] {
    let [client, server] = ["client", "server"].map(|end| end_of(&flow[end]));
    let ours = |own: &Value, other: &Value| Ours {
        data: own["data"].clone(),
        for_it: own["acks"].clone(),
        acks: other["acks"].clone(),
        rtt: own["rtt_by_pairs"].clone(),
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
