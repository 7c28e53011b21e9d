// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of a simulated transfer, tapped at both ends, against the counters of its sender and its path.

use crate::scripted::script::{Results, settings};
use crate::simulated_capture::{PacketFormat, SimulatedCapture};
use longhaul_flow::record::{Data, Direction};
use longhaul_flow::segment::{CapturePoint, Segment};
use longhaul_flow::{Flows, Settings};
use longhaul_netem::{Schedule, Setting};
use longhaul_tcpsim::congestion_control::reno::Reno;
use longhaul_tcpsim::receiver::AckPolicy;
use longhaul_tcpsim::sender::{self, Counters};
use longhaul_tcpsim::simulation::{FlowConfig, Path, Simulation};
use longhaul_units::{Bytes, Time};

const MSS: u32 = 1448;
/// Four times the bandwidth-delay product.
const WINDOW: u64 = 1 << 20;

/// A transfer as seen by both taps, and the simulation's counters.
struct Transfer {
    at_sender: Direction,
    at_receiver: Direction,
    counters: Counters,
    lost: u64,
    acked_packets: u64,
}

/// Simulates ten seconds over 40 ms, with these settings and changes of the forward path.
fn transfer(forward: &[(&str, &str)], changes: &[&str], super_packets: bool) -> Transfer {
    let mut path = Path {
        seed: 3,
        ..Path::default()
    };
    path.reverse.apply(Setting::parse("delay", "20ms").unwrap());
    for (key, value) in [("delay", "20ms"), ("rate", "50mbit")]
        .iter()
        .chain(forward)
    {
        path.forward.apply(Setting::parse(key, value).unwrap());
    }
    let mut schedule = Schedule::default();
    changes
        .iter()
        .for_each(|change| schedule.add_text(change).unwrap());
    path.forward_changes = schedule;
    let flow = FlowConfig {
        start: Time::ZERO,
        extra_rtt: Time::ZERO,
        sender: sender::SenderConfig {
            receive_window: Bytes::new(WINDOW),
            ..sender::SenderConfig::default()
        },
        acks: AckPolicy::default(),
        control: Box::new(Reno),
    };
    let format = PacketFormat {
        mss: MSS,
        window: WINDOW,
        super_packets,
    };
    let mut simulation = Simulation::with_observer(path, vec![flow], SimulatedCapture::new(format));
    simulation.run_until(Time::from_secs(10));
    let drops = simulation.drops();
    let (sent, arrived) = (
        simulation.observer_mut().take_at_sender(),
        simulation.observer_mut().take_at_receiver(),
    );
    Transfer {
        at_sender: upload(&sent),
        at_receiver: upload(&arrived),
        counters: simulation.sender(0).counters(),
        lost: drops.loss + drops.overflow + drops.aqm,
        acked_packets: simulation.sender(0).acked(),
    }
}

fn upload(segments: &[(usize, Segment)]) -> Direction {
    let settings = Settings {
        time_series_bins_max: 4096,
        ..settings()
    };
    let (mut flows, mut results) = (Flows::new(settings), Results::default());
    for (number, (_, segment)) in segments.iter().enumerate() {
        let key = SimulatedCapture::key(0);
        flows.process_segment(number as u64, CapturePoint(0), &key, segment, &mut results);
    }
    flows.finish(&mut results);
    results.check_consistency(2);
    assert_eq!(results.flows.len(), 1);
    results.flows.remove(0).upload
}

fn retransmissions(data: &Data) -> u64 {
    data.fast_retransmissions
        + data.timeout_retransmissions
        + data.spurious_retransmissions
        + data.other_retransmissions
}

