// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a person sees while the lab works: on a terminal the table as it fills and a bar with rate and time left,
//! elsewhere one line a run. It goes to stderr; results go to stdout.

use super::{board::Board, book::Book, metric::Metric, result::Run};
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use ratatui::crossterm::terminal::size;
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
    /// On a terminal: the table as it fills, and below it the bar.
    screen: Option<Screen>,
    /// Wall-clock time of the runs done, by cell.
    spent: HashMap<usize, Vec<Duration>>,
}

/// What is redrawn in place.
#[derive(Debug)]
struct Screen {
    all: MultiProgress,
    table: ProgressBar,
    board: Board,
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
    /// For so many runs of the cells of `book`.
    pub(crate) fn new(book: &Book, runs: usize) -> Self {
        let screen = std::io::stderr().is_terminal().then(|| Screen::of(book));
        Self {
            runs,
            done: 0,
            screen,
            spent: HashMap::new(),
        }
    }

    /// Says what is being done before the first run.
    pub(crate) fn note(&self, text: &str) {
        match &self.screen {
            Some(screen) => screen.all.suspend(|| eprintln!("{text}")),
            None => eprintln!("{text}"),
        }
    }

    /// A run of an earlier session; `counted` unless it was one to warm up.
    pub(crate) fn was_done(&mut self, cell: usize, counted: Option<&Run>) {
        self.done += 1;
        if let (Some(screen), Some(run)) = (&mut self.screen, counted) {
            screen.add(cell, run);
        }
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
        let bar = self.screen.as_ref().map(|screen| {
            let bar = ProgressBar::new(goal.get()).with_style(style());
            let bar = screen.all.add(bar.with_prefix(head.clone()));
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

    /// The run has ended; it is `counted` unless it was one to warm up. `ahead` are the cells of the runs to come.
    pub(crate) fn end(&mut self, running: Running, run: &Run, counted: bool, ahead: &[usize]) {
        if let Some((bar, task)) = running.bar {
            task.abort();
            bar.finish_and_clear();
        }
        self.spent
            .entry(running.cell)
            .or_default()
            .push(running.began.elapsed());
        let left = self.time_left(ahead).filter(|_| !ahead.is_empty());
        let left = left.map(|left| format!("about {left} left"));
        let failed = run
            .failed
            .as_ref()
            .map(|why| format!("{}: FAILED: {why}", running.head));
        let Some(screen) = &mut self.screen else {
            let left = left.map(|left| format!(" ({left})")).unwrap_or_default();
            let said =
                failed.unwrap_or_else(|| format!("{}: {}", running.head, figures(&run.metrics)));
            eprintln!("{said}{left}");
            return;
        };
        if let Some(failed) = failed {
            screen.all.suspend(|| eprintln!("{failed}"));
        }
        if counted {
            screen.add(running.cell, run);
        }
        screen.draw(running.cell, left.as_deref());
    }

    /// All runs are done: the table of the result takes the place of this one.
    pub(crate) fn close(&self) {
        if let Some(screen) = &self.screen {
            screen.table.finish_and_clear();
        }
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

impl Screen {
    fn of(book: &Book) -> Self {
        let all = MultiProgress::new();
        let style = ProgressStyle::with_template("{msg}");
        let style = style.unwrap_or_else(|_| ProgressStyle::default_spinner());
        Self {
            table: all.add(ProgressBar::new_spinner().with_style(style)),
            all,
            board: Board::of(book),
        }
    }

    fn add(&mut self, cell: usize, run: &Run) {
        self.board.add(cell, run);
    }

    /// As much of the table as there is room for, around the cell that was run last.
    fn draw(&self, cell: usize, left: Option<&str>) {
        let (columns, rows) = size().unwrap_or((80, 24));
        // Below it are the bar and the prompt, above it what was said last.
        let room = usize::from(rows).saturating_sub(5).max(1);
        let mut lines = self.board.lines(cell, room, columns.into());
        lines.extend(left.map(str::to_owned));
        self.table.set_message(lines.join("\n"));
    }
}

/// One line for a run's figures.
fn figures(metrics: &super::result::Metrics) -> String {
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
        let mut progress = Progress {
            runs: 4,
            done: 0,
            screen: None,
            spent: HashMap::new(),
        };
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
