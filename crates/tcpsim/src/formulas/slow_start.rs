// SPDX-License-Identifier: MIT OR Apache-2.0
//! Duration of a transfer: short ones never leave slow start.

use super::{Control, Formula, Path};
use longhaul_units::Time;

/// Doubling from the initial window.
pub const FORMULA: Formula = Formula {
    name: "slow start",
    equation: "after k round trips IW (2^k - 1) packets, until the window is BDP + queue or the steady one, or, but for BBR, a loss is due (1/p packets)",
    source: "RFC 6928 section 2, RFC 5681 section 3.1; Cardwell, Savage, Anderson, Modeling TCP Latency, INFOCOM 2000, section II",
    range: "the window counts packets (Linux), nothing else uses the line; HyStart may end it earlier, at a queue of RTT/8 within 4 to 16 ms, or at half a round trip of back-to-back ACKs",
};

/// Transfer that a client requests.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Transfer {
    /// Payload in bytes.
    pub bytes: u64,
    /// Initial window in packets.
    pub initial_window: u32,
    /// Whether a connection is already open, which saves the round trip of the handshake.
    pub connected: bool,
}

/// Times of a transfer, counted from the client's first packet.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Completion {
    /// Arrival of the first byte of the response.
    pub first_byte: Time,
    /// Arrival of the last byte.
    pub last_byte: Time,
    /// Round trips spent in slow start.
    pub rounds: u32,
    /// Whether slow start carries the whole transfer.
    pub all_in_slow_start: bool,
}

/// Returns the times of a transfer over `path`, which carries `steady_bps` after slow start by `control`.
///
/// BBR's start-up does not end at a loss (draft-cardwell-iccrg-bbr-congestion-control-00 §4.3.2). For others, slow
/// start ends after the mean number of packets before a first loss, or with the transfer
/// (Cardwell, Savage and Anderson). The rest goes with half of the window that was reached until the next loss
/// is due, and then at the steady rate.
#[must_use]
pub fn completion(
    transfer: Transfer,
    path: &Path,
    steady_bps: f64,
    control: Control,
) -> Completion {
    let loss = if control == Control::Bbr {
        0.0
    } else {
        path.loss
    };
    let path = &Path { loss, ..*path };
    let rtt = path.rtt_s();
    let packets = (transfer.bytes as f64 / f64::from(path.mss)).max(1.0);
    let before_loss = packets_before_first_loss(packets, path.loss);
    // The first packet of the response arrives one round trip after the request leaves.
    let first = rtt + if transfer.connected { 0.0 } else { rtt };
    let start = run_slow_start(
        f64::from(transfer.initial_window),
        packets.min(before_loss),
        path,
        steady_bps,
    );
    let left = packets - start.sent;
    let all_in_slow_start = left <= start.window && before_loss >= packets;
    let rest = if all_in_slow_start {
        left * path.packet_bits() / path.payload_bps()
    } else {
        seconds_after(left, start.window, path, steady_bps)
    };
    Completion {
        first_byte: Time::from_secs_f64(first),
        last_byte: Time::from_secs_f64(first + f64::from(start.rounds) * rtt + rest),
        rounds: start.rounds + 1,
        all_in_slow_start,
    }
}

/// State at the end of slow start.
struct SlowStartEnd {
    /// Packets sent in whole rounds.
    sent: f64,
    /// Next window, packets.
    window: f64,
    rounds: u32,
}

/// Doubles the window in whole rounds until the path or the window is full, or `packets` are sent.
fn run_slow_start(initial: f64, packets: f64, path: &Path, steady_bps: f64) -> SlowStartEnd {
    let full = full_window(path, steady_bps);
    let mut end = SlowStartEnd {
        sent: 0.0,
        window: initial,
        rounds: 0,
    };
    while packets - end.sent > end.window && end.window < full {
        end.sent += end.window;
        end.window = (end.window * 2.0).min(path.window_packets());
        end.rounds += 1;
    }
    end
}

/// Returns the seconds that `left` packets take after slow start.
fn seconds_after(left: f64, window: f64, path: &Path, steady_bps: f64) -> f64 {
    let seconds = |packets: f64, bps: f64| packets * path.packet_bits() / bps.max(1.0);
    if path.loss <= 0.0 {
        return seconds(left, steady_bps);
    }
    let halved = path.goodput_bps(window / 2.0).min(path.payload_bps());
    let to_next_loss = left.min(1.0 / path.loss);
    seconds(to_next_loss, halved.max(steady_bps)) + seconds(left - to_next_loss, steady_bps)
}

