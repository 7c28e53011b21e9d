// SPDX-License-Identifier: MIT OR Apache-2.0
//! Recovery after the path is switched during a transfer, as in the JGN II comparison: seconds until nine tenths of
//! the new rate arrive.

use crate::testbed::{Bed, bbr, native};
use longhaul_udt::ControlFactory;
use longhaul_units::Time;
use std::fmt::Write as _;

/// Measurement interval.
const INTERVAL: Time = Time::from_millis(100);

/// Returns the seconds after each switch until nine tenths of the new rate (of `rates`, in Mbit/s) arrive for a
/// second; `None` if they do not before the next switch.
fn recoveries(
    control: ControlFactory<'_>,
    changes: [&str; 2],
    rates: [f64; 2],
) -> [Option<f64>; 2] {
    let path = [("rate", "1gbit"), ("delay", "19ms")];
    let changes = ["5s", "15s"].iter().zip(changes);
    let changes: Vec<_> = changes
        .map(|(at, change)| format!("{at}: {change}"))
        .collect();
    let changes: Vec<_> = changes.iter().map(String::as_str).collect();
    let mut bed = Bed::with_control(control, &path, &changes);
    let mut read = vec![0];
    while bed.now < Time::from_secs(25) {
        let until = bed.now + INTERVAL;
        read.push(bed.stream(until, |_, to| to.len(), |_, _| {}).1);
    }
    let periods = [(50, 140, rates[0]), (150, 240, rates[1])];
    periods.map(|(from, to, mbit)| {
        let enough = 0.9 * mbit * 1e6 / 8.0 * 1456.0 / 1500.0;
        let recovered = |at: &usize| read[*at + 1..=*at + 10].iter().sum::<u64>() as f64 >= enough;
        (from..to)
            .find(recovered)
            .map(|at| (at - from) as f64 / 10.0)
    })
}

fn format_seconds(seconds: Option<f64>) -> String {
    seconds.map_or_else(|| "never".to_owned(), |seconds| format!("{seconds:.1}"))
}

#[test]
fn recovery_time_after_a_path_switch() {
    let mut table = String::from("control  switch                  first  back\n");
    let controls: [(_, ControlFactory<'_>); 2] = [("native", &native), ("bbr", &bbr)];
    for (name, control) in controls {
        for (switch, changes, rates) in [
            (
                "1 Gbit/s, 250 Mbit/s",
                ["rate 250mbit", "rate 1gbit"],
                [250.0, 1000.0],
            ),
            ("38 ms, 80 ms", ["delay 40ms", "delay 19ms"], [1000.0; 2]),
        ] {
            let [first, back] = recoveries(control, changes, rates).map(format_seconds);
            writeln!(table, "{name:7}  {switch:22}  {first:>5}  {back:>4}").unwrap();
        }
    }
    insta::assert_snapshot!(table);
}
