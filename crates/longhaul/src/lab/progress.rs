// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a person sees while the lab works: on a terminal a bar with rate and time left, elsewhere
//! one line a run. It goes to stderr; results go to stdout.

use super::metric::Metric;
use indicatif::{ProgressBar, ProgressStyle};
use std::{
    collections::HashMap,
    io::IsTerminal,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::{task::JoinHandle, time};
use units::{BitRate, Bytes, Time};

/// How often the bar moves.
const TICK: Duration = Duration::from_millis(250);

/// The display of one lab.
#[derive(Debug)]
pub(crate) struct Progress {
    runs: usize,
    done: usize,
    terminal: bool,
    /// Wall-clock time of the runs done, by cell.
    spent: HashMap<usize, Vec<Duration>>,
}

/// A run under way.
#[derive(Debug)]
pub(crate) struct Running {
    cell: usize,
    head: String,
    began: Instant,
    bar: Option<(ProgressBar, JoinHandle<()>)>,
}

impl Progress {
    /// For so many runs.
    pub(crate) fn new(runs: usize) -> Self {
        let terminal = std::io::stderr().is_terminal();
        Self {
            runs,
            done: 0,
            terminal,
            spent: HashMap::new(),
        }
    }

    /// Says what is being done before the first run.
    pub(crate) fn note(&self, text: &str) {
        eprintln!("{text}");
    }

    /// A run of `cell` begins, which is to deliver `goal` bytes (0: unknown); `delivered` counts.
    pub(crate) fn begin(
        &mut self,
        cell: usize,
        name: &str,
        goal: Bytes,
        delivered: &Arc<AtomicU64>,
    ) -> Running {
        self.done += 1;
        let head = format!("[{}/{}] {name}", self.done, self.runs);
        let bar = self.terminal.then(|| {
            let bar = ProgressBar::new(goal.get())
                .with_style(style())
                .with_prefix(head.clone());
            let task = tokio::spawn(follow(bar.clone(), delivered.clone()));
            (bar, task)
        });
        Running {
            cell,
            head,
            began: Instant::now(),
            bar,
        }
    }

    /// The run has ended, with this to say. `ahead` are the cells of the runs to come.
    pub(crate) fn end(&mut self, running: Running, outcome: &str, ahead: &[usize]) {
        if let Some((bar, task)) = running.bar {
            task.abort();
            bar.finish_and_clear();
        }
        self.spent
            .entry(running.cell)
            .or_default()
            .push(running.began.elapsed());
        let left = self.time_left(ahead).filter(|_| !ahead.is_empty());
        let left = left
            .map(|left| format!(" (about {left} left)"))
            .unwrap_or_default();
        eprintln!("{}: {outcome}{left}", running.head);
    }

    /// The mean time of each cell's runs so far, or of all runs for cells not met yet.
    fn time_left(&self, ahead: &[usize]) -> Option<Time> {
        let mean = |all: &mut dyn Iterator<Item = &Duration>| {
            let (count, sum) =
                all.fold((0u32, Duration::ZERO), |(n, sum), one| (n + 1, sum + *one));
            sum.checked_div(count)
        };
        let overall = mean(&mut self.spent.values().flatten())?;
        let of =
            |cell: &usize| mean(&mut self.spent.get(cell).into_iter().flatten()).unwrap_or(overall);
        let left: Duration = ahead.iter().map(of).sum();
        Some(Time::from_secs(left.as_secs().max(1)))
    }
}

/// One line for a run's figures.
pub(crate) fn figures(metrics: &super::result::Metrics) -> String {
    let shown = [
        "download_s",
        "goodput_bps",
        "retransmits",
        "delay_median_us",
    ];
    let parts = shown.iter().filter_map(|name| {
        let metric = Metric::of(name);
        Some(format!(
            "{} {}",
            metric.label,
            metric.print(*metrics.get(*name)?)
        ))
    });
    parts.collect::<Vec<_>>().join(", ")
}

fn style() -> ProgressStyle {
    let template = "{prefix} {bar:24} {msg} {elapsed}";
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

/// Moves the bar until the task is aborted.
async fn follow(bar: ProgressBar, delivered: Arc<AtomicU64>) {
    let mut ticks = time::interval(TICK);
    let mut before = 0;
    loop {
        ticks.tick().await;
        let now = delivered.load(Ordering::Relaxed);
        bar.set_position(now);
        bar.set_message(rate(
            now.saturating_sub(before),
            now,
            bar.length().unwrap_or(0),
        ));
        before = now;
    }
}

/// `2.3 Gbit/s, 4 s to go`.
fn rate(fresh: u64, now: u64, goal: u64) -> String {
    let Some(rate) = BitRate::mean(Bytes::new(fresh), TICK.into()).filter(|_| fresh > 0) else {
        return Bytes::new(now).to_string();
    };
    match goal.checked_sub(now).filter(|_| goal > 0) {
        Some(rest) => format!("{rate}, {} to go", rate.time_for(rest)),
        None => rate.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_left_follows_each_cell() {
        let mut progress = Progress::new(4);
        assert_eq!(progress.time_left(&[0]), None);
        progress
            .spent
            .insert(0, vec![Duration::from_secs(20), Duration::from_secs(30)]);
        progress.spent.insert(1, vec![Duration::from_secs(4)]);
        assert_eq!(progress.time_left(&[0, 1]), Some(Time::from_secs(29)));
        // Cell 2 was never run: the mean of all runs, 18 s.
        assert_eq!(progress.time_left(&[2]), Some(Time::from_secs(18)));
    }

    #[test]
    fn the_rate_is_of_the_last_tick() {
        assert_eq!(
            rate(31_250_000, 500_000_000, 1_000_000_000),
            "1 Gbit/s, 4 s to go"
        );
        assert_eq!(rate(0, 5_000_000, 0), "5 MB");
    }
}
