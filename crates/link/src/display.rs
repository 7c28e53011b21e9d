// SPDX-License-Identifier: MIT OR Apache-2.0
//! Output of a running link: JSON lines for programs, a few lines on a terminal.

use super::{
    config::{Config, DirectionConfig, Link},
    counters::{Snapshot, TimingReport},
};
use anyhow::Result;
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use longhaul_command::errln;
use longhaul_command::exit::Refusal;
use longhaul_units::{BitRate, Bytes};
use serde::Serialize;
use std::{
    collections::HashMap,
    fs::File,
    io::{IsTerminal, Write, stderr, stdout},
    path::Path,
};

/// Destinations of records and lines.
pub(super) struct Display {
    records: Option<Box<dyn Write>>,
    terminal: Option<Terminal>,
}

/// Terminal with one updated line for each direction.
struct Terminal {
    lines: MultiProgress,
    by_direction: HashMap<String, (ProgressBar, Snapshot)>,
}

impl Display {
    pub(super) fn open(config: &Config) -> Result<Self> {
        let records = config.counters.as_deref().map(open).transpose()?;
        let terminal = stderr().is_terminal().then(Terminal::new);
        for link in &config.links {
            errln!("{}", describe(link));
        }
        Ok(Self { records, terminal })
    }

    pub(super) fn show(&mut self, snapshot: &Snapshot) -> Result<()> {
        if let Some(terminal) = &mut self.terminal {
            terminal.show(snapshot);
        }
        self.record(snapshot)
    }

    /// Shows the last report of a direction: losses, and the accuracy of the emulator.
    pub(super) fn show_report(&mut self, report: &TimingReport) -> Result<()> {
        if let Some(terminal) = &mut self.terminal {
            terminal.clear();
        }
        errln!("{report}");
        self.record(report)
    }

    fn record(&mut self, record: &impl Serialize) -> Result<()> {
        if let Some(records) = &mut self.records {
            writeln!(records, "{}", serde_json::to_string(record)?)?;
        }
        Ok(())
    }
}

fn open(path: &Path) -> Result<Box<dyn Write>> {
    if path == Path::new("-") {
        return Ok(Box::new(stdout()));
    }
    let file = File::create(path).map_err(|error| {
        Refusal::usage(format!(
            "cannot write counters to {}: {error}",
            path.display()
        ))
    })?;
    Ok(Box::new(file))
}

fn describe(link: &Link) -> String {
    let describe_direction = |direction: &DirectionConfig| {
        let config = &direction.settings.initial;
        let rate = config
            .rate
            .mean()
            .map_or("no rate limit".to_owned(), |rate| rate.to_string());
        let limit = config.queue_capacity();
        let queue = match (config.rate.mean(), limit.bytes) {
            (None, _) => "no queue".to_owned(),
            (_, u64::MAX) => format!("queue {} packets", limit.packets),
            (_, bytes) => format!("queue {}", Bytes::new(bytes)),
        };
        format!("{} {rate} {queue} loss {}", config.delay, config.loss)
    };
    format!(
        "link {}: {} → {}: {}; backward: {}; mtu {}, delivery {}, seed {}",
        link.name,
        link.left.interface,
        link.right.interface,
        describe_direction(&link.forward),
        describe_direction(&link.backward),
        link.mtu,
        link.delivery,
        link.seed
    )
}

impl Terminal {
    fn new() -> Self {
        Self {
            lines: MultiProgress::new(),
            by_direction: HashMap::new(),
        }
    }

    fn show(&mut self, snapshot: &Snapshot) {
        let key = format!("{} {}", snapshot.link, snapshot.direction.name());
        let lines = &self.lines;
        let (line, previous) = self.by_direction.entry(key.clone()).or_insert_with(|| {
            let style = ProgressStyle::with_template("{msg}")
                .unwrap_or_else(|_| ProgressStyle::default_bar());
            (
                lines.add(ProgressBar::new_spinner().with_style(style)),
                snapshot.clone(),
            )
        });
        line.set_message(format!("{key:>20}  {}", status_text(previous, snapshot)));
        *previous = snapshot.clone();
    }

    fn clear(&mut self) {
        self.by_direction.clear();
        // A closed terminal needs no clearing.
        drop(self.lines.clear());
    }
}

fn status_text(previous: &Snapshot, now: &Snapshot) -> String {
    let bytes = now.delivered_bytes - previous.delivered_bytes;
    let seconds = now.seconds - previous.seconds;
    let rate = (seconds > 0.0).then(|| BitRate::measured((bytes as f64 * 8.0 / seconds) as u64));
    let drops = now.drops;
    format!(
        "{:>12}  queue {:>9} {:>9.1} ms  drops {} loss, {} overflow, {} AQM, {} ACK filtering  late p99 {:.0} µs",
        rate.unwrap_or_else(|| "idle".to_owned()),
        Bytes::new(now.queue_bytes).to_string(),
        now.queue_delay_us / 1_000.0,
        drops.loss,
        drops.overflow,
        drops.aqm,
        drops.ack_filtering,
        now.lateness.p99_us
    )
}
