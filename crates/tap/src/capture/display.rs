// SPDX-License-Identifier: MIT OR Apache-2.0
//! Progress and summary of a capture.

use super::counters::CounterSnapshot;
use indicatif::{ProgressBar, ProgressStyle};
use longhaul_command::errln;
use longhaul_linux::packet_ring::Clock;
use longhaul_units::{Bytes, Time};
use serde::Serialize;
use std::{
    fmt,
    io::{IsTerminal, stderr},
};

/// Interval of progress lines without a terminal, seconds.
const LINE_INTERVAL_S: u64 = 10;

/// Progress of a capture: one updated line on a terminal, lines in turn elsewhere.
pub(super) struct Display {
    line: Option<ProgressBar>,
    seconds: u64,
    dropped: u64,
}

/// Counters of a capture so far.
#[derive(Debug, Serialize)]
pub(super) struct Summary {
    pub(super) seconds: f64,
    pub(super) files: Vec<String>,
    pub(super) bytes: u64,
    pub(super) interfaces: Vec<Interface>,
}

/// Counters of one interface.
#[derive(Debug, Serialize)]
pub(super) struct Interface {
    pub(super) name: String,
    /// Source of the timestamps, `hardware` or `software`.
    pub(super) timestamps: &'static str,
    #[serde(flatten)]
    pub(super) counters: CounterSnapshot,
}

/// Returns the name of a clock.
pub(super) const fn clock_name(clock: Clock) -> &'static str {
    match clock {
        Clock::Software => "software",
        Clock::Hardware => "hardware",
    }
}

impl Display {
    pub(super) fn new() -> Self {
        let line = || {
            let plain = ProgressStyle::with_template("{msg}");
            let style = plain.unwrap_or_else(|_| ProgressStyle::default_bar());
            ProgressBar::new_spinner().with_style(style)
        };
        Self {
            line: stderr().is_terminal().then(line),
            seconds: 0,
            dropped: 0,
        }
    }

    /// Shows the progress; called each second. Without a terminal, new drops are printed at once.
    pub(super) fn show(&mut self, summary: &Summary) {
        self.seconds += 1;
        let dropped = summary.total().dropped;
        let due = dropped > self.dropped || self.seconds.is_multiple_of(LINE_INTERVAL_S);
        self.dropped = dropped;
        match &self.line {
            Some(line) => line.set_message(summary.progress()),
            None if due => errln!("{}", summary.progress()),
            None => {}
        }
    }

    pub(super) fn clear(&self) {
        if let Some(line) = &self.line {
            line.finish_and_clear();
        }
    }
}

impl Summary {
    fn total(&self) -> CounterSnapshot {
        let add = |sum: CounterSnapshot, one: &Interface| CounterSnapshot {
            packets: sum.packets + one.counters.packets,
            wire_segments: sum.wire_segments + one.counters.wire_segments,
            received: sum.received + one.counters.received,
            dropped: sum.dropped + one.counters.dropped,
            ring_full: sum.ring_full + one.counters.ring_full,
        };
        self.interfaces.iter().fold(CounterSnapshot::default(), add)
    }

    fn progress(&self) -> String {
        format!(
            "{:>6.0} s  {}  {} written",
            self.seconds,
            describe(&self.total()),
            Bytes::new(self.bytes)
        )
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for interface in &self.interfaces {
            let Interface {
                name,
                timestamps,
                counters: counted,
            } = interface;
            writeln!(f, "{name}: {}, {timestamps} timestamps", describe(counted))?;
        }
        if self.total().dropped > 0 {
            writeln!(
                f,
                "packets were dropped: a larger --ring, a narrower --filter or a faster disk helps"
            )?;
        }
        let span = Time::from_secs_f64(self.seconds);
        let files = match self.files.as_slice() {
            [one] => one.clone(),
            all => format!("{} to {} ({} files)", first(all), last(all), all.len()),
        };
        write!(f, "{files}: {} in {span}", Bytes::new(self.bytes))
    }
}

fn first(names: &[String]) -> &str {
    names.first().map_or("nothing", String::as_str)
}

fn last(names: &[String]) -> &str {
    names.last().map_or("nothing", String::as_str)
}

fn describe(counted: &CounterSnapshot) -> String {
    let CounterSnapshot {
        packets,
        wire_segments,
        received,
        dropped,
        ..
    } = counted;
    let dropped = match dropped {
        0 => "0 dropped by the kernel".to_owned(),
        some => {
            let share = *some as f64 / *received as f64 * 100.0;
            format!("{some} ({share:.3} %) dropped by the kernel")
        }
    };
    format!("{packets} packets ({wire_segments} on the wire), {dropped}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summary_shows_drops_with_share_and_remedy() {
        let mut summary = Summary {
            seconds: 12.0,
            files: vec!["trace.pcapng".to_owned()],
            bytes: 1_500_000,
            interfaces: vec![Interface {
                name: "eth0".to_owned(),
                timestamps: clock_name(Clock::Software),
                counters: CounterSnapshot {
                    packets: 750,
                    wire_segments: 9_000,
                    received: 1_000,
                    dropped: 250,
                    ring_full: 3,
                },
            }],
        };
        insta::assert_snapshot!(summary, @r"
        eth0: 750 packets (9000 on the wire), 250 (25.000 %) dropped by the kernel, software timestamps
        packets were dropped: a larger --ring, a narrower --filter or a faster disk helps
        trace.pcapng: 1.5 MB in 12 s
        ");
        summary.interfaces[0].counters.dropped = 0;
        let text = summary.to_string();
        assert!(
            text.contains("0 dropped") && !text.contains("helps"),
            "{text}"
        );
    }
}
