// SPDX-License-Identifier: MIT OR Apache-2.0
//! Comparison of HighSpeed TCP with RFC 3649: formulas, table of appendix B, and growth.

use longhaul_congestion::math::{Connection, algorithm};
use longhaul_tcpsim::congestion_control::{Ack, CongestionControl, Window};
use longhaul_units::Time;
use std::fmt::Write;

/// A row of the table: a(w) in whole packets and b(w) from this window on.
struct Row {
    cwnd: u32,
    a: usize,
    b: f64,
}

/// RFC 3649, section 5: W = 38, W1 = 83000, High_Decrease = 0.1.
fn b(w: f64) -> f64 {
    (0.1 - 0.5) * (w / 38.0).ln() / (83000_f64 / 38.0).ln() + 0.5
}

/// RFC 3649, section 5, with the rounding of appendix B: p(w) = 1 / (12.8 w^1.2).
fn a(w: f64) -> f64 {
    w.powi(2) * 2.0 * b(w) / ((2.0 - b(w)) * w.powf(1.2) * 12.8)
}

/// Appendix B: a row where a(w) has grown by more than one since the last.
fn table() -> Vec<Row> {
    let mut rows = vec![Row {
        cwnd: 38,
        a: 1,
        b: b(38.0),
    }];
    let mut last = 1.0;
    for cwnd in 38..100_000_u32 {
        let w = f64::from(cwnd);
        if a(w) > last + 1.0 {
            last = a(w);
            rows.push(Row {
                cwnd,
                a: rows.len() + 1,
                b: b(w),
            });
        }
    }
    rows
}

/// ⌊256 b⌋
fn fraction(b: f64) -> u32 {
    (256.0 * b) as u32
}

fn header() -> String {
    let mut text = String::from(
        include_str!("../../src/bpf/hstcp_table.h")
            .split("#define HSTCP_TABLE")
            .next()
            .unwrap(),
    );
    text.push_str("#define HSTCP_TABLE(R)");
    for row in table().chunks(6) {
        let cells: Vec<_> = row
            .iter()
            .map(|row| format!("R({}, {})", row.cwnd, fraction(row.b)))
            .collect();
        write!(text, " \\\n\t{}", cells.join(" ")).unwrap();
    }
    text + "\n\n#endif\n"
}

fn in_avoidance(cwnd: u32) -> Window {
    Window {
        cwnd,
        ssthresh: 2,
        ..Window::new(10)
    }
}

fn backoff(connection: &mut Connection, cwnd: u32) -> u32 {
    cwnd - connection.ssthresh(&in_avoidance(cwnd), Time::ZERO)
}

fn ack(connection: &mut Connection, window: &mut Window, acked: u32) {
    let ack = Ack {
        now: Time::ZERO,
        acked,
        in_flight: window.cwnd,
        cwnd_limited: true,
    };
    connection.cong_avoid(window, &ack);
}

/// Returns the growth while the window is ACKed once, `per_ack` packets at a time.
fn growth(connection: &mut Connection, cwnd: u32, per_ack: u32) -> u32 {
    let mut window = in_avoidance(cwnd);
    for _ in 0..cwnd / per_ack {
        ack(connection, &mut window, per_ack);
    }
    window.cwnd - cwnd
}

#[test]
fn table_matches_the_formulas() {
    let (path, wanted) = (
        concat!(env!("CARGO_MANIFEST_DIR"), "/src/bpf/hstcp_table.h"),
        header(),
    );
    if std::env::var_os("UPDATE_TABLE").is_some() {
        std::fs::write(path, &wanted).unwrap();
    }
    assert_eq!(std::fs::read_to_string(path).unwrap(), wanted);
}

