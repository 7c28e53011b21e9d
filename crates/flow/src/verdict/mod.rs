// SPDX-License-Identifier: MIT OR Apache-2.0
//! Verdict: the limiting factors of a direction in a sentence, with its certainty.

pub mod advertised_window;
mod baseline;
mod capture_position;
mod congestion_control;
mod in_flight;
pub mod joint_verdict;
pub mod limits;
mod marks;
pub mod phases;
mod queues;
mod remedy;
mod saturation;

use crate::record::{
    CaptureLocation, Data, Direction, Flow, Limit, LimitPeriod, Phase, PhaseKind, SynOptions,
};
use crate::time_series::change_points::median;
use advertised_window::Windows;
use limits::CapturePoints;

/// Least share of the time that the verdict mentions.
const SHARE_MIN: f64 = 0.05;
/// Least share of the time that the verdict calls "all the time".
const ALL_SHARE: f64 = 0.95;

/// Least share of acknowledged bytes that the capture lacks if the verdict says so.
pub const MISSING_SHARE_MIN: f64 = 0.01;

/// Fills in phases, limits, capture positions and verdicts of a flow whose time series are complete.
pub fn assess(flow: &mut Flow) {
    let (handshake, up, down) = (flow.handshake, &flow.upload, &flow.download);
    let to_server = capture_position::least_rtt(handshake.syn_to_syn_ack_ns, up)
        .or_else(|| least_echoed_rtt(down));
    let to_client = capture_position::least_rtt(handshake.syn_ack_to_ack_ns, down)
        .or_else(|| least_echoed_rtt(up));
    let whole = handshake.round_trip_ns();
    let queues = [up, down].map(capture_position::queue_before_ns);
    flow.upload.tap_position = capture_position::locate(to_client, to_server, queues[0]);
    flow.download.tap_position = capture_position::locate(to_server, to_client, queues[1]);
    assess_direction(&mut flow.upload, whole);
    assess_direction(&mut flow.download, whole);
    if flow.clock_steps_back > 0 {
        add_clock_caveat(&mut flow.upload.verdict);
        add_clock_caveat(&mut flow.download.verdict);
    }
}

/// Fills in phases, limits and verdict of one direction, whose capture position is known. `handshake_ns` is the
/// round trip of the handshake, if it was seen.
pub fn assess_direction(direction: &mut Direction, handshake_ns: Option<u64>) {
    direction.phases = phases::detect(&direction.time_series, handshake_ns);
    let windows = Windows::of(&direction.acks);
    let capture_points = match direction.tap_position.location {
        CaptureLocation::Middle | CaptureLocation::NearReceiver => CapturePoints::FarFromSender,
        CaptureLocation::NearSender | CaptureLocation::Unknown => CapturePoints::NearSender,
    };
    let series = &direction.time_series;
    let whole_ns = handshake_ns.or(direction.tap_position.round_trip_ns());
    direction.limits = if has_acks(direction) {
        limits::classify(series, windows, whole_ns, capture_points)
    } else {
        Vec::new()
    };
    direction.path_rtt_ns = path_rtt_ns(direction, handshake_ns);
    let (shares, shows_sender) = (limit_shares(&direction.limits), shows_sender(direction));
    direction.congestion_control =
        congestion_control::name(direction, handshake_ns, &shares, shows_sender);
    (direction.verdict, direction.remedy) = (
        verdict_text(direction),
        remedy_text(direction, handshake_ns),
    );
}

/// Returns what would help, if the main limit is known from this position.
fn remedy_text(direction: &Direction, handshake_ns: Option<u64>) -> String {
    let is_known = direction.tap_position.location != CaptureLocation::Unknown;
    let shares = limit_shares(&direction.limits);
    let is_whole = direction.data.acked_unseen_share() <= MISSING_SHARE_MIN;
    // The receive window may be the limit.
    let is_shown =
        |main: Limit| main != Limit::Application || Windows::of(&direction.acks) == Windows::Scaled;
    let main = shares.first().filter(|_| is_known && is_whole);
    let main = main.filter(|(main, _)| is_shown(*main));
    main.map_or_else(String::new, |(main, _)| {
        remedy::remedy(direction, *main, handshake_ns)
    })
}

/// Returns whether timestamps show what the sender knew.
fn shows_sender(direction: &Direction) -> bool {
    echoed_rtts_ns(direction).next().is_some()
}

/// Returns the least round trip between the capture point and the sender of `direction` by the ACKs that its data echoes,
/// ns.
fn least_echoed_rtt(direction: &Direction) -> Option<u64> {
    echoed_rtts_ns(direction).min()
}

