// SPDX-License-Identifier: MIT OR Apache-2.0
//! Summary of an analysis for the terminal.

use super::{
    connections::{Connection, connections},
    parallel_flows::parallel_flow_lines,
    udp_line::udp_line,
};
use crate::report::{Analysis, CaptureFile};
use longhaul_command::console::escape;
use longhaul_flow::{
    ecn::{EcnCounts, negotiation::EcnNegotiation},
    record::{CongestionControl, Direction, Flow, Termination},
};
use longhaul_report::count::plural;
use longhaul_units::{BitRate, Bytes, Time};
use std::fmt::Write as _;

/// Maximum number of damages of a file in the summary; the result has more of them.
const DAMAGES_SHOWN: usize = 5;
/// Maximum number of UDP flows in the summary.
const UDP_FLOWS_SHOWN: usize = 5;

/// Least number of segments of a transfer that has a rate: a few that were sent at once have only a spacing.
const RATE_SEGMENTS_MIN: u64 = 10;
/// Connections that failed in the same way from which on a line says so: a scan or a host that is down.
const FAILED_HANDSHAKES_MIN: usize = 5;

/// Returns the summary: the largest `flows` flows, and the problems of the files.
pub(super) fn summary(analysis: &Analysis, flows: usize) -> String {
    let mut text = format_headline(analysis);
    for file in &analysis.files {
        text += &file_problems(file);
    }
    text += &format_failed_handshakes(&analysis.flows);
    let connections = connections(analysis);
    text += &parallel_flow_lines(&connections);
    let (shown, hidden) = connections.split_at(flows.min(connections.len()));
    for connection in shown {
        text += &connection_lines(analysis, *connection);
    }
    let hidden_flows = hidden
        .iter()
        .map(|one| one.flows().len() as u64)
        .sum::<u64>()
        + analysis.remainder.flows;
    if hidden_flows > 0 {
        let _ = writeln!(text, "\nand {}", counted(hidden_flows, "smaller flow"));
    }
    text + &udp_lines(analysis)
}

fn format_headline(analysis: &Analysis) -> String {
    let packets = analysis.files.iter().map(|file| file.packets).sum::<u64>();
    let flows = analysis.flows.len() as u64 + analysis.remainder.flows;
    let first = analysis.files.iter().filter_map(|file| file.first_ns).min();
    let last = analysis.files.iter().filter_map(|file| file.last_ns).max();
    let span = first.zip(last).map(|(first, last)| last - first);
    let files = match analysis.files.as_slice() {
        [file] => escape(&file.name),
        files => counted(files.len() as u64, "file"),
    };
    let mut text = format!("{files}: {}", counted(packets, "packet"));
    if let Some(span) = span {
        let _ = write!(text, " in {}", Time::from_nanos(span));
    }
    let tcp = counted(flows, "flow");
    let _ = match (flows, format_udp_counts(analysis)) {
        (_, None) => writeln!(text, ", {tcp}"),
        (0, Some(udp)) => writeln!(text, ", no TCP; {udp}"),
        (_, Some(udp)) => writeln!(text, ", {tcp}; {udp}"),
    };
    text
}

/// Returns the number of UDP flows as text: "3 UDP flows, 2 of them QUIC".
fn format_udp_counts(analysis: &Analysis) -> Option<String> {
    let (flows, quic) = analysis.udp_flow_counts();
    let quic = match (flows, quic) {
        (0, _) => return None,
        (_, 0) => "",
        (1, _) => ", QUIC",
        (_, quic) => &format!(", {} of them QUIC", with_thousands_separators(quic)),
    };
    Some(counted(flows, "UDP flow") + quic)
}

/// Returns a line for each of the largest UDP flows.
fn udp_lines(analysis: &Analysis) -> String {
    let shown = analysis.udp_flows.iter().take(UDP_FLOWS_SHOWN);
    let mut text: String = shown.map(|flow| udp_line(analysis, flow)).collect();
    let (all, _) = analysis.udp_flow_counts();
    let hidden = all.saturating_sub(UDP_FLOWS_SHOWN as u64);
    if hidden > 0 {
        let _ = writeln!(text, "and {}", counted(hidden, "smaller UDP flow"));
    }
    if text.is_empty() {
        text
    } else {
        format!("\n{text}")
    }
}

