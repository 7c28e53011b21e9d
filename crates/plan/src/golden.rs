// SPDX-License-Identifier: MIT OR Apache-2.0
//! Golden test of the formulas' errors against simulated TCP.

use super::simulated::{self, Span};
use longhaul_tcpsim::formulas::{Control, Path, prediction};
use longhaul_units::{BitRate, Bytes, Time, bdp};
use std::fmt::Write;

const CONTROLS: [Control; 6] = [
    Control::Reno,
    Control::Cubic,
    Control::Hstcp,
    Control::Scalable,
    Control::Htcp,
    Control::Bic,
];

fn path(rate: BitRate, rtt: Time, loss: f64) -> Path {
    Path {
        rate,
        rtt,
        loss,
        mss: 1448,
        queue: bdp(rate, rtt).max(Bytes::new(150_000)),
        window: Bytes::new(1 << 30),
    }
}

/// Returns Mbit/s by formula and by simulation, and the formula's error.
fn table_cell(control: Control, path: &Path) -> String {
    let formula = prediction::predict(control, path).unwrap();
    // Long enough for hundreds of losses, short enough for a test.
    let packets = 4e5 / (formula.goodput_bps / path.packet_bits());
    let duration = Time::from_secs_f64(packets.clamp(20.0, 2000.0));
    let span = Span {
        omit: Time::from_secs_f64(duration.as_secs_f64() / 3.0),
        duration,
    };
    let simulated = simulated::goodput_bps(control, path, 1, span, 1).unwrap();
    let error = (formula.goodput_bps / simulated - 1.0) * 100.0;
    format!(
        "{:>8.2} {:>8.2} {error:>+5.0} %",
        formula.goodput_bps / 1e6,
        simulated / 1e6
    )
}

#[test]
fn formulas_beside_simulated_tcp() {
    let mut table =
        String::from("rate, rtt, loss: formula and simulated Mbit/s, error of the formula\n");
    let rate = "1gbit";
    for rtt_ms in [10, 180] {
        for loss in [1e-4, 1e-3, 1e-2] {
            let path = path(rate.parse().unwrap(), Time::from_millis(rtt_ms), loss);
            let _ = writeln!(table, "{rate} {rtt_ms} ms {loss}");
            for control in CONTROLS {
                let _ = writeln!(table, "    {control:<9}{}", table_cell(control, &path));
            }
        }
    }
    insta::assert_snapshot!(table);
}