/// Asserts what holds for every transfer.
fn assert_consistent(transfer: &Transfer) {
    let (sent, counters) = (&transfer.at_sender.data, transfer.counters);
    assert_eq!(sent.data_segments, counters.sent);
    assert_eq!(retransmissions(sent), counters.retransmitted);
    let first_time = counters.sent - counters.retransmitted;
    assert_eq!(sent.unique_bytes, first_time * u64::from(MSS));
    assert_eq!(
        sent.retransmitted_bytes,
        counters.retransmitted * u64::from(MSS)
    );
    assert_eq!(
        transfer.at_sender.acks.acked_bytes,
        transfer.acked_packets * u64::from(MSS)
    );
    assert_eq!(
        (
            sent.acked_unseen_bytes,
            sent.reordered,
            sent.unseen_retransmissions
        ),
        (0, 0, 0)
    );
    let arrived = &transfer.at_receiver.data;
    assert_eq!((arrived.acked_unseen_bytes, arrived.reordered), (0, 0));
    // Some packets are still in flight, and some lost ones are not retransmitted yet.
    let in_flight = counters.sent - transfer.lost - arrived.data_segments;
    assert!(in_flight < 600, "{in_flight}");
    assert!(arrived.unseen_retransmissions <= transfer.lost);
}

#[test]
fn counts_no_retransmission_without_loss() {
    let transfer = transfer(&[("queue", "10bdp")], &[], false);
    assert_consistent(&transfer);
    assert_eq!((transfer.lost, transfer.counters.retransmitted), (0, 0));
    let rtt = &transfer.at_sender.rtt_by_acks;
    assert!(rtt.min >= 40_000_000 && rtt.min < 42_000_000, "{}", rtt.min);
    let by_timestamps = &transfer.at_sender.rtt_by_timestamps;
    assert!(
        by_timestamps.p50.abs_diff(rtt.p50) < rtt.p50 / 10,
        "{} {}",
        by_timestamps.p50,
        rtt.p50
    );
    // Two segments an ACK, after the first few.
    assert_eq!(transfer.at_receiver.packets_per_ack.p50, 2);
    assert!(transfer.at_receiver.rtt_by_acks.p50 < 2_000_000);
}

#[test]
fn classifies_repairs_of_random_loss_as_fast() {
    let transfer = transfer(&[("queue", "2bdp"), ("loss", "0.1%")], &[], false);
    assert_consistent(&transfer);
    assert!(transfer.counters.retransmitted > 20);
    let arrived = &transfer.at_receiver.data;
    assert!(transfer.lost - arrived.unseen_retransmissions < 100);
    let sent = &transfer.at_sender.data;
    assert_eq!(
        sent.timeout_retransmissions > 0,
        transfer.counters.timeouts > 0
    );
    assert!(
        sent.fast_retransmissions * 10 >= transfer.counters.retransmitted * 9,
        "{sent:?}"
    );
}

#[test]
fn super_packets_equal_single_segments() {
    let single = transfer(&[("queue", "2bdp"), ("loss", "0.1%")], &[], false);
    let joined = transfer(&[("queue", "2bdp"), ("loss", "0.1%")], &[], true);
    assert_consistent(&single);
    let (a, b) = (&single.at_sender, &joined.at_sender);
    assert!(b.data.data_packets < a.data.data_packets);
    assert_eq!(b.data.data_segments, a.data.data_segments);
    assert_eq!(
        (b.data.unique_bytes, b.data.wire_bytes),
        (a.data.unique_bytes, a.data.wire_bytes)
    );
    assert_eq!(b.data.retransmitted_bytes, a.data.retransmitted_bytes);
    assert_eq!((b.acks, &b.ack_diff), (a.acks, &a.ack_diff));
    assert_eq!(b.rtt_by_acks, a.rtt_by_acks);
}

#[test]
fn classifies_blackout_as_time_out() {
    let changes = ["5s: loss 100%", "6500ms: loss 0%"];
    let transfer = transfer(&[("queue", "2bdp")], &changes, false);
    assert_consistent(&transfer);
    assert!(transfer.counters.timeouts > 0);
    let sent = &transfer.at_sender.data;
    assert!(
        sent.timeout_retransmissions >= transfer.counters.timeouts,
        "{sent:?}"
    );
}
