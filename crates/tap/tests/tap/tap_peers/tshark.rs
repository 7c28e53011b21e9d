// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sums of tshark's analysis of each packet (`tcp.analysis.*`), and how counts of the same packets differ by other
//! definitions (docs/tap-peers.md).

use crate::tap_peers::{Direction, counts::Counts, ranges::Ranges};
use std::{collections::BTreeMap, net::IpAddr, ops::Range, path::Path, process::Command};

/// Figures of what one end sent.
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
    /// ACKs that only tshark calls duplicates, not RFC 5681 §2: nothing is outstanding, or a greater ACK number was
    /// sent before (D1, D11).
    pub(crate) false_duplicates: u64,
    /// Duplicates by RFC 5681 §2 that tshark does not count: after an out-of-order ACK, with a zero window, or with a
    /// sequence number that is not the next (D11).
    pub(crate) other_duplicates: u64,
    /// Duplicate ACKs as tcptrace counts them, minus those by RFC 5681 §2 (D5, D11).
    pub(crate) extra_tcptrace_duplicates: i64,
    /// Retransmissions of all kinds and out-of-order packets, without SYNs.
    pub(crate) retransmitted_or_late: u64,
    /// Keep-alives that carry an unacknowledged byte (D10).
    pub(crate) keep_alives_of_data: u64,
    /// New data below an earlier ACK's number, which tshark takes for data in order (D14).
    pub(crate) acked_before_capture: u64,
    /// First packets of a direction with a single byte that is already acknowledged: we take them for keep-alives
    /// (D16).
    pub(crate) first_packet_keep_alives: u64,
    /// End of the data of the other end that this end acknowledged or reported by SACK.
    received_end: u64,
    /// Packets and bytes by our definitions, minus those by tcptrace's (D5, D9, D10, D13).
    pub(crate) differences: Differences,
    /// RTTs of this end's data in ms, from ACKs that cover no retransmitted or late data.
    pub(crate) rtt_ms: Vec<f64>,
    /// RTTs in ms that tshark takes from RSTs, which acknowledge nothing (D8).
    pub(crate) reset_rtt_ms: Vec<f64>,
    /// ACKs of data that was sent before the latest retransmission or late packet (D7).
    pub(crate) acks_of_data_before_repeat: u64,
    /// ACKs for data sent once and in order, for which tshark has no RTT: inside a packet (D6).
    pub(crate) acks_inside_packets: u64,
    /// ACKs that cover late data, but no data that was captured twice (D3).
    pub(crate) acks_of_late_data: u64,
    /// ACKs that cover data that was captured twice.
    pub(crate) acks_of_data_captured_twice: u64,
    /// Next sequence number.
    next: u64,
    /// Next sequence number after packets with data, SYN or FIN.
    data_next: u64,
    /// True after a packet other than SYN.
    has_sent_non_syn: bool,
    /// ACK number and window of the last packet.
    last_ack_and_window: Option<(u64, u64)>,
    /// Greatest ACK number.
    acked: Option<u64>,
    /// True if tshark calls the last packet a keep-alive.
    last_was_keep_alive: bool,
    /// Sequence numbers captured.
    captured: Ranges,
    /// Sequence numbers captured by tcptrace's definition: without data sent into a zero window.
    captured_by_tcptrace: Ranges,
    /// Sequence numbers captured more than once.
    captured_twice: Ranges,
    /// Sequence numbers first captured after higher ones.
    late: Ranges,
    /// Next sequence number at the time of the latest repeated or late data.
    next_at_last_repeat: u64,
}

/// Differences: figures by our definitions minus those by tcptrace's.
#[derive(Debug, Default)]
pub(crate) struct Differences {
    pub(crate) retransmitted_packets: i64,
    pub(crate) retransmitted_bytes: i64,
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

const RETRANSMITTED_OR_LATE: [&str; 4] = [
    "tcp.analysis.retransmission",
    "tcp.analysis.fast_retransmission",
    "tcp.analysis.spurious_retransmission",
    "tcp.analysis.out_of_order",
];

const FIN: u64 = 1;
const SYN: u64 = 2;
const RST: u64 = 4;
const ACK: u64 = 0x10;

/// Fields of a packet.
struct Packet<'a> {
    /// Texts by name; missing fields are empty.
    fields: BTreeMap<&'static str, &'a str>,
    payload: u64,
    flags: u64,
    /// Sequence numbers, including those of SYN and FIN.
    numbers: Range<u64>,
    ack: u64,
    window: u64,
}

