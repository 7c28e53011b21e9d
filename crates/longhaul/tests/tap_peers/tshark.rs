// SPDX-License-Identifier: MIT OR Apache-2.0
//! What tshark says of each packet (`tcp.analysis.*`), and sums of it.

use crate::Way;
use std::{collections::BTreeMap, net::IpAddr, path::Path, process::Command};

/// Of what one end sent.
#[derive(Debug, Default)]
pub(crate) struct Tshark {
    pub(crate) packets: u64,
    pub(crate) data_packets: u64,
    pub(crate) payload_bytes: u64,
    pub(crate) pure_acks: u64,
    pub(crate) with_sack: u64,
    pub(crate) sack_blocks: u64,
    pub(crate) zero_windows: u64,
    pub(crate) duplicate_acks: u64,
    /// Those among them for which nothing was outstanding.
    pub(crate) duplicates_of_everything: u64,
    /// Packets without payload that repeat number and window of the one before, and are no duplicate ACKs:
    /// FINs, RSTs, and those for which nothing is outstanding.
    pub(crate) other_repeats: u64,
    /// Retransmissions of every kind, and what came out of order.
    pub(crate) again_or_late: u64,
    /// RTTs of its data, in ms.
    pub(crate) rtt_ms: Vec<f64>,
    /// Next byte that it sends.
    end: u64,
    /// Number and window of its last packet.
    told: (u64, u64),
}

const FIELDS: [&str; 19] = [
    "ip.src",
    "ipv6.src",
    "tcp.srcport",
    "ip.dst",
    "ipv6.dst",
    "tcp.dstport",
    "tcp.len",
    "tcp.flags",
    "tcp.seq",
    "tcp.ack",
    "tcp.window_size_value",
    "tcp.options.sack.count",
    "tcp.analysis.retransmission",
    "tcp.analysis.fast_retransmission",
    "tcp.analysis.spurious_retransmission",
    "tcp.analysis.out_of_order",
    "tcp.analysis.duplicate_ack",
    "tcp.analysis.zero_window",
    "tcp.analysis.ack_rtt",
];

/// A packet's fields, by name; those that it does not have are empty.
struct Packet<'a>(BTreeMap<&'static str, &'a str>);

const FIN: u64 = 1;
const RST: u64 = 4;
const ACK: u64 = 0x10;
/// FIN, SYN, RST and ACK.
const KIND: u64 = 0x17;

impl Packet<'_> {
    fn has(&self, field: &str) -> bool {
        !self.0[field].is_empty()
    }

    fn number(&self, field: &str) -> u64 {
        let text = self.0[field];
        let hex = text
            .strip_prefix("0x")
            .map(|hex| u64::from_str_radix(hex, 16));
        hex.map_or_else(|| text.parse().unwrap_or(0), |number| number.unwrap())
    }

    fn end(&self, which: &str) -> (IpAddr, u16) {
        let fields = [format!("ip.{which}"), format!("ipv6.{which}")];
        let address = fields
            .iter()
            .find_map(|field| self.0[field.as_str()].parse().ok());
        (
            address.unwrap(),
            self.number(&format!("tcp.{which}port")) as u16,
        )
    }

    fn any(&self, fields: &[&str]) -> u64 {
        fields.iter().any(|field| self.has(field)).into()
    }
}

/// Both ways of every connection.
pub(crate) fn read(file: &Path) -> BTreeMap<Way, Tshark> {
    let mut command = Command::new("tshark");
    command
        .arg("-r")
        .arg(file)
        .args(["-Y", "tcp", "-T", "fields", "-E", "separator=|"]);
    command.args(FIELDS.iter().flat_map(|field| ["-e", field]));
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let mut ways = BTreeMap::new();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let packet = Packet(FIELDS.into_iter().zip(line.split('|')).collect());
        let way = (packet.end("src"), packet.end("dst"));
        let outstanding = ways
            .get(&(way.1, way.0))
            .map_or(0, |other: &Tshark| other.end);
        ways.entry(way).or_default().count(&packet, outstanding);
        if let Ok(seconds) = packet.0["tcp.analysis.ack_rtt"].parse::<f64>() {
            let other: &mut Tshark = ways.entry((way.1, way.0)).or_default();
            other.rtt_ms.push(seconds * 1e3);
        }
    }
    ways
}

impl Tshark {
    /// `other_end` is the next byte that the other end sends.
    fn count(&mut self, packet: &Packet<'_>, other_end: u64) {
        let (len, flags) = (packet.number("tcp.len"), packet.number("tcp.flags"));
        let (ack, window) = (
            packet.number("tcp.ack"),
            packet.number("tcp.window_size_value"),
        );
        let bare = len == 0;
        self.packets += 1;
        self.data_packets += u64::from(!bare);
        self.payload_bytes += len;
        self.pure_acks += u64::from(bare && flags & KIND == ACK);
        let repeats = bare && flags & ACK != 0 && (ack, window) == self.told && ack > 1;
        let counts = flags & (FIN | RST) == 0 && ack != other_end;
        self.other_repeats += u64::from(repeats && !counts);
        // D8: a RST is no ACK, though Linux puts SACK blocks on it.
        if flags & RST == 0 {
            let blocks = packet.0["tcp.options.sack.count"].split(',');
            let blocks = blocks.filter_map(|count| count.parse::<u64>().ok());
            self.sack_blocks += blocks.sum::<u64>();
            self.with_sack += packet.any(&["tcp.options.sack.count"]);
        }
        self.zero_windows += packet.any(&["tcp.analysis.zero_window"]);
        let duplicate = packet.any(&["tcp.analysis.duplicate_ack"]);
        self.duplicate_acks += duplicate;
        self.duplicates_of_everything += duplicate * u64::from(ack == other_end);
        self.again_or_late += packet.any(&[
            "tcp.analysis.retransmission",
            "tcp.analysis.fast_retransmission",
            "tcp.analysis.spurious_retransmission",
            "tcp.analysis.out_of_order",
        ]);
        self.told = (ack, window);
        let syn_or_fin = (flags & 3).count_ones();
        self.end = self
            .end
            .max(packet.number("tcp.seq") + len + u64::from(syn_or_fin));
    }
}
