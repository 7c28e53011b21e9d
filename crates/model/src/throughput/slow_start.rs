// SPDX-License-Identifier: MIT OR Apache-2.0
//! How long a transfer takes: short ones never leave slow start.

use super::{Formula, Path};
use units::Time;

/// Doubling from the initial window.
pub const FORMULA: Formula = Formula {
    name: "slow start",
    equation: "after k round trips IW (2^k - 1) packets, until the window is BDP + queue or the steady one, or a loss is due (1/p packets)",
    source: "RFC 6928 section 2, RFC 5681 section 3.1; Cardwell, Savage, Anderson, Modeling TCP Latency, INFOCOM 2000, section II",
    range: "the window counts packets (Linux), nothing else uses the line; HyStart may end it earlier, at a queue of RTT/8 within 4 to 16 ms, or at half a round trip of back-to-back ACKs",
};

/// A transfer that a client asks for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Transfer {
    /// Payload in bytes.
    pub bytes: u64,
    /// Packets of the first round trip.
    pub initial_window: u32,
    /// Whether a connection stands ready: the handshake's round trip is saved.
    pub connected: bool,
}

/// When it is done, counted from the client's first packet.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Completion {
    /// The first byte of the answer.
    pub first_byte: Time,
    /// The last.
    pub last_byte: Time,
    /// Round trips spent in slow start.
    pub rounds: u32,
    /// Whether all of it went in slow start.
    pub all_in_slow_start: bool,
}

/// The answer to a request over `path`, which carries `steady_bps` when slow start is over.
#[must_use]
pub fn completion(transfer: Transfer, path: &Path, steady_bps: f64) -> Completion {
    let rtt = path.rtt_s();
    let setup = if transfer.connected { 0.0 } else { rtt };
    let mut left = (transfer.bytes as f64 / f64::from(path.mss)).max(1.0);
    let mut window = f64::from(transfer.initial_window);
    let mut sent = 0.0;
    let mut rounds = 1;
    // The answer's first packet comes one round trip after the request leaves.
    let first = setup + rtt;
    let mut at = first;
    let ends = ceiling(path, steady_bps);
    while left > window && window < ends && !loss_is_due(sent, path.loss) {
        left -= window;
        sent += window;
        window = (window * 2.0).min(path.window_packets());
        at += rtt;
        rounds += 1;
    }
    let all_in_slow_start = left <= window;
    let bps = match all_in_slow_start {
        true => path.payload_bps(),
        false => steady_bps,
    };
    at += left * path.packet_bits() / bps.max(1.0);
    Completion {
        first_byte: Time::from_secs_f64(first),
        last_byte: Time::from_secs_f64(at),
        rounds,
        all_in_slow_start,
    }
}

/// The window at which doubling brings nothing more: the path is full, or the window is.
fn ceiling(path: &Path, steady_bps: f64) -> f64 {
    let lossless = match path.loss > 0.0 {
        true => path.bdp_packets(),
        false => steady_bps * path.rtt_s() / path.packet_bits(),
    };
    lossless.min(path.window_packets()).max(1.0)
}

fn loss_is_due(sent: f64, loss: f64) -> bool {
    sent * loss >= 1.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use units::{BitRate, Bytes};

    const PATH: Path = Path {
        rate: BitRate::from_bits(1_000_000_000),
        rtt: Time::from_millis(180),
        loss: 0.0,
        mss: 1448,
        queue: Bytes::new(22_500_000),
        window: Bytes::new(1 << 30),
    };

    fn ms(bytes: u64, initial_window: u32, connected: bool) -> [f64; 2] {
        let transfer = Transfer {
            bytes,
            initial_window,
            connected,
        };
        let done = completion(transfer, &PATH, PATH.payload_bps());
        [done.first_byte, done.last_byte].map(|time| time.as_secs_f64() * 1e3)
    }

    /// Measured over `longhaul link` and printed in the README: a fresh connection over 180 ms, direct;
    /// then with ready connections; then with an initial window of 32 as well.
    #[test]
    fn objects_take_the_round_trips_that_were_measured() {
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
    fn a_large_transfer_goes_at_the_steady_rate() {
        let [_, last] = ms(10_000_000_000, 10, false);
        let alone = 80e9 / PATH.payload_bps() * 1e3;
        assert!(
            (alone..alone + 3000.0).contains(&last),
            "{last} beside {alone}"
        );
    }

    #[test]
    fn one_byte_more_than_a_window_costs_a_round_trip() {
        let [_, within] = ms(14_480, 10, false);
        let [_, beyond] = ms(14_481, 10, false);
        assert!((beyond - within - 180.0).abs() < 1.0, "{within} {beyond}");
    }
}