/// Returns the mean number of packets sent before the first loss, of at most `packets`.
fn packets_before_first_loss(packets: f64, loss: f64) -> f64 {
    if loss > 0.0 {
        (1.0 - (1.0 - loss).powf(packets)) * (1.0 - loss) / loss + 1.0
    } else {
        packets
    }
}

/// Returns the window at which doubling gains nothing more, because the path or the window is full.
fn full_window(path: &Path, steady_bps: f64) -> f64 {
    let packets = if path.loss > 0.0 {
        path.bdp_packets()
    } else {
        steady_bps * path.rtt_s() / path.packet_bits()
    };
    packets.min(path.window_packets()).max(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul_units::{BitRate, Bytes};

    const PATH: Path = Path {
        rate: BitRate::from_bits(1_000_000_000),
        rtt: Time::from_millis(180),
        loss: 0.0,
        mss: 1448,
        queue: Bytes::new(22_500_000),
        window: Bytes::new(1 << 30),
    };

    /// Milliseconds to the first and the last byte.
    fn ms(bytes: u64, initial_window: u32, connected: bool) -> [f64; 2] {
        let transfer = Transfer {
            bytes,
            initial_window,
            connected,
        };
        let done = completion(transfer, &PATH, PATH.payload_bps(), Control::Cubic);
        [done.first_byte, done.last_byte].map(|time| time.as_secs_f64() * 1e3)
    }

    /// Measured over `longhaul link` and printed in docs/benchmarks.md: a new connection over 180 ms, direct;
    /// then open connections; then also an initial window of 32.
    #[test]
    fn completion_matches_measured_times() {
        let measured = [
            (10_000, 10, false, 362.0),
            (100_000, 10, false, 726.0),
            (1_000_000, 10, false, 1450.0),
            (10_000, 10, true, 184.0),
            (100_000, 10, true, 543.0),
            (1_000_000, 10, true, 1260.0),
            (100_000, 32, true, 363.0),
            (1_000_000, 32, true, 900.0),
        ];
        for (bytes, window, connected, printed) in measured {
            let [_, last] = ms(bytes, window, connected);
            assert!(
                (last / printed - 1.0).abs() < 0.03,
                "{bytes}: {last} beside {printed}"
            );
        }
        assert_eq!(ms(1, 10, false)[0], 360.0);
    }

    #[test]
    fn large_transfer_goes_at_the_steady_rate() {
        let [_, last] = ms(10_000_000_000, 10, false);
        let alone = 80e9 / PATH.payload_bps() * 1e3;
        assert!(
            (alone..alone + 3000.0).contains(&last),
            "{last} beside {alone}"
        );
    }

    #[test]
    fn slow_start_ends_at_the_expected_first_loss() {
        let lossy = Path { loss: 1e-3, ..PATH };
        let done = |path: &Path| {
            let transfer = Transfer {
                bytes: 10_000_000,
                initial_window: 10,
                connected: false,
            };
            completion(transfer, path, 3e6, Control::Cubic)
                .last_byte
                .as_secs_f64()
        };
        // On average 999 packets come before the first loss: 10, 20 … 320 and a part of the seventh round.
        // Of the other 6,276 packets a thousand go with half of 640 a round trip, the rest at 3 Mbit/s.
        let expected = 0.36 + 6.0 * 0.18 + 1000.0 / 320.0 * 0.18 + 5276.0 * 11584.0 / 3e6;
        assert!(
            (done(&lossy) / expected - 1.0).abs() < 0.01,
            "{} {expected}",
            done(&lossy)
        );
        assert!((packets_before_first_loss(1e9, 1e-3) - 1000.0).abs() < 1e-6);
        assert!((packets_before_first_loss(10.0, 1e-9) - 11.0).abs() < 1e-3);
    }

    /// The first loss ended the start-up once, and with it the bound by the steady rate.
    #[test]
    fn losses_do_not_make_bbr_faster() {
        let transfer = Transfer {
            bytes: 100_000_000,
            initial_window: 10,
            connected: false,
        };
        let done = |loss: f64| {
            let path = Path { loss, ..PATH };
            completion(transfer, &path, 900e6, Control::Bbr)
        };
        assert_eq!(done(1e-3), done(0.0));
        assert_eq!(done(1e-2), done(0.0));
    }

    #[test]
    fn one_byte_beyond_the_window_costs_a_round_trip() {
        let [_, within] = ms(14_480, 10, false);
        let [_, beyond] = ms(14_481, 10, false);
        assert!((beyond - within - 180.0).abs() < 1.0, "{within} {beyond}");
    }
}
