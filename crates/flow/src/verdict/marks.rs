// SPDX-License-Identifier: MIT OR Apache-2.0
//! ECN marks in the sentence of a verdict: whether marks or losses reduced the sender's window.

use crate::record::{CaptureLocation, Direction, Limit};

/// Returns the congestion window as a limit, with the marks that reduced it.
pub(super) fn congestion_window(direction: &Direction) -> String {
    let marks = share_while(direction, Limit::CongestionWindow);
    match (marks, direction.data.retransmissions) {
        (None, 0) => "the congestion window (growth)".to_owned(),
        (None, _) => "the congestion window (growth or loss recovery)".to_owned(),
        (Some(marks), 0) => {
            format!("the congestion window, reduced by ECN marks ({marks}), not by losses")
        }
        (Some(marks), losses) => {
            format!(
                "the congestion window, reduced by ECN marks ({marks}) and losses ({losses} retransmissions)"
            )
        }
    }
}

/// Returns the number of retransmissions, unless [`congestion_window`] has it or there are none.
pub(super) fn retransmissions(direction: &Direction) -> String {
    match (
        share_while(direction, Limit::CongestionWindow),
        direction.data.retransmissions,
    ) {
        (Some(_), _) | (None, 0) => String::new(),
        (None, 1) => " (1 retransmission)".to_owned(),
        (None, losses) => format!(" ({losses} retransmissions)"),
    }
}

/// Returns how many packets the bottleneck's queue marks, if it marks any.
pub(super) fn of_queue(direction: &Direction) -> String {
    match share_while(direction, Limit::BottleneckBandwidth) {
        Some(marks) => format!(", whose queue sets ECN marks ({marks})"),
        None => String::new(),
    }
}

/// Returns the share of marked packets, if there were marks while `limit` limited.
fn share_while(direction: &Direction, limit: Limit) -> Option<String> {
    let series = &direction.time_series;
    let is_during = |at_ns: u64| {
        let mut periods = direction.limits.iter();
        periods
            .any(|period| period.limit == limit && (period.from_ns..period.to_ns).contains(&at_ns))
    };
    let mut bins = series.bins.iter().enumerate();
    let is_marked = bins.any(|(at, bin)| bin.is_marked() && is_during(series.bin_start_ns(at)));
    is_marked.then(|| share(direction))
}

/// Returns the share of marked packets as far as the capture point shows it. Near the receiver all marks of the path
/// pass it, and AccECN reports all. Elsewhere only marks before the capture point can be counted. An ACK with ECE says
/// that there was one, and so do all further ACKs until the sender's answer by CWR (RFC 3168 §6.1.3): the answers count.
fn share(direction: &Direction) -> String {
    let (ecn, segments) = (&direction.ecn, direction.data.data_segments);
    let at_receiver = direction.tap_position.location == CaptureLocation::NearReceiver;
    match (ecn.reported_ce_packets, ecn.ce_data_segments) {
        (0, 0) if ecn.cwr_packets == 1 => "answered by the sender once".to_owned(),
        (0, 0) if ecn.cwr_packets > 0 => {
            format!("answered by the sender {} times", ecn.cwr_packets)
        }
        (0, 0) => {
            let acks = direction.acks.pure.max(ecn.ece_acks);
            format!("ECE in {} of ACKs", percent(ecn.ece_acks, acks))
        }
        (_, marked) if at_receiver && marked > 0 => {
            format!("{} of packets", percent(marked, segments))
        }
        (0, marked) => format!(
            "{} of packets at the capture point",
            percent(marked, segments)
        ),
        (reported, _) => format!("{} of packets", percent(reported, segments)),
    }
}

/// Returns the percentage with two significant digits.
fn percent(part: u64, whole: u64) -> String {
    let percent = 100.0 * part as f64 / whole.max(1) as f64;
    let decimals = match percent {
        percent if percent >= 10.0 => 0,
        percent if percent >= 1.0 => 1,
        _ => 2,
    };
    format!("{percent:.decimals$} %")
}
