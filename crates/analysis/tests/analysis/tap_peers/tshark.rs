// SPDX-License-Identifier: MIT OR Apache-2.0
//! What tshark says of each packet (`tcp.analysis.*`), sums of it, and by how much other rules differ on the
//! same packets (docs/tap-peers.md).

use crate::tap_peers::{Way, ranges::Ranges};
use std::{collections::BTreeMap, net::IpAddr, ops::Range, path::Path, process::Command};

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
    /// Those that are none by RFC 5681 §2: nothing is outstanding, or a greater number was said before (D1,
    /// D11).
    pub(crate) no_duplicates: u64,
    /// Duplicates by RFC 5681 §2 that it does not call so: after a late ACK, of a window of zero, or with a
    /// number of its own that is not the next (D11).
    pub(crate) other_duplicates: u64,
    /// Repeats as tcptrace counts them, less duplicates by RFC 5681 §2 (D5, D11).
    pub(crate) more_repeats: i64,
    /// Retransmissions of every kind, and what came out of order, without SYNs.
    pub(crate) again_or_late: u64,
    /// Keep-alives that carry a byte which nobody had acknowledged (D10).
    pub(crate) keep_alives_of_data: u64,
    /// New data that only an ACK seen before has passed, which it takes for data in order (D14).
    pub(crate) late_to_acks: u64,
    /// A first packet of one byte that is acknowledged, which looks like a keep-alive to us (D16).
    pub(crate) lone_bytes: u64,
    /// Behind the last number that it acknowledged, or has by SACK.
    holds: u64,
    /// Packets and bytes by our rules, less by tcptrace's (D5, D9, D10, D13).
    pub(crate) apart: Apart,
    /// RTTs of its data in ms, of ACKs that cover nothing that was sent again or late.
    pub(crate) rtt_ms: Vec<f64>,
    /// The same of RSTs, which acknowledge nothing (D8).
    pub(crate) reset_rtt_ms: Vec<f64>,
    /// Those ACKs among them that are for what was sent before something below was sent again, or came late
    /// (D7).
    pub(crate) answers_behind: u64,
    /// ACKs for data sent once and in order that tshark has no RTT of: inside of a packet (D6).
    pub(crate) answers_inside: u64,
    /// ACKs that cover something that came late, but nothing that was seen twice (D3).
    pub(crate) answers_to_late: u64,
    /// ACKs that cover something that was seen twice.
    pub(crate) answers_to_twice: u64,
    /// Next number that it sends.
    next: u64,
    /// The same, of packets with data, SYN or FIN.
    data_next: u64,
    /// Whether it sent anything but SYNs.
    has_spoken: bool,
    /// Number and window of its last packet.
    told: Option<(u64, u64)>,
    /// Greatest number that it acknowledged.
    acked: Option<u64>,
    /// Whether tshark called its last packet a keep-alive.
    asked: bool,
    /// What it sent.
    seen: Ranges,
    /// The same, as tcptrace has it: without what was sent into a window of zero.
    heard: Ranges,
    twice: Ranges,
    late: Ranges,
    /// What was sent before the last of both ends here.
    behind: u64,
}

/// By our rules less by others'.
#[derive(Debug, Default)]
pub(crate) struct Apart {
    pub(crate) again_packets: i64,
    pub(crate) again_bytes: i64,
    pub(crate) unique_bytes: i64,
    pub(crate) late_packets: i64,
}

const FIELDS: [&str; 21] = [
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
    "tcp.options.sack_re",
    "tcp.analysis.retransmission",
    "tcp.analysis.fast_retransmission",
    "tcp.analysis.spurious_retransmission",
    "tcp.analysis.out_of_order",
    "tcp.analysis.duplicate_ack",
    "tcp.analysis.zero_window",
    "tcp.analysis.keep_alive",
    "tcp.analysis.ack_rtt",
];

const LATE_OR_AGAIN: [&str; 4] = [
    "tcp.analysis.retransmission",
    "tcp.analysis.fast_retransmission",
    "tcp.analysis.spurious_retransmission",
    "tcp.analysis.out_of_order",
];

const FIN: u64 = 1;
const SYN: u64 = 2;
const RST: u64 = 4;
const ACK: u64 = 0x10;

/// A packet's fields.
struct Packet<'a> {
    /// By name; those that it does not have are empty.
    fields: BTreeMap<&'static str, &'a str>,
    payload: u64,
    flags: u64,
    /// With those of SYN and FIN.
    numbers: Range<u64>,
    ack: u64,
    window: u64,
}

