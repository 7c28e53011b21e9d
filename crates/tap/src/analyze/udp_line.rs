// SPDX-License-Identifier: MIT OR Apache-2.0
//! Line of a UDP flow for the terminal.

use crate::report::Analysis;
use longhaul_command::console::escape;
use longhaul_flow::udp::{Quic, SpinBit, UdpDirection, UdpFlow};
use longhaul_report::count::counted;
use longhaul_units::{BitRate, Bytes, Time};

/// Returns the line, with its end.
pub(super) fn udp_line(analysis: &Analysis, flow: &UdpFlow) -> String {
    let UdpFlow {
        number,
        client,
        server,
        quic,
        ..
    } = flow;
    let mut parts = vec![format!("{number} UDP {client} → {server}")];
    let point = analysis.capture_point_name(flow.capture_point);
    parts.extend(point.map(|name| format!("captured at {}", escape(name))));
    parts.extend(quic.as_ref().map(|quic| format!("QUIC {}", quic.version)));
    parts.extend(figures("up", &flow.upload));
    parts.extend(figures("down", &flow.download));
    let duration = Time::from_nanos(flow.last_ns.saturating_sub(flow.first_ns));
    parts.push(format!("in {duration}"));
    parts.extend(quic.as_ref().and_then(format_rtt));
    parts.join("  ") + "\n"
}

/// Returns packets, payload and rate of a direction that has packets.
fn figures(label: &str, direction: &UdpDirection) -> Option<String> {
    let payload = Bytes::new(direction.payload_bytes);
    let duration = Time::from_nanos(direction.duration_ns()?);
    let packets = counted(direction.packets, "packet");
    let rate = BitRate::mean(payload, duration).map(|rate| format!(", {rate}"));
    let rate = rate.unwrap_or_default();
    Some(format!("{label} {packets}, {payload}{rate}"))
}

/// Returns the median round trip by the spin bit; without one, that of the handshake and what the bit does.
fn format_rtt(quic: &Quic) -> Option<String> {
    let spin = match quic.spin_bit {
        SpinBit::Spins if quic.spin_rtt.count > 0 => {
            let rtt = Time::from_nanos(quic.spin_rtt.p50);
            return Some(format!("RTT {rtt} by the spin bit"));
        }
        SpinBit::Spins | SpinBit::Unknown => None,
        SpinBit::Constant => Some("the spin bit does not spin"),
        SpinBit::Random => Some("the spin bit is random"),
    };
    let handshake = quic.handshake_rtt_ns.map(Time::from_nanos);
    match (handshake, spin) {
        (Some(rtt), None) => Some(format!("RTT {rtt} in the handshake")),
        (Some(rtt), Some(spin)) => Some(format!("RTT {rtt} in the handshake ({spin})")),
        (None, spin) => spin.map(str::to_owned),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{CapturePointInfo, fixtures};

    fn line_with(spin_bit: SpinBit) -> String {
        let mut flow = fixtures::udp_flow(7);
        flow.quic.as_mut().unwrap().spin_bit = spin_bit;
        udp_line(&Analysis::default(), &flow)
    }

    #[test]
    fn line_has_figures_of_both_directions() {
        let line = "7 UDP 10.0.0.1:50000 → 10.0.0.2:443  QUIC 1  up 500 packets, 20 KB, 160 kbit/s  \
                    down 1000 packets, 1.2 MB, 9.6 Mbit/s  in 1 s  RTT 200 ms by the spin bit\n";
        assert_eq!(line_with(SpinBit::Spins), line);
    }

    #[test]
    fn line_says_if_the_bit_does_not_spin() {
        for (spin_bit, end) in [
            (
                SpinBit::Constant,
                "in the handshake (the spin bit does not spin)\n",
            ),
            (
                SpinBit::Random,
                "in the handshake (the spin bit is random)\n",
            ),
            (SpinBit::Unknown, "in the handshake\n"),
        ] {
            let line = line_with(spin_bit);
            assert!(line.ends_with(end), "{line}");
        }
    }

    #[test]
    fn direction_without_packets_is_left_out() {
        let mut flow = fixtures::udp_flow(7);
        (flow.download, flow.quic) = (UdpDirection::default(), None);
        let line = udp_line(&Analysis::default(), &flow);
        assert!(line.ends_with("160 kbit/s  in 1 s\n"), "{line}");
    }

    #[test]
    fn escapes_control_characters_of_capture_points() {
        let point = |name: &str| CapturePointInfo {
            name: name.to_owned(),
            ..CapturePointInfo::default()
        };
        let analysis = Analysis {
            capture_points: vec![point("e\u{1b}[31m"), point("other")],
            ..Analysis::default()
        };
        let line = udp_line(&analysis, &fixtures::udp_flow(7));
        assert!(
            line.contains("captured at e") && !line.contains('\u{1b}'),
            "{line:?}"
        );
    }
}