/// Returns a line for each reason why a part of a file was not analysed.
fn file_problems(file: &CaptureFile) -> String {
    let mut text = String::new();
    if file.packets == 0 && file.damages.is_empty() {
        let _ = writeln!(text, "{}: an empty capture", file.name);
    }
    for damage in file.damages.iter().take(DAMAGES_SHOWN) {
        let _ = writeln!(text, "{}: {}", file.name, damage.description);
    }
    let shown = file.damages.len().min(DAMAGES_SHOWN) as u64;
    let more = file.damages.len() as u64 + file.unlisted_damages - shown;
    if more > 0 {
        let _ = writeln!(
            text,
            "{}: and {}",
            file.name,
            counted(more, "more damaged range")
        );
    }
    if let Some(drops) = file.kernel_drops.filter(|drops| *drops > 0) {
        let _ = writeln!(
            text,
            "{}: {} dropped by the kernel during the capture; some losses may be these packets",
            file.name,
            counted(drops, "packet")
        );
    }
    for warning in &file.warnings {
        let _ = writeln!(text, "{}: {warning}", file.name);
    }
    for (reason, count) in &file.skipped {
        let _ = writeln!(
            text,
            "{}: {} skipped: {reason}",
            file.name,
            counted(*count, "packet")
        );
    }
    text
}

/// Returns the lines of a connection: one for its endpoints, two for each direction that has data.
fn connection_lines(analysis: &Analysis, connection: Connection<'_>) -> String {
    let mut text = format_ends(analysis, connection);
    if let Some(sentence) = describe_without_data(connection.at_client) {
        let _ = writeln!(text, "  {sentence}");
    }
    let directions = ["upload  ", "download"]
        .into_iter()
        .zip(connection.directions());
    for (label, (flow, direction)) in directions {
        let labels = std::iter::once(label).chain(std::iter::repeat("        "));
        for (label, line) in labels.zip(direction_lines(flow, direction)) {
            let _ = writeln!(text, "  {label} {line}");
        }
    }
    text
}

/// Returns the numbers of a connection's flows, its endpoints, and where it was captured.
fn format_ends(analysis: &Analysis, connection: Connection<'_>) -> String {
    let flows = connection.flows();
    let numbers: Vec<_> = flows.iter().map(|flow| flow.number.to_string()).collect();
    let Flow { client, server, .. } = connection.at_client;
    let mut text = format!(
        "\n{} {}:{} → {}:{}",
        numbers.join(" and "),
        client.address,
        client.port,
        server.address,
        server.port
    );
    let points = flows
        .iter()
        .filter_map(|flow| analysis.capture_point_name(flow.capture_point));
    let points: Vec<_> = points.map(escape).collect();
    if !points.is_empty() {
        let _ = write!(text, ", captured at {}", points.join(" and "));
    }
    if connection.at_server.is_none() && was_compared_elsewhere(analysis, connection.at_client) {
        text += ", not compared with the other points";
    }
    text.push('\n');
    text
}

/// Returns whether other flows of the same connection are compared: of more than two points, the two farthest apart.
fn was_compared_elsewhere(analysis: &Analysis, flow: &Flow) -> bool {
    let is_compared = |number: u64| {
        let mut pairs = analysis.two_point_comparisons.iter();
        pairs.any(|pair| [pair.left, pair.right].contains(&number))
    };
    analysis.flows.iter().any(|other| {
        (other.client, other.server) == (flow.client, flow.server)
            && other.capture_point != flow.capture_point
            && is_compared(other.number)
    })
}

/// Returns the lines of a direction: its figures, the verdict, what would help, and its congestion control.
fn direction_lines(flow: &Flow, direction: &Direction) -> Vec<String> {
    if direction.data.payload_bytes == 0 {
        return describe_by_acks(flow, direction).into_iter().collect();
    }
    let sentences = [direction.verdict.clone(), direction.remedy.clone()];
    let sentences = sentences
        .into_iter()
        .filter(|sentence| !sentence.is_empty());
    let control = direction.congestion_control.as_ref();
    std::iter::once(format_figures(flow, direction))
        .chain(sentences)
        .chain(control.map(CongestionControl::describe))
        .collect()
}