impl<'a> Packet<'a> {
    fn parse(line: &'a str) -> Self {
        let fields = FIELDS.into_iter().zip(line.split('|')).collect();
        let number = |name| number(&fields, name);
        let (payload, flags, start) = (number("tcp.len"), number("tcp.flags"), number("tcp.seq"));
        let syn_fin = u64::from((flags & (SYN | FIN)).count_ones());
        Self {
            payload,
            flags,
            numbers: start..start + payload + syn_fin,
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

    /// Returns the highest edge of the SACK blocks.
    fn sack_end(&self) -> u64 {
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

/// Returns the packets of each direction. In tunnels, the innermost addresses count.
pub(crate) fn counts(file: &Path) -> Counts {
    let mut command = Command::new("tshark");
    // ICMP errors quote TCP headers.
    let filter = "tcp && !icmp && !icmpv6";
    command.arg("-r").arg(file);
    command.args(["-Y", filter, "-T", "fields"]);
    command.args(["-E", "separator=|", "-E", "occurrence=l"]);
    command.args(["-o", "ip.defragment:FALSE"]);
    command.args(FIELDS[..6].iter().flat_map(|field| ["-e", field]));
    // tshark fails at the end of a damaged file. What it has read until then is compared.
    let output = command.output().unwrap();
    let mut counts = Counts::new();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let texts: Vec<_> = line.split('|').collect();
        let end = |at: usize| {
            let addresses = [texts[at + 1], texts[at]];
            let address = addresses.iter().find_map(|text| text.parse().ok())?;
            Some((address, texts[at + 2].parse().ok()?))
        };
        // Of a header that is cut off, tshark shows no port.
        if let (Some(from), Some(to)) = (end(0), end(3)) {
            *counts.entry((from, to)).or_default() += 1;
        }
    }
    counts
}

/// Reads both directions of every connection.
pub(crate) fn read(file: &Path) -> BTreeMap<Direction, Tshark> {
    let mut command = Command::new("tshark");
    command
        .arg("-r")
        .arg(file)
        .args(["-Y", "tcp", "-T", "fields", "-E", "separator=|"]);
    command.args(FIELDS.iter().flat_map(|field| ["-e", field]));
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let mut directions: BTreeMap<Direction, Tshark> = BTreeMap::new();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let packet = Packet::parse(line);
        let direction = (packet.end("src"), packet.end("dst"));
        let mut own = directions.remove(&direction).unwrap_or_default();
        let other = directions.entry((direction.1, direction.0)).or_default();
        own.count(&packet);
        own.count_duplicate_acks(&packet, other);
        own.count_repeated_data(&packet, other);
        if packet.is(ACK) {
            other.count_ack_of_other(&packet, own.acked.unwrap_or(0));
            own.acked = own.acked.max(Some(packet.ack));
        }
        if packet.is(ACK) && !packet.is(RST) {
            own.received_end = own.received_end.max(packet.ack).max(packet.sack_end());
        }
        own.update_state(&packet);
        directions.insert(direction, own);
    }
    directions
}

impl Tshark {
    fn count(&mut self, packet: &Packet<'_>) {
        self.packets += 1;
        self.data_packets += u64::from(packet.payload > 0);
        self.payload_bytes += packet.payload;
        let pure = packet.payload == 0 && packet.is(ACK) && !packet.is(SYN | FIN | RST);
        self.pure_acks += u64::from(pure);
        // D8: a RST is not an ACK, though Linux puts SACK blocks on it.
        if !packet.is(RST) {
            let blocks = packet.fields["tcp.options.sack.count"].split(',');
            let blocks = blocks.filter_map(|count| count.parse::<u64>().ok());
            self.sack_blocks += blocks.sum::<u64>();
            self.with_sack += u64::from(packet.has("tcp.options.sack.count"));
        }
        self.zero_windows += u64::from(packet.has("tcp.analysis.zero_window"));
        let retransmitted_or_late = RETRANSMITTED_OR_LATE.iter().any(|field| packet.has(field));
        self.retransmitted_or_late += u64::from(retransmitted_or_late && !packet.is(SYN));
    }

    /// D1, D5, D11: counts duplicate ACKs by the definitions of tshark, tcptrace and RFC 5681 §2.
    fn count_duplicate_acks(&mut self, packet: &Packet<'_>, other: &Self) {
        let flagged = packet.has("tcp.analysis.duplicate_ack");
        let bare = packet.payload == 0 && packet.is(ACK) && !packet.is(SYN);
        let same_window = self
            .last_ack_and_window
            .is_some_and(|last| last.1 == packet.window);
        let repeats = bare && same_window && self.acked == Some(packet.ack);
        // D14: data reported by SACK was sent, even if it was not captured.
        let unseen = packet.ack >= other.next;
        let outstanding = !unseen || packet.ack < self.received_end;
        let duplicate = repeats && !packet.is(FIN | RST) && outstanding;
        let after_late = self
            .last_ack_and_window
            .is_some_and(|last| last.0 != packet.ack);
        let unlike_tshark = unseen
            || after_late
            || packet.window == 0
            || packet.numbers.start != self.next
            || other.last_was_keep_alive;
        self.duplicate_acks += u64::from(flagged);
        self.false_duplicates += u64::from(flagged && !duplicate);
        self.other_duplicates += u64::from(!flagged && duplicate && unlike_tshark);
        let last = packet.ack.saturating_sub(1)..packet.ack;
        let by_tcptrace =
            repeats && !after_late && other.has_sent_non_syn && other.captured.overlap(&last) > 0;
        self.extra_tcptrace_duplicates += i64::from(by_tcptrace) - i64::from(duplicate);
    }

    /// D5, D9, D10: counts repeated sequence numbers by tcptrace's definition and by ours.
    fn count_repeated_data(&mut self, packet: &Packet<'_>, other: &Self) {
        if packet.numbers.is_empty() || packet.is(RST) {
            return;
        }
        let zero_window =
            !packet.is(SYN) && other.last_ack_and_window.is_some_and(|last| last.1 == 0);
        let is_acked = other.acked >= Some(packet.numbers.end);
        let one_below = packet.payload == 1 && packet.numbers.end == self.next;
        let probe = one_below && !packet.is(FIN) && (is_acked || zero_window);
        let keep_alive = packet.has("tcp.analysis.keep_alive") && packet.payload == 1;
        self.keep_alives_of_data += u64::from(keep_alive && !probe);

        let new = self.packets > 1 && packet.numbers.start >= self.next;
        let flagged = RETRANSMITTED_OR_LATE.iter().any(|field| packet.has(field));
        let acked_before_capture = new && !flagged && other.received_end > packet.numbers.start;
        self.acked_before_capture += u64::from(acked_before_capture && !packet.is(SYN));
        let is_first_byte = self.packets == 1 && packet.payload == 1 && flagged;
        self.first_packet_keep_alives +=
            u64::from(is_first_byte && other.acked == Some(packet.numbers.end));

        let (captured, captured_by_tcptrace) = (&self.captured, &self.captured_by_tcptrace);
        let (captured, captured_by_tcptrace) = (
            captured.overlap(&packet.numbers),
            captured_by_tcptrace.overlap(&packet.numbers),
        );
        let ours = if probe || packet.is(SYN) { 0 } else { captured };
        let theirs = if zero_window { 0 } else { captured_by_tcptrace };
        let differences = &mut self.differences;
        differences.retransmitted_packets += i64::from(ours > 0) - i64::from(theirs > 0);
        differences.retransmitted_bytes +=
            ours.min(packet.payload).cast_signed() - theirs.cast_signed();
        let unique = |again: u64| packet.payload.saturating_sub(again).cast_signed();
        let unique_by_tcptrace = if zero_window {
            0
        } else {
            unique(captured_by_tcptrace)
        };
        differences.unique_bytes += unique(captured) - unique_by_tcptrace;

        if ours > 0 {
            self.captured_twice.insert(packet.numbers.clone());
            self.next_at_last_repeat = self.next;
        } else if !probe && packet.numbers.start < self.next {
            // D13: no data, only an ACK had a higher sequence number before.
            self.differences.late_packets += i64::from(packet.numbers.start >= self.data_next);
            self.late.insert(packet.numbers.clone());
            self.next_at_last_repeat = self.next;
        }
        self.data_next = self.data_next.max(packet.numbers.end);
        self.captured.insert(packet.numbers.clone());
        if !zero_window {
            self.captured_by_tcptrace.insert(packet.numbers.clone());
        }
    }

    /// Counts an ACK that the other end sent; `before` is its ACK number until then.
    fn count_ack_of_other(&mut self, packet: &Packet<'_>, before: u64) {
        let covered = before..packet.ack;
        if covered.is_empty() {
            return;
        }
        if self.captured_twice.overlap(&covered) > 0 {
            self.acks_of_data_captured_twice += 1;
        } else if self.late.overlap(&covered) > 0 {
            self.acks_of_late_data += 1;
        } else {
            self.acks_of_data_before_repeat += u64::from(packet.ack <= self.next_at_last_repeat);
            match packet.rtt_ms() {
                Some(rtt_ms) if packet.is(RST) => self.reset_rtt_ms.push(rtt_ms),
                Some(rtt_ms) => self.rtt_ms.push(rtt_ms),
                // The ACK counts only if the packet that it acknowledges was captured.
                None => {
                    let last = packet.ack - 1..packet.ack;
                    self.acks_inside_packets += self.captured.overlap(&last);
                }
            }
        }
    }

    fn update_state(&mut self, packet: &Packet<'_>) {
        self.last_was_keep_alive = packet.has("tcp.analysis.keep_alive");
        self.next = self.next.max(packet.numbers.end);
        self.has_sent_non_syn |= !packet.is(SYN);
        // The window of a SYN is not scaled, so that of a late SYN cannot be compared.
        let late_syn = packet.is(SYN) && self.last_ack_and_window.is_some();
        if !packet.is(RST) && !late_syn {
            self.last_ack_and_window = Some((packet.ack, packet.window));
        }
    }
}
