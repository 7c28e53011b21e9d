// SPDX-License-Identifier: MIT OR Apache-2.0
//! What limited a direction, in a sentence that says how sure it is.

pub mod joint_verdict;
pub mod limits;
pub mod phases;
mod standing;

use crate::record::{Direction, Flow, Limit, Limited, Phase, PhaseKind};
use limits::Windows;

/// Shares below this are not told.
const TOLD: f64 = 0.05;
/// From here on it is "all the time".
const ALL: f64 = 0.95;

/// Fills in phases, limits, places and verdicts of a flow whose courses are complete.
pub fn judge(flow: &mut Flow) {
    let (opening, up, down) = (flow.opening, &flow.upload, &flow.download);
    let to_server = standing::least(opening.syn_to_syn_ack_ns, up);
    let to_client = standing::least(opening.syn_ack_to_ack_ns, down);
    let whole = opening.round_trip_ns();
    flow.upload.standing = standing::of(to_client, to_server);
    flow.download.standing = standing::of(to_server, to_client);
    judge_direction(&mut flow.upload, whole);
    judge_direction(&mut flow.download, whole);
}

/// Likewise for one direction, whose `standing` is known. `handshake_ns` is the round trip of the
/// handshake, if it was seen.
pub fn judge_direction(direction: &mut Direction, handshake_ns: Option<u64>) {
    direction.phases = phases::of(&direction.course, handshake_ns);
    let windows = Windows::of(&direction.acks);
    direction.limits = limits::of(&direction.course, windows, handshake_ns, None);
    direction.verdict = sentence(direction);
}

/// The verdict on `direction`, whose phases, limits and standing are known; empty without data.
#[must_use]
pub fn sentence(direction: &Direction) -> String {
    let standing = &direction.standing;
    let seen_from = standing::seen_from(standing.place);
    judged(direction, seen_from, &standing::reservation(standing))
}

/// The verdict on `direction`, captured near its sender, whose limits were judged with the delays of a
/// capture near its receiver; empty without data.
#[must_use]
pub fn sentence_of_both_ends(direction: &Direction) -> String {
    judged(direction, "Seen at both ends: ", "")
}

fn judged(direction: &Direction, seen_from: &str, reservation: &str) -> String {
    let shares = shares(&direction.limits);
    match (shares.is_empty(), direction.data.unique_bytes) {
        (true, 0) => String::new(),
        (true, _) => "Too few packets to say what limited it.".to_owned(),
        (false, _) => {
            let limited_by = limited_by(direction, &shares);
            let scale_unknown = scale_unknown(direction);
            [seen_from, &limited_by, scale_unknown, reservation].concat()
        }
    }
}

/// What a verdict without the scale of the windows can't take into account.
fn scale_unknown(direction: &Direction) -> &'static str {
    match Windows::of(&direction.acks) {
        Windows::Scaled => "",
        Windows::Unknown => {
            " The capture lacks the scale of the windows (a SYN with all of its options): a full window would \
             not show, only one of zero."
        }
    }
}

/// "limited all the time by ….", for shares of which there is one at least.
fn limited_by(direction: &Direction, shares: &[(Limit, f64)]) -> String {
    let (main, share) = shares[0];
    let mut text = match share {
        share if share >= ALL => format!("limited all the time by {}", by(main)),
        share if share >= 0.5 => {
            format!(
                "limited most of the time ({}) by {}",
                percent(share),
                by(main)
            )
        }
        share => format!(
            "limited for the largest part ({}) by {}",
            percent(share),
            by(main)
        ),
    };
    text += &evidence(direction, main);
    for (limit, share) in shares[1..].iter().filter(|(_, share)| *share >= TOLD) {
        text += &format!("; {} by {}", percent(*share), by(*limit));
    }
    text + "."
}

/// Parts of the time that was judged, the largest first.
#[must_use]
pub fn shares(limits: &[Limited]) -> Vec<(Limit, f64)> {
    let span = |limited: &Limited| limited.length_ns() as f64;
    let whole: f64 = limits.iter().map(span).sum();
    let mut shares: Vec<(Limit, f64)> = ALL_LIMITS
        .iter()
        .map(|limit| {
            let of = limits.iter().filter(|limited| limited.by == *limit);
            (*limit, of.map(span).sum::<f64>() / whole.max(1.0))
        })
        .filter(|(_, share)| *share > 0.0)
        .collect();
    shares.sort_by(|one, other| other.1.total_cmp(&one.1));
    shares
}

const ALL_LIMITS: [Limit; 5] = [
    Limit::Application,
    Limit::ReceiveWindow,
    Limit::CongestionWindow,
    Limit::PathRate,
    Limit::AckStream,
];

fn by(limit: Limit) -> &'static str {
    match limit {
        Limit::Application => "the sender itself (nothing to send, or its pacing or send buffer)",
        Limit::ReceiveWindow => "the receiver's window",
        Limit::CongestionWindow => "the congestion window, as it grew or after losses",
        Limit::PathRate => "the path's rate: a queue stood",
        Limit::AckStream => "the ACK stream: ACKs queued on their way back",
    }
}

/// The figure that shows it best.
fn evidence(direction: &Direction, limit: Limit) -> String {
    let phase = longest(direction);
    match limit {
        Limit::ReceiveWindow if Windows::of(&direction.acks) == Windows::Unknown => {
            ", which was zero".to_owned()
        }
        Limit::ReceiveWindow => {
            let largest = bytes(direction.acks.window_max_bytes);
            match limits::holds_unread_data(&direction.course) {
                true => format!(
                    " of at most {largest}, because the receiving application read more slowly than data came"
                ),
                false => format!(" of at most {largest}"),
            }
        }
        Limit::CongestionWindow => {
            let data = &direction.data;
            let again = data.fast_retransmissions + data.timeout_retransmissions;
            format!(" ({again} retransmissions)")
        }
        Limit::PathRate => {
            phase.map_or_else(String::new, |phase| format!(" at {}", rate(phase.data_bps)))
        }
        Limit::AckStream => phase.map_or_else(String::new, |phase| {
            let (acks, packets) = (phase.acks_per_s, phase.packets_per_ack);
            format!(", {acks:.0} a second for {packets:.1} packets each")
        }),
        Limit::Application => String::new(),
    }
}

fn longest(direction: &Direction) -> Option<&Phase> {
    let sending = direction
        .phases
        .iter()
        .filter(|phase| phase.kind != PhaseKind::Idle);
    sending.max_by_key(|phase| phase.length_ns())
}

fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

fn bytes(bytes: u64) -> String {
    longhaul_units::Bytes::new(bytes).to_string()
}

fn rate(bps: f64) -> String {
    longhaul_units::BitRate::from_bits(bps as u64).to_string()
}