/// Returns what ACKs show of data that was not captured.
fn describe_by_acks(flow: &Flow, direction: &Direction) -> Option<String> {
    let bytes = Bytes::new(direction.acks.acked_bytes);
    let span = direction
        .acks
        .last_advancing_ns?
        .saturating_sub(flow.first_ns);
    let span = Time::from_nanos(span);
    let rate = BitRate::mean(bytes, span).map_or_else(String::new, |rate| format!("  {rate}"));
    Some(format!(
        "{bytes}  in {span}{rate}, by its ACKs: no data was captured"
    ))
}

/// Returns what became of a connection without data.
fn describe_without_data(flow: &Flow) -> Option<String> {
    let Flow {
        upload, download, ..
    } = flow;
    let has_data = |one: &Direction| one.data.payload_bytes > 0 || one.acks.acked_bytes > 0;
    if has_data(upload) || has_data(download) {
        return None;
    }
    let packet = match upload.syn_options.mss {
        Some(_) => "SYN",
        None => "packet",
    };
    Some(match flow.termination {
        _ if is_unanswered(flow) => {
            format!("no answer to {}", counted(upload.data.packets, packet))
        }
        Termination::ResetByServer => "refused: reset by the server, no data".to_owned(),
        Termination::ResetByClient => "reset by the client, no data".to_owned(),
        _ => "no data".to_owned(),
    })
}

/// Returns whether one end sent packets without payload, and the other nothing.
fn is_unanswered(flow: &Flow) -> bool {
    flow.download.data.packets == 0 && flow.upload.data.payload_bytes == 0
}

/// Returns a line about handshakes that failed; empty if there are few.
fn format_failed_handshakes(flows: &[Flow]) -> String {
    let unanswered = flows.iter().filter(|flow| is_unanswered(flow)).count();
    let is_refused = |flow: &&Flow| {
        flow.termination == Termination::ResetByServer
            && flow.handshake.syn_to_syn_ack_ns.is_none()
            && flow.download.data.payload_bytes + flow.upload.data.payload_bytes == 0
    };
    let refused = flows.iter().filter(is_refused).count();
    let counts = [
        (unanswered, "without an answer"),
        (refused, "refused by a reset"),
    ];
    let parts: Vec<String> = counts
        .iter()
        .filter(|(count, _)| *count >= FAILED_HANDSHAKES_MIN)
        .map(|(count, how)| format!("{} {how}", counted(*count as u64, "connection")))
        .collect();
    if parts.is_empty() {
        String::new()
    } else {
        format!(
            "{} of the {} listed\n",
            parts.join(", "),
            counted(flows.len() as u64, "flow")
        )
    }
}

fn format_figures(flow: &Flow, direction: &Direction) -> String {
    let data = &direction.data;
    let mut parts = vec![Bytes::new(data.unique_bytes).to_string()];
    if let Some(span) = direction.transfer_ns().map(Time::from_nanos) {
        parts.push(format!("in {span}"));
    }
    let has_rate = data.data_segments >= RATE_SEGMENTS_MIN;
    if let Some(rate) = direction.goodput_bps().filter(|_| has_rate) {
        parts.push(BitRate::from_bits(rate as u64).to_string());
    }
    if let Some(rtt) = direction.path_rtt_ns.map(Time::from_nanos) {
        parts.push(format!("RTT {rtt}"));
    }
    if data.retransmitted_bytes > 0 {
        let share = data.retransmitted_bytes as f64 / data.payload_bytes as f64;
        parts.push(format!("{:.2} % retransmitted", share * 100.0));
    }
    if direction.packets_per_ack.count > 0 {
        parts.push(format!(
            "{:.1} packets per ACK",
            direction.packets_per_ack.mean
        ));
    }
    parts.extend(describe_ecn(flow.handshake.ecn, &direction.ecn));
    parts.join("  ")
}