fn echoed_rtts_ns(direction: &Direction) -> impl Iterator<Item = u64> {
    let bins = direction.time_series.bins.iter();
    let rtts = bins.map(|bin| u64::from(bin.sender.rtt_min_us) * 1_000);
    rtts.filter(|rtt| *rtt > 0)
}

/// Returns the median round trip between sender and receiver. A sender with nothing to send lets ACKs wait, so the least
/// one counts where the application limits.
fn path_rtt_ns(direction: &Direction, handshake_ns: Option<u64>) -> Option<u64> {
    let to_receiver = Some(direction.round_trips())
        .filter(|rtt| rtt.count > 0)
        .map(|rtt| rtt.p50);
    match direction.tap_position.location {
        CaptureLocation::NearSender | CaptureLocation::Unknown => to_receiver,
        CaptureLocation::Middle | CaptureLocation::NearReceiver => {
            let shares = limit_shares(&direction.limits);
            let waits = (shares.first()).is_some_and(|(main, _)| *main == Limit::Application);
            let to_sender = if waits {
                least_echoed_rtt(direction)
            } else {
                median_echoed_rtt(direction)
            };
            to_sender.map_or(handshake_ns, |to_sender| {
                Some(to_receiver.unwrap_or(0) + to_sender)
            })
        }
    }
}

fn median_echoed_rtt(direction: &Direction) -> Option<u64> {
    let rtts: Vec<f64> = echoed_rtts_ns(direction).map(|rtt| rtt as f64).collect();
    (!rtts.is_empty()).then(|| median(rtts) as u64)
}

/// Returns the verdict on `direction`, whose phases, limits and capture position are known; empty without data.
fn verdict_text(direction: &Direction) -> String {
    let position = &direction.tap_position;
    let shows_sender = shows_sender(direction);
    let prefix = capture_position::verdict_prefix(position.location, shows_sender);
    let caveat = capture_position::verdict_caveat(position, shows_sender);
    format_verdict(direction, prefix, &caveat)
}

/// Returns the verdict on `direction`, captured near its sender, whose limits were classified with the delays of a
/// capture near its receiver; empty without data.
#[must_use]
pub fn two_point_verdict_text(direction: &Direction) -> String {
    format_verdict(direction, "Captured at both ends: ", "")
}

/// Returns the caveat on data that the capture lacks.
fn missing_caveat(data: &Data) -> String {
    match data.acked_unseen_share() {
        share if share > MISSING_SHARE_MIN => format!(
            " The capture lacks {:.0} % of the data, which was acknowledged: its rates, bursts and losses are uncertain.",
            share * 100.0
        ),
        _ => String::new(),
    }
}

/// Adds the caveat on a clock that was set back; a direction without data has no verdict.
fn add_clock_caveat(verdict: &mut String) {
    if !verdict.is_empty() {
        verdict.push_str(
            " The capture's clock was set back meanwhile, so the order and the rates of that time are wrong.",
        );
    }
}

fn format_verdict(direction: &Direction, prefix: &str, caveat: &str) -> String {
    let shares = limit_shares(&direction.limits);
    match (shares.is_empty(), direction.data.unique_bytes) {
        (true, 0) => String::new(),
        (true, _) if !has_acks(direction) => {
            "The capture has no ACKs for this data, so what limited it does not show.".to_owned()
        }
        (true, _) => "Too few packets to say what limited it.".to_owned(),
        (false, _) => {
            let limited_by = limited_by(direction, &shares);
            let scale_caveat = scale_caveat(direction);
            let missing_caveat = missing_caveat(&direction.data);
            [prefix, &limited_by, scale_caveat, caveat, &missing_caveat].concat()
        }
    }
}

/// Returns whether the capture has any ACK for the data of `direction`.
fn has_acks(direction: &Direction) -> bool {
    direction.acks.pure + direction.acks.advancing > 0
}

/// Returns what a verdict without the window scale cannot take into account.
fn scale_caveat(direction: &Direction) -> &'static str {
    match Windows::of(&direction.acks) {
        Windows::Scaled => "",
        Windows::Unknown if direction.syn_options == SynOptions::default() => {
            " The capture begins in the middle of the connection, so only a window of zero shows, not a full one; nor \
             does a queue that stood all the time."
        }
        Windows::Unknown => {
            " The capture lacks the window scale (a SYN with all of its options), so only a window of zero \
             shows, not a full one."
        }
    }
}

/// Returns "limited all the time by ….", for at least one share.
fn limited_by(direction: &Direction, shares: &[(Limit, f64)]) -> String {
    let (main, share) = shares[0];
    let name = name_of(direction, main);
    let mut text = match share {
        share if share >= ALL_SHARE => format!("limited all the time by {name}"),
        share if share >= 0.5 => {
            format!("limited most of the time ({}) by {name}", percent(share))
        }
        share => format!(
            "limited for the largest share of the time ({}) by {name}",
            percent(share)
        ),
    };
    text += &describe_evidence(direction, main);
    for (limit, share) in shares[1..].iter().filter(|(_, share)| *share >= SHARE_MIN) {
        text += &format!("; {} by {}", percent(*share), name_of(direction, *limit));
    }
    text + "."
}