impl<'a> Packet<'a> {
    fn parse(line: &'a str) -> Self {
        let fields = FIELDS.into_iter().zip(line.split('|')).collect();
        let number = |name| number(&fields, name);
        let (payload, flags, start) = (number("tcp.len"), number("tcp.flags"), number("tcp.seq"));
        let marks = u64::from((flags & (SYN | FIN)).count_ones());
        Self {
            payload,
            flags,
            numbers: start..start + payload + marks,
            ack: number("tcp.ack"),
            window: number("tcp.window_size_value"),
            fields,
        }
    }

    fn has(&self, field: &str) -> bool {
        !self.fields[field].is_empty()
    }

    fn is(&self, flag: u64) -> bool {
        self.flags & flag != 0
    }

    fn end(&self, which: &str) -> (IpAddr, u16) {
        let names = [format!("ip.{which}"), format!("ipv6.{which}")];
        let mut addresses = names.iter().map(|name| self.fields[name.as_str()].parse());
        let address = addresses.find_map(Result::ok).unwrap();
        let port = number(&self.fields, &format!("tcp.{which}port"));
        (address, port as u16)
    }

    /// Behind the last number of its SACK blocks.
    fn sacked(&self) -> u64 {
        let edges = self.fields["tcp.options.sack_re"].split(',');
        edges
            .filter_map(|edge| edge.parse().ok())
            .max()
            .unwrap_or(0)
    }

    fn rtt_ms(&self) -> Option<f64> {
        let seconds = self.fields["tcp.analysis.ack_rtt"].parse::<f64>();
        Some(seconds.ok()? * 1e3)
    }
}

fn number(fields: &BTreeMap<&str, &str>, name: &str) -> u64 {
    let text = fields[name];
    let hex = text
        .strip_prefix("0x")
        .map(|hex| u64::from_str_radix(hex, 16));
    hex.map_or_else(|| text.parse().unwrap_or(0), |number| number.unwrap())
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
    let mut ways: BTreeMap<Way, Tshark> = BTreeMap::new();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let packet = Packet::parse(line);
        let way = (packet.end("src"), packet.end("dst"));
        let mut own = ways.remove(&way).unwrap_or_default();
        let other = ways.entry((way.1, way.0)).or_default();
        own.count(&packet);
        own.count_repeats(&packet, other);
        own.count_numbers(&packet, other);
        if packet.is(ACK) {
            other.is_answered(&packet, own.acked.unwrap_or(0));
            own.acked = own.acked.max(Some(packet.ack));
        }
        if packet.is(ACK) && !packet.is(RST) {
            own.holds = own.holds.max(packet.ack).max(packet.sacked());
        }
        own.remember(&packet);
        ways.insert(way, own);
    }
    ways
}

impl Tshark {
    fn count(&mut self, packet: &Packet<'_>) {
        self.packets += 1;
        self.data_packets += u64::from(packet.payload > 0);
        self.payload_bytes += packet.payload;
        let pure = packet.payload == 0 && packet.is(ACK) && !packet.is(SYN | FIN | RST);
        self.pure_acks += u64::from(pure);
        // D8: a RST is no ACK, though Linux puts SACK blocks on it.
        if !packet.is(RST) {
            let blocks = packet.fields["tcp.options.sack.count"].split(',');
            let blocks = blocks.filter_map(|count| count.parse::<u64>().ok());
            self.sack_blocks += blocks.sum::<u64>();
            self.with_sack += u64::from(packet.has("tcp.options.sack.count"));
        }
        self.zero_windows += u64::from(packet.has("tcp.analysis.zero_window"));
        let late_or_again = LATE_OR_AGAIN.iter().any(|field| packet.has(field));
        self.again_or_late += u64::from(late_or_again && !packet.is(SYN));
    }

    /// D1, D5, D11: what repeats number and window by tshark's rule, by tcptrace's and by RFC 5681 §2.
    fn count_repeats(&mut self, packet: &Packet<'_>, other: &Self) {
        let flagged = packet.has("tcp.analysis.duplicate_ack");
        let bare = packet.payload == 0 && packet.is(ACK) && !packet.is(SYN);
        let same_window = self.told.is_some_and(|told| told.1 == packet.window);
        let repeats = bare && same_window && self.acked == Some(packet.ack);
        // D14: what SACK has was sent, seen or not.
        let unseen = packet.ack >= other.next;
        let outstanding = !unseen || packet.ack < self.holds;
        let duplicate = repeats && !packet.is(FIN | RST) && outstanding;
        let after_late = self.told.is_some_and(|told| told.0 != packet.ack);
        let unlike_tshark = unseen
            || after_late
            || packet.window == 0
            || packet.numbers.start != self.next
            || other.asked;
        self.duplicate_acks += u64::from(flagged);
        self.no_duplicates += u64::from(flagged && !duplicate);
        self.other_duplicates += u64::from(!flagged && duplicate && unlike_tshark);
        let last = packet.ack.saturating_sub(1)..packet.ack;
        let to_tcptrace =
            repeats && !after_late && other.has_spoken && other.seen.overlap(&last) > 0;
        self.more_repeats += i64::from(to_tcptrace) - i64::from(duplicate);
    }