/// Returns whether queues marked packets, where both ends use ECN.
fn describe_ecn(negotiation: EcnNegotiation, ecn: &EcnCounts) -> Option<String> {
    match negotiation {
        EcnNegotiation::Unknown | EcnNegotiation::NotNegotiated => return None,
        EcnNegotiation::Inferred | EcnNegotiation::Classic | EcnNegotiation::Accurate => {}
    }
    let marked = ecn.ce_data_segments.max(ecn.reported_ce_packets);
    Some(match (marked, ecn.ece_acks) {
        (0, 0) => "ECN without marks".to_owned(),
        (0, acks) => format!("ECN with ECE in {}", counted(acks, "ACK")),
        (marked, _) => format!("ECN marks on {}", counted(marked, "packet")),
    })
}

/// Returns a number with its noun: `3 flows`, with a comma between thousands.
fn counted(count: u64, what: &str) -> String {
    format!(
        "{} {}",
        with_thousands_separators(count),
        plural(count, what)
    )
}

fn with_thousands_separators(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::CapturePointInfo;

    #[test]
    fn groups_thousands() {
        let cases = [
            (0, "0"),
            (999, "999"),
            (1000, "1,000"),
            (3_000_000, "3,000,000"),
        ];
        for (count, text) in cases {
            assert_eq!(with_thousands_separators(count), text);
        }
    }

    #[test]
    fn headline_counts_flows_by_protocol() {
        let headline = |tcp: u64, udp: u64, quic: u64| {
            let mut analysis = Analysis::default();
            analysis.remainder.flows = tcp;
            analysis.udp_remainder.flows = udp;
            analysis.udp_remainder.quic_flows = quic;
            format_headline(&analysis)
        };
        for (text, expected) in [
            (headline(0, 0, 0), ", 0 flows\n"),
            (headline(2, 0, 0), ", 2 flows\n"),
            (headline(0, 3, 2), ", no TCP; 3 UDP flows, 2 of them QUIC\n"),
            (headline(0, 1, 1), ", no TCP; 1 UDP flow, QUIC\n"),
            (headline(1, 4_000, 0), ", 1 flow; 4,000 UDP flows\n"),
        ] {
            assert!(text.ends_with(expected), "{text}");
        }
    }

    #[test]
    fn shows_the_largest_udp_flows_in_a_line_each() {
        let mut analysis = Analysis {
            udp_flows: (1..9).map(crate::report::fixtures::udp_flow).collect(),
            ..Analysis::default()
        };
        analysis.udp_remainder.flows = 1_000;
        let text = udp_lines(&analysis);
        assert_eq!(text.lines().count(), 1 + UDP_FLOWS_SHOWN + 1, "{text}");
        assert!(text.ends_with("\nand 1,003 smaller UDP flows\n"), "{text}");
        assert_eq!(udp_lines(&Analysis::default()), "");
    }

    #[test]
    fn names_the_point_that_is_not_compared() {
        use crate::report::fixtures::{short_flow, two_point_comparison};
        use longhaul_flow::segment::CapturePoint;
        let mut pair = two_point_comparison();
        (pair.left, pair.right) = (1, 3);
        let flow = |number: u64| Flow {
            capture_point: CapturePoint(number as u32),
            ..short_flow(number)
        };
        let analysis = Analysis {
            flows: [1, 2, 3].map(flow).to_vec(),
            two_point_comparisons: vec![pair],
            ..Analysis::default()
        };
        let text = summary(&analysis, 5);
        let (between, lines) = (", not compared", text.lines());
        let with: Vec<_> = lines.filter(|line| line.contains(between)).collect();
        assert!(with.len() == 1 && with[0].starts_with("2 "), "{text}");
    }

    #[test]
    fn escapes_control_characters_of_names() {
        let file = CaptureFile {
            name: "a\u{1b}[31m.pcap".to_owned(),
            ..CaptureFile::default()
        };
        let name = |name: &str| CapturePointInfo {
            name: name.to_owned(),
            ..CapturePointInfo::default()
        };
        let analysis = Analysis {
            files: vec![file],
            capture_points: vec![name("e\u{1b}[31m\n1 forged"), name("other")],
            ..Analysis::default()
        };
        let flow: Flow = serde_json::from_value(serde_json::json!({
            "number": 1, "capture_point": 0, "client": { "address": "10.0.0.1", "port": 1 },
            "server": { "address": "10.0.0.2", "port": 2 }, "first_ns": 0, "last_ns": 1,
            "handshake": { "syn_to_syn_ack_ns": null, "syn_ack_to_ack_ns": null,
                         "syn_retransmissions": 0, "syn_ack_retransmissions": 0 },
            "termination": "open", "upload": Direction::default(), "download": Direction::default(),
        }))
        .unwrap();
        let connection = Connection {
            at_client: &flow,
            at_server: None,
        };
        let text = format_headline(&analysis) + &connection_lines(&analysis, connection);
        assert!(!text.contains('\u{1b}'), "{text:?}");
        assert!(!text.contains("\n1 forged"), "{text:?}");
    }

    #[test]
    fn a_few_segments_have_no_rate() {
        let mut flow = crate::report::fixtures::short_flow(1);
        flow.upload.acks.acked_bytes = 20_000;
        for (segments, has_rate) in [(RATE_SEGMENTS_MIN - 1, false), (RATE_SEGMENTS_MIN, true)] {
            flow.upload.data.data_segments = segments;
            let figures = format_figures(&flow, &flow.upload);
            assert_eq!(figures.contains("bit/s"), has_rate, "{figures}");
        }
    }

    #[test]
    fn says_whether_queues_marked_packets() {
        let mut ecn = EcnCounts::default();
        let used = EcnNegotiation::Classic;
        assert_eq!(describe_ecn(EcnNegotiation::NotNegotiated, &ecn), None);
        assert_eq!(describe_ecn(used, &ecn).unwrap(), "ECN without marks");
        ecn.ece_acks = 1;
        assert_eq!(describe_ecn(used, &ecn).unwrap(), "ECN with ECE in 1 ACK");
        ecn.ce_data_segments = 2000;
        assert_eq!(
            describe_ecn(used, &ecn).unwrap(),
            "ECN marks on 2,000 packets"
        );
    }

    #[test]
    fn says_what_became_of_connections_without_captured_data() {
        let mut flow = crate::report::fixtures::short_flow(1);
        flow.upload = Direction::default();
        assert_eq!(
            describe_without_data(&flow).unwrap(),
            "no answer to 0 packets"
        );
        flow.upload.data.packets = 2;
        flow.upload.syn_options.mss = Some(1460);
        assert_eq!(describe_without_data(&flow).unwrap(), "no answer to 2 SYNs");
        flow.download.data.packets = 1;
        assert!(describe_without_data(&flow).unwrap().starts_with("refused"));
        flow.download.acks.acked_bytes = 1_000_000;
        flow.download.acks.last_advancing_ns = Some(flow.first_ns + 1_000_000_000);
        assert_eq!(describe_without_data(&flow), None);
        let lines = direction_lines(&flow, &flow.download);
        assert_eq!(
            lines,
            ["1 MB  in 1 s  8 Mbit/s, by its ACKs: no data was captured"]
        );
    }

    #[test]
    fn counts_scans() {
        let mut flow = crate::report::fixtures::short_flow(1);
        flow.upload = Direction::default();
        let flows = vec![flow; 7];
        assert_eq!(
            format_failed_handshakes(&flows),
            "7 connections without an answer of the 7 flows listed\n"
        );
        assert_eq!(format_failed_handshakes(&flows[..4]), "");
    }

    #[test]
    fn reports_problems_of_a_file() {
        let mut file = CaptureFile {
            name: "a.pcap".to_owned(),
            ..CaptureFile::default()
        };
        assert_eq!(file_problems(&file), "a.pcap: an empty capture\n");
        file.packets = 5;
        assert_eq!(file_problems(&file), "");
        file.kernel_drops = Some(1);
        file.warnings.push("its times are odd".to_owned());
        file.skipped.insert("not IP".to_owned(), 1200);
        let text = file_problems(&file);
        assert!(text.contains("1 packet dropped by the kernel"), "{text}");
        assert!(text.contains("a.pcap: its times are odd\n"), "{text}");
        assert!(text.contains("1,200 packets skipped: not IP"), "{text}");
    }
}