/// Returns the share of each limiting factor in the classified time, the largest first.
#[must_use]
pub fn limit_shares(limits: &[LimitPeriod]) -> Vec<(Limit, f64)> {
    let span = |period: &LimitPeriod| period.duration_ns() as f64;
    let whole: f64 = limits.iter().map(span).sum();
    let mut shares: Vec<(Limit, f64)> = ALL_LIMITS
        .iter()
        .map(|limit| {
            let of = limits.iter().filter(|period| period.limit == *limit);
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
    Limit::BottleneckBandwidth,
    Limit::AckStream,
];

fn name_of(direction: &Direction, limit: Limit) -> String {
    let name = match limit {
        Limit::Application if Windows::of(&direction.acks) == Windows::Unknown => {
            "the application (nothing to send), the sender (pacing, send buffer) or the receive window"
        }
        Limit::Application => {
            "the application (nothing to send) or the sender (pacing, send buffer)"
        }
        Limit::ReceiveWindow => "the receive window",
        Limit::CongestionWindow => return marks::congestion_window(direction),
        Limit::BottleneckBandwidth => "the bottleneck bandwidth (standing queue)",
        Limit::AckStream => "the ACK stream (ACKs queued on the ACK path)",
    };
    name.to_owned()
}

/// Returns the figure that supports the verdict best.
fn describe_evidence(direction: &Direction, limit: Limit) -> String {
    let phase = longest_active_phase(direction);
    match limit {
        Limit::ReceiveWindow if Windows::of(&direction.acks) == Windows::Unknown => {
            ", which was zero".to_owned()
        }
        Limit::ReceiveWindow => describe_receive_window(direction),
        Limit::CongestionWindow => marks::retransmissions(direction),
        Limit::BottleneckBandwidth => {
            let at = format!(" at {}", rate(acked_bps_while(direction, limit)));
            at + &marks::of_queue(direction)
        }
        Limit::AckStream => phase.map_or_else(String::new, |phase| {
            let (acks, packets) = (phase.acks_per_s, phase.packets_per_ack);
            format!(", {acks:.0} ACKs/s for {packets:.1} packets each")
        }),
        Limit::Application => String::new(),
    }
}

fn describe_receive_window(direction: &Direction) -> String {
    let largest = bytes(direction.acks.window_max_bytes);
    let at_end = direction
        .acks
        .last_zero_window_ns
        .zip(direction.acks.last_advancing_ns);
    let at_end_ns = at_end.map_or(0, |(zero, advancing)| zero.saturating_sub(advancing));
    let zero_ns = match at_end_ns {
        0 => advertised_window::zero_window_ns(&direction.time_series),
        exact => exact,
    };
    let durations = direction
        .limits
        .iter()
        .map(|period| period.duration_ns() as f64);
    if 2.0 * zero_ns as f64 > durations.sum::<f64>() {
        let zero = longhaul_units::Time::from_nanos(zero_ns);
        format!(
            " of at most {largest}, which was zero for {zero}: the receiving application did not read"
        )
    } else if advertised_window::holds_unread_data(&direction.time_series) {
        format!(
            " of at most {largest}, because the receiving application read more slowly than data arrived"
        )
    } else {
        format!(" of at most {largest}")
    }
}

fn longest_active_phase(direction: &Direction) -> Option<&Phase> {
    let active = direction
        .phases
        .iter()
        .filter(|phase| phase.kind != PhaseKind::Idle);
    active.max_by_key(|phase| phase.duration_ns())
}

/// Returns the mean rate of acknowledged data while `limit` limited, bits/s. Data that a sender's capture shows may wait
/// in the sender's queue.
fn acked_bps_while(direction: &Direction, limit: Limit) -> f64 {
    let series = &direction.time_series;
    let periods = direction
        .limits
        .iter()
        .filter(|period| period.limit == limit);
    let (mut bytes, mut ns) = (0.0, 0.0);
    for period in periods {
        let bin = |at_ns: u64| at_ns.saturating_sub(series.from_ns) / series.width_ns.max(1);
        let [from, to] = [period.from_ns, period.to_ns].map(|at_ns| bin(at_ns) as usize);
        let bins = &series.bins[from.min(series.bins.len())..to.min(series.bins.len())];
        bytes += bins.iter().map(|bin| bin.acked_bytes as f64).sum::<f64>();
        ns += period.duration_ns() as f64;
    }
    bytes * 8e9 / f64::max(ns, 1.0)
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