#[test]
fn table_matches_the_rfc() {
    let rows = table();
    let printed = [
        (38, 1, 0.50),
        (118, 2, 0.44),
        (221, 3, 0.41),
        (347, 4, 0.38),
        (495, 5, 0.37),
        (663, 6, 0.35),
    ];
    for (row, (cwnd, a, b)) in rows.iter().zip(printed) {
        assert_eq!((row.cwnd, row.a), (cwnd, a));
        assert!((row.b - b).abs() <= 0.005, "b({cwnd}) = {}", row.b);
    }
    let last: Vec<_> = rows[69..].iter().map(|row| (row.cwnd, row.a)).collect();
    assert_eq!(last, [(79517, 70), (84035, 71), (89053, 72), (94717, 73)]);
}

/// RFC 3649, table 2: p(w) = 0.078/w^1.2 follows from a(w) and b(w).
#[test]
fn a_and_b_lead_to_the_response_function() {
    for w in [38.0, 263.0, 1795.0, 12279.0, 83981.0_f64] {
        let lossrate = a(w) * (2.0 - b(w)) / (2.0 * b(w) * w.powi(2));
        let response = 0.078 / w.powf(1.2);
        assert!(
            (lossrate / response - 1.0).abs() < 0.01,
            "w = {w}: {lossrate} {response}"
        );
    }
}

#[test]
fn a_loss_reduces_the_window_by_b() {
    let (mut connection, rows) = (algorithm("hstcp").unwrap().connection(&[]), table());
    for cwnd in 38..100_000 {
        let row = rows.iter().rfind(|row| row.cwnd <= cwnd).unwrap();
        assert_eq!(
            backoff(&mut connection, cwnd),
            cwnd * fraction(row.b) / 256,
            "w = {cwnd}"
        );
    }
}

#[test]
fn linux_table_uses_the_row_above() {
    let (mut connection, rows) = (algorithm("hstcp").unwrap().connection(&[1, 0]), table());
    for cwnd in (39..=89_053).step_by(7) {
        let row = rows.iter().find(|row| cwnd <= row.cwnd).unwrap();
        ack(&mut connection, &mut in_avoidance(cwnd), 1);
        assert_eq!(
            backoff(&mut connection, cwnd),
            cwnd * fraction(row.b) / 256,
            "w = {cwnd}"
        );
    }
}

#[test]
fn a_round_trip_adds_a() {
    let mut connection = algorithm("hstcp").unwrap().connection(&[]);
    for row in table() {
        let grown = growth(&mut connection, row.cwnd, 1);
        let a = u32::try_from(row.a).unwrap();
        // The window is larger towards the end of the round trip, so that the last packet may wait.
        assert!((a - 1..=a).contains(&grown), "w = {}: {grown}", row.cwnd);
    }
}

#[test]
fn growth_is_independent_of_packets_per_ack() {
    let mut connection = algorithm("hstcp").unwrap().connection(&[]);
    // a(44000) = 57, less what the larger window at the end asks for.
    let grown: Vec<_> = [1, 2, 44]
        .map(|per_ack| growth(&mut connection, 44_000, per_ack))
        .into();
    assert_eq!(grown, [56, 56, 56]);
}

#[test]
fn counting_acks_halves_growth_where_every_second_packet_is_acked() {
    let mut connection = algorithm("hstcp").unwrap().connection(&[0, 1]);
    assert_eq!(growth(&mut connection, 44_000, 1), 56);
    assert_eq!(growth(&mut connection, 44_000, 2), 28);
}

#[test]
fn windows_beyond_the_table_use_its_last_row() {
    let mut connection = algorithm("hstcp").unwrap().connection(&[]);
    for cwnd in [94_717, 600_000, 1 << 25, 1 << 31] {
        let b = u32::try_from(u64::from(cwnd) * 23 / 256).unwrap();
        assert_eq!(backoff(&mut connection, cwnd), b, "w = {cwnd}");
    }
}

#[test]
fn a_loss_in_slow_start_halves() {
    let mut connection = algorithm("hstcp").unwrap().connection(&[]);
    let window = Window {
        cwnd: 40_000,
        ..Window::new(10)
    };
    assert_eq!(connection.ssthresh(&window, Time::ZERO), 20_000);
}
