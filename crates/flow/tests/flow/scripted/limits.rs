// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the limiting factors in scripted captures; `ground_truth` has the simulated ones.

use crate::scripted::script::{MS, ScriptSegment, US, client, handshake, run_one, server};
use longhaul_flow::record::{Direction, Limit};

/// Scripted sender: bursts at given times, each acknowledged after 10 ms.
struct Sender {
    next: u32,
    segments: Vec<ScriptSegment>,
}

impl Sender {
    fn burst(&mut self, at_ms: u64, count: u32) {
        for i in 0..u64::from(count) {
            let at_ns = at_ms * MS + i * US;
            self.segments.push(client(at_ns, self.next, 1).data(1_000));
            self.next += 1_000;
        }
        self.segments.push(server((at_ms + 10) * MS, 1, self.next));
    }
}

fn share(upload: &Direction, by: Limit) -> f64 {
    let span = |by: &[Limit]| -> u64 {
        let of = upload
            .limits
            .iter()
            .filter(|period| by.contains(&period.limit));
        of.map(|period| period.to_ns - period.from_ns).sum()
    };
    use Limit::{AckStream, Application, BottleneckBandwidth, CongestionWindow, ReceiveWindow};
    let all = [
        Application,
        ReceiveWindow,
        CongestionWindow,
        BottleneckBandwidth,
        AckStream,
    ];
    span(&[by]) as f64 / span(&all) as f64
}

#[test]
fn reopened_window_does_not_limit_later() {
    let mut sender = Sender {
        next: 1,
        segments: handshake(10 * MS),
    };
    (0..5).for_each(|n| sender.burst(20 + 100 * n, 20));
    let (at_ns, next) = (430 * MS + US, sender.next);
    sender.segments.extend([0, 1_000].map(|window| {
        let at_ns = at_ns + u64::from(window) * 100;
        server(at_ns, 1, next).window(window)
    }));
    (0..5).for_each(|n| sender.burst(20_000 + 100 * n, 20));
    let upload = run_one(&sender.segments).upload;
    assert_eq!(upload.acks.zero_windows, 1);
    let closed = share(&upload, Limit::ReceiveWindow);
    assert!(closed < 0.05, "{closed}: {:?}", upload.limits);
    assert!(
        share(&upload, Limit::Application) > 0.9,
        "{:?}",
        upload.limits
    );
}

/// The first ACK of a partial capture acknowledges an unknown amount, but it shows that nothing is in flight.
/// After the loss, less is in flight than before.
#[test]
fn detects_idleness_in_partial_capture() {
    let mut sender = Sender {
        next: 50_000,
        segments: Vec::new(),
    };
    (0..20).for_each(|n| sender.burst(100 * n, 20));
    sender.burst(2_000, 20);
    let (ack, lost) = (sender.segments.pop().unwrap(), sender.next - 1_000);
    let duplicates = (0..4).map(|n| server(2_010 * MS + n * US, 1, lost));
    sender.segments.extend(duplicates);
    sender
        .segments
        .push(client(2_011 * MS, lost, 1).data(1_000));
    sender.segments.push(server(2_021 * MS, 1, ack.segment.ack));
    (21..30).for_each(|n| sender.burst(100 * n, 10));
    (0..10).for_each(|n| sender.burst(13_000 + 100 * n, 10));
    let upload = run_one(&sender.segments).upload;
    assert_eq!(upload.data.fast_retransmissions, 1);
    let idle = share(&upload, Limit::Application);
    assert!(idle > 0.65, "{idle}: {:?}", upload.limits);
}

/// The receiver never reads. Its window is zero from 0.25 s on, and the sender asks for it until the end at 9.1 s.
#[test]
fn zero_window_limits_to_the_end_of_the_connection() {
    let mut sender = Sender {
        next: 1,
        segments: handshake(10 * MS),
    };
    (0..5).for_each(|n| sender.burst(20 + 50 * n, 20));
    let next = sender.next;
    for at_ms in [231, 650, 1_200, 2_400, 4_700, 9_100] {
        let probe = client(at_ms * MS, next - 1, 1);
        let reply = server((at_ms + 10) * MS, 1, next).window(0);
        sender.segments.extend([probe, reply]);
    }
    let upload = run_one(&sender.segments).upload;
    assert_eq!(upload.transfer_ns(), Some(9_110 * MS - 20 * MS));
    assert!(
        share(&upload, Limit::ReceiveWindow) > 0.95,
        "{:?}",
        upload.limits
    );
    assert!(
        upload.verdict.contains("which was zero for 8.88 s"),
        "{}",
        upload.verdict
    );
    assert!(
        upload.verdict.contains("application did not read"),
        "{}",
        upload.verdict
    );
}

/// At the sender, data waits in its own queue: 100 packets are sent in 1 ms and acknowledged in 100 ms.
#[test]
fn rate_counts_what_was_acknowledged() {
    let mut segments = handshake(10 * MS);
    for n in 0..100 {
        segments.push(client(20 * MS + u64::from(n) * 10 * US, 1 + n * 1_000, 1).data(1_000));
    }
    for n in 1..=100 {
        segments.push(server((30 + u64::from(n)) * MS, 1, 1 + n * 1_000));
    }
    let upload = run_one(&segments).upload;
    assert_eq!(upload.transfer_ns(), Some(110 * MS));
    let bps = upload.goodput_bps().unwrap();
    assert!((bps / (100_000.0 * 8.0 / 0.11) - 1.0).abs() < 1e-9, "{bps}");
}

/// A capture of one direction alone has no limits, and says why.
#[test]
fn data_without_acks_has_no_limits() {
    let mut sender = Sender {
        next: 1,
        segments: handshake(10 * MS),
    };
    (0..20).for_each(|n| sender.burst(20 + 100 * n, 20));
    let is_data =
        |sent: &ScriptSegment| sent.segment.from_low == sender.segments[0].segment.from_low;
    let data: Vec<_> = sender
        .segments
        .iter()
        .filter(|sent| is_data(sent))
        .copied()
        .collect();
    let upload = run_one(&data).upload;
    assert_eq!(upload.limits, []);
    assert!(upload.verdict.contains("no ACKs"), "{}", upload.verdict);
    assert!(!run_one(&sender.segments).upload.limits.is_empty());
}