    /// D5, D9, D10: what repeats numbers by tcptrace's rule and by ours.
    fn count_numbers(&mut self, packet: &Packet<'_>, other: &Self) {
        if packet.numbers.is_empty() || packet.is(RST) {
            return;
        }
        let closed = !packet.is(SYN) && other.told.is_some_and(|told| told.1 == 0);
        let known = other.acked >= Some(packet.numbers.end);
        let one_below = packet.payload == 1 && packet.numbers.end == self.next;
        let probe = one_below && !packet.is(FIN) && (known || closed);
        let keep_alive = packet.has("tcp.analysis.keep_alive") && packet.payload == 1;
        self.keep_alives_of_data += u64::from(keep_alive && !probe);

        let new = self.packets > 1 && packet.numbers.start >= self.next;
        let flagged = LATE_OR_AGAIN.iter().any(|field| packet.has(field));
        let late_to_acks = new && !flagged && other.holds > packet.numbers.start;
        self.late_to_acks += u64::from(late_to_acks && !packet.is(SYN));
        let lone = self.packets == 1 && packet.payload == 1 && flagged;
        self.lone_bytes += u64::from(lone && other.acked == Some(packet.numbers.end));

        let (seen, heard) = (&self.seen, &self.heard);
        let (seen, heard) = (
            seen.overlap(&packet.numbers),
            heard.overlap(&packet.numbers),
        );
        let ours = if probe || packet.is(SYN) { 0 } else { seen };
        let theirs = if closed { 0 } else { heard };
        let apart = &mut self.apart;
        apart.again_packets += i64::from(ours > 0) - i64::from(theirs > 0);
        apart.again_bytes += ours.min(packet.payload).cast_signed() - theirs.cast_signed();
        let unique = |again: u64| packet.payload.saturating_sub(again).cast_signed();
        let unique_to_tcptrace = if closed { 0 } else { unique(heard) };
        apart.unique_bytes += unique(seen) - unique_to_tcptrace;

        if ours > 0 {
            self.twice.insert(packet.numbers.clone());
            self.behind = self.next;
        } else if !probe && packet.numbers.start < self.next {
            // D13: what only an ACK's own number has passed over.
            self.apart.late_packets += i64::from(packet.numbers.start >= self.data_next);
            self.late.insert(packet.numbers.clone());
            self.behind = self.next;
        }
        self.data_next = self.data_next.max(packet.numbers.end);
        self.seen.insert(packet.numbers.clone());
        if !closed {
            self.heard.insert(packet.numbers.clone());
        }
    }

    /// The other end acknowledges; `before` is what it acknowledged before.
    fn is_answered(&mut self, packet: &Packet<'_>, before: u64) {
        let covered = before..packet.ack;
        if covered.is_empty() {
            return;
        }
        if self.twice.overlap(&covered) > 0 {
            self.answers_to_twice += 1;
        } else if self.late.overlap(&covered) > 0 {
            self.answers_to_late += 1;
        } else {
            self.answers_behind += u64::from(packet.ack <= self.behind);
            match packet.rtt_ms() {
                Some(rtt_ms) if packet.is(RST) => self.reset_rtt_ms.push(rtt_ms),
                Some(rtt_ms) => self.rtt_ms.push(rtt_ms),
                // If the capture has the packet at all.
                None => {
                    let last = packet.ack - 1..packet.ack;
                    self.answers_inside += self.seen.overlap(&last);
                }
            }
        }
    }

    fn remember(&mut self, packet: &Packet<'_>) {
        self.asked = packet.has("tcp.analysis.keep_alive");
        self.next = self.next.max(packet.numbers.end);
        self.has_spoken |= !packet.is(SYN);
        // The window of a SYN is not scaled; one that comes late tells nothing.
        let late_syn = packet.is(SYN) && self.told.is_some();
        if !packet.is(RST) && !late_syn {
            self.told = Some((packet.ack, packet.window));
        }
    }
}
