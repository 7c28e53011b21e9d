// SPDX-License-Identifier: MIT OR Apache-2.0
//! Progress display: on a terminal the live table and a bar with rate and remaining time, elsewhere
//! one line for each run. It is written to stderr; results go to stdout.

use super::live_table::LiveTable;
use crate::experiment::ExperimentPlan;
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use longhaul_command::{console::terminal_size, errln};
use longhaul_report::{metric::Metric, registry};
use longhaul_results::{result::Run, table::shorten};
use longhaul_units::{BitRate, Bytes, Time};
use std::{
    collections::HashMap,
    io::{IsTerminal, stderr},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::{task::JoinHandle, time};

/// Columns and rows of a terminal whose size is unknown.
const DEFAULT_SIZE: (u16, u16) = (80, 24);
/// Width of the bar in characters.
const BAR_WIDTH: usize = 20;
/// Update interval of the bar.
const TICK: Duration = Duration::from_millis(250);

/// Progress display of one experiment.
#[derive(Debug)]
pub(crate) struct Progress {
    runs: usize,
    done: usize,
    /// Live table and bar, on a terminal only.
    screen: Option<Screen>,
    /// Wall-clock time of the completed runs, by cell.
    durations: HashMap<usize, Vec<Duration>>,
}

/// Terminal output, overwritten in place. It is not cleared first, which would flicker.
#[derive(Debug)]
struct Screen {
    all: MultiProgress,
    table: ProgressBar,
    /// Bar of the current run, below the table.
    run: ProgressBar,
    live_table: LiveTable,
    /// Lines of the table now on the terminal.
    lines: usize,
}

/// Current run.
#[derive(Debug)]
pub(crate) struct ActiveRun {
    cell: usize,
    heading: String,
    began: Instant,
    /// Task that updates the bar.
    task: Option<JoinHandle<()>>,
}

impl Progress {
    /// Creates the display for `runs` runs.
    pub(crate) fn new(experiment: &ExperimentPlan, runs: usize) -> Self {
        // A dumb terminal cannot overwrite lines.
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        let drawn = stderr().is_terminal() && !dumb;
        let screen = drawn.then(|| Screen::of(experiment));
        Self {
            runs,
            done: 0,
            screen,
            durations: HashMap::new(),
        }
    }

    /// Prints a line above the display.
    pub(crate) fn note(&self, text: &str) {
        match &self.screen {
            Some(screen) => screen.all.suspend(|| errln!("{text}")),
            None => errln!("{text}"),
        }
    }

    /// Counts a run of an earlier session. `counted` is `None` for a warm-up run.
    pub(crate) fn add_completed(&mut self, cell: usize, counted: Option<&Run>) {
        self.done += 1;
        if let (Some(screen), Some(run)) = (&mut self.screen, counted) {
            screen.add(cell, run);
        }
    }

    /// Begins a run of `cell` that is to deliver `goal` bytes (0: unknown). `delivered` counts
    /// them. `pending` are the cells of the runs after it.
    pub(crate) fn begin(
        &mut self,
        cell: usize,
        name: &str,
        goal: Bytes,
        delivered: &Arc<AtomicU64>,
        pending: &[usize],
    ) -> ActiveRun {
        self.done += 1;
        // A single cell has no name.
        let heading = format!("[{}/{}] {name}", self.done, self.runs);
        let heading = heading.trim_end().to_owned();
        let remaining = self.remaining_text(&[&[cell], pending].concat());
        let task = self.screen.as_mut().map(|screen| {
            screen.run.set_message(shorten(name, DEFAULT_SIZE.0.into()));
            screen.draw(
                cell,
                &format!("Run {} of {}{remaining}", self.done, self.runs),
            );
            let (run, name) = (screen.run.clone(), name.to_owned());
            tokio::spawn(update_bar(run, name, goal, delivered.clone()))
        });
        ActiveRun {
            cell,
            heading,
            began: Instant::now(),
            task,
        }
    }

    /// Ends a run. `counted` is false for a warm-up run. `pending` are the cells of the runs after
    /// it.
    pub(crate) fn end(&mut self, active: ActiveRun, run: &Run, counted: bool, pending: &[usize]) {
        if let Some(task) = active.task {
            task.abort();
        }
        self.durations
            .entry(active.cell)
            .or_default()
            .push(active.began.elapsed());
        let failed = run
            .failed
            .as_ref()
            .map(|why| format!("{}: FAILED: {why}", active.heading));
        let left = self.remaining_text(pending);
        let Some(screen) = &mut self.screen else {
            let text = failed
                .unwrap_or_else(|| format!("{}: {}", active.heading, format_metrics(&run.metrics)));
            errln!("{text}{left}");
            return;
        };
        if let Some(failed) = failed {
            screen.all.suspend(|| errln!("{failed}"));
        }
        if counted {
            screen.add(active.cell, run);
        }
    }

    /// Discards a run that is queued again.
    pub(crate) fn discard(&mut self, active: ActiveRun, why: &str) {
        if let Some(task) = active.task {
            task.abort();
        }
        self.runs += 1;
        self.note(&format!("{}: {why}; re-queued", active.heading));
    }

    /// Clears the display. The table of the result replaces it.
    pub(crate) fn close(&self) {
        if let Some(screen) = &self.screen {
            screen.all.set_move_cursor(false);
            screen.run.finish_and_clear();
            screen.table.finish_and_clear();
        }
    }

    /// Formats the remaining time, such as ", about 4 min left"; empty if it is unknown.
    fn remaining_text(&self, pending: &[usize]) -> String {
        let left = self.time_left(pending).filter(|_| !pending.is_empty());
        left.map(|left| format!(", about {left} left"))
            .unwrap_or_default()
    }

    /// Whether the remaining time can be estimated: the durations of all pending cells are known, or a third of the runs
    /// is done. The first runs may be the short ones.
    fn can_estimate(&self, pending: &[usize]) -> bool {
        let measured: usize = self.durations.values().map(Vec::len).sum();
        let is_known = |cell: &usize| self.durations.contains_key(cell);
        pending.iter().all(is_known) || measured * 3 >= measured + pending.len()
    }

    /// Remaining time: the mean of each cell's runs so far, or of all runs for a cell without any. `None` if too few runs
    /// are done.
    fn time_left(&self, pending: &[usize]) -> Option<Time> {
        if !self.can_estimate(pending) {
            return None;
        }
        let mean = |all: &mut dyn Iterator<Item = &Duration>| {
            let (count, sum) =
                all.fold((0u32, Duration::ZERO), |(n, sum), one| (n + 1, sum + *one));
            sum.checked_div(count)
        };
        let overall = mean(&mut self.durations.values().flatten())?;
        let of = |cell: &usize| {
            mean(&mut self.durations.get(cell).into_iter().flatten()).unwrap_or(overall)
        };
        let left: Duration = pending.iter().map(of).sum();
        Some(Time::from_secs(left.as_secs().max(1)))
    }
}

impl Screen {
    fn of(experiment: &ExperimentPlan) -> Self {
        // At the rate of the messages, which is low.
        let all = MultiProgress::with_draw_target(ProgressDrawTarget::stderr_with_hz(255));
        all.set_move_cursor(true);
        let style = ProgressStyle::with_template("{msg}");
        let style = style.unwrap_or_else(|_| ProgressStyle::default_spinner());
        let line = || all.add(ProgressBar::new_spinner().with_style(style.clone()));
        Self {
            table: line(),
            run: line(),
            all,
            live_table: LiveTable::of(experiment),
            lines: 0,
        }
    }

    fn add(&mut self, cell: usize, run: &Run) {
        self.live_table.add(cell, run);
    }

    /// Draws as much of the table as fits, around the current cell.
    fn draw(&mut self, cell: usize, heading: &str) {
        let (columns, rows) = terminal_size(stderr()).unwrap_or(DEFAULT_SIZE);
        // One line each for the heading, the bar, and the line before the display, and one to spare.
        let room = usize::from(rows).saturating_sub(4).max(1);
        let mut lines = vec![shorten(heading, columns.into())];
        lines.extend(self.live_table.lines(cell, room, columns.into()));
        if lines.len() < self.lines {
            // Otherwise the lines below the new table would remain.
            let _ = self.all.clear();
        }
        self.lines = lines.len();
        self.table.set_message(lines.join("\n"));
    }
}

/// Formats a run's metrics as one line.
fn format_metrics(metrics: &longhaul_results::result::Metrics) -> String {
    let shown = [
        registry::DOWNLOAD,
        registry::GOODPUT,
        registry::RETRANSMITS,
        registry::DELAY_MEDIAN,
    ];
    let parts = shown.iter().filter_map(|name| {
        let metric = Metric::of(name);
        Some(format!(
            "{} {}",
            metric.label,
            metric.format(*metrics.get(*name)?)
        ))
    });
    parts.collect::<Vec<_>>().join(", ")
}

/// Updates the bar until the task is aborted.
async fn update_bar(run: ProgressBar, name: String, goal: Bytes, delivered: Arc<AtomicU64>) {
    let mut ticks = time::interval(TICK);
    let began = Instant::now();
    let mut before = 0;
    loop {
        ticks.tick().await;
        let now = delivered.load(Ordering::Relaxed);
        let figures = [
            bar(now, goal.get()),
            rate(now.saturating_sub(before), now, goal.get()),
            format!("{} s", began.elapsed().as_secs()),
        ];
        let (columns, _) = terminal_size(stderr()).unwrap_or(DEFAULT_SIZE);
        run.set_message(line(&name, &figures, columns.into()));
        before = now;
    }
}

/// Formats the line of the bar. The name is cut before a metric.
fn line(name: &str, figures: &[String], columns: usize) -> String {
    let figures: Vec<&str> = figures
        .iter()
        .map(String::as_str)
        .filter(|figure| !figure.is_empty())
        .collect();
    let figures = figures.join("  ");
    let room = columns.saturating_sub(figures.chars().count() + 2);
    let whole = format!("{}  {figures}", shorten(name, room.max(8)));
    shorten(whole.trim_start(), columns)
}

/// Progress bar of the run; empty if the goal is unknown.
fn bar(now: u64, goal: u64) -> String {
    let share = now as f64 / goal as f64;
    let full = (share.min(1.0) * BAR_WIDTH as f64) as usize;
    match goal {
        0 => String::new(),
        _ => "█".repeat(full) + &"░".repeat(BAR_WIDTH - full),
    }
}

/// Formats rate and remaining time, such as `2.3 Gbit/s, 4 s to go`.
fn rate(new_bytes: u64, now: u64, goal: u64) -> String {
    let Some(rate) = BitRate::mean(Bytes::new(new_bytes), TICK.into()).filter(|_| new_bytes > 0)
    else {
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
    fn remaining_time_uses_the_mean_of_each_cell() {
        let mut progress = Progress {
            runs: 4,
            done: 0,
            screen: None,
            durations: HashMap::new(),
        };
        assert_eq!(progress.time_left(&[0]), None);
        progress
            .durations
            .insert(0, vec![Duration::from_secs(20), Duration::from_secs(30)]);
        progress.durations.insert(1, vec![Duration::from_secs(4)]);
        assert_eq!(progress.time_left(&[0, 1]), Some(Time::from_secs(29)));
        // Cell 2 has no run yet: the mean of all runs, 18 s.
        assert_eq!(progress.time_left(&[2]), Some(Time::from_secs(18)));
    }

    #[test]
    fn remaining_time_of_cells_without_runs_needs_a_third_of_the_runs() {
        let mut progress = Progress {
            runs: 12,
            done: 1,
            screen: None,
            durations: HashMap::from([(0, vec![Duration::from_secs(3)])]),
        };
        let pending: Vec<usize> = (1..12).collect();
        assert_eq!(progress.time_left(&pending), None);
        // More runs of the same cell last as long as its first.
        assert_eq!(progress.time_left(&[0; 11]), Some(Time::from_secs(33)));
        progress.durations.insert(1, vec![Duration::from_secs(20)]);
        progress.durations.insert(2, vec![Duration::from_secs(4)]);
        assert_eq!(progress.time_left(&pending[2..]), None);
        progress.durations.insert(3, vec![Duration::from_secs(5)]);
        assert_eq!(progress.time_left(&pending[3..]), Some(Time::from_secs(64)));
    }

    #[test]
    fn name_is_cut_before_metrics() {
        let figures = ["", "2.3 Gbit/s", "4 s"].map(str::to_owned);
        assert_eq!(line("loss=0", &figures, 80), "loss=0  2.3 Gbit/s  4 s");
        assert_eq!(line("", &figures, 80), "2.3 Gbit/s  4 s");
        assert_eq!(
            line("choice=relays and more", &figures, 30),
            "choice=relay…  2.3 Gbit/s  4 s"
        );
        assert_eq!(line("choice=relays", &figures, 12).chars().count(), 12);
    }

    #[test]
    fn bar_shows_the_share_of_the_goal() {
        assert_eq!(bar(5, 0), "");
        assert_eq!(bar(3, 4), "███████████████░░░░░");
        assert_eq!(bar(9, 4), "█".repeat(BAR_WIDTH));
    }

    #[test]
    fn rate_is_of_the_last_tick() {
        assert_eq!(
            rate(31_250_000, 500_000_000, 1_000_000_000),
            "1 Gbit/s, 4 s to go"
        );
        assert_eq!(rate(0, 5_000_000, 0), "5 MB");
    }
}
