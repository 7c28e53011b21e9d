// SPDX-License-Identifier: MIT OR Apache-2.0
//! Live table of an experiment: one line for each cell with its completed runs and their metrics.

use crate::experiment::ExperimentPlan;
use longhaul_report::{metric::Metric, registry};
use longhaul_results::{
    result::{Metrics, Run},
    summary::Summary,
    table::{align_within, shorten},
};

/// Metrics of a cell if the scenario does not name the metric of its headline.
const DEFAULT_METRICS: [&str; 3] = [
    registry::GOODPUT,
    registry::DOWNLOAD,
    registry::DELAY_MEDIAN,
];
/// Markers of the current cell and of the others.
const MARK: &str = "▸ ";
const NO_MARK: &str = "  ";
/// Most metrics in one line.
const FIGURES_MAX: usize = 3;

/// Live table with one line for each cell.
#[derive(Debug)]
pub(crate) struct LiveTable {
    rows: Vec<Row>,
    /// Repetitions of each cell.
    repetitions: u32,
    main_metric: Option<String>,
}

#[derive(Debug)]
struct Row {
    name: String,
    done: u32,
    failed: u32,
    runs: Vec<Metrics>,
}

impl LiveTable {
    pub(crate) fn of(experiment: &ExperimentPlan) -> Self {
        let row = |name| Row {
            name,
            done: 0,
            failed: 0,
            runs: Vec::new(),
        };
        Self {
            rows: experiment
                .cells
                .iter()
                .map(|cell| row(cell.name()))
                .collect(),
            repetitions: experiment.scenario.repetitions,
            main_metric: experiment
                .scenario
                .headline
                .as_ref()
                .map(|headline| headline.metric.clone()),
        }
    }

    /// Adds a counted run of a cell.
    pub(crate) fn add(&mut self, cell: usize, run: &Run) {
        let Some(row) = self.rows.get_mut(cell) else {
            return;
        };
        row.done += 1;
        match run.failed {
            Some(_) => row.failed += 1,
            None => row.runs.push(run.metrics.clone()),
        }
    }

    /// Returns a heading and at most `rows_max - 1` cells around `cell`, which is marked. No line is
    /// wider than `columns`.
    pub(crate) fn lines(&self, cell: usize, rows_max: usize, columns: usize) -> Vec<String> {
        let names = self.metrics();
        let shown = visible_range(self.rows.len(), cell, rows_max.saturating_sub(1));
        let heading = ["cell".to_owned(), "runs".to_owned()].into_iter();
        let heading = heading.chain(names.iter().map(|name| Metric::of(name).label));
        let rows = self.rows[shown.clone()].iter();
        let rows = rows.map(|row| row.columns(&names, self.repetitions));
        let all: Vec<Vec<String>> = std::iter::once(heading.collect()).chain(rows).collect();
        let room = columns.saturating_sub(MARK.chars().count());
        let marked = cell - shown.start + 1;
        let lines = align_within(all, room).into_iter().enumerate();
        let line = |(n, line): (usize, String)| {
            let mark = if n == marked { MARK } else { NO_MARK };
            format!("{mark}{}", shorten(line.trim_end(), room))
        };
        lines.map(line).collect()
    }

    /// Names of the shown metrics: that of the headline, then the defaults.
    fn metrics(&self) -> Vec<&str> {
        let has = |name: &&str| {
            self.rows
                .iter()
                .flat_map(|row| &row.runs)
                .any(|run| run.contains_key(*name))
        };
        let mut names: Vec<&str> = self.main_metric.iter().map(String::as_str).collect();
        for name in DEFAULT_METRICS.into_iter().filter(has) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names.truncate(FIGURES_MAX);
        names
    }
}

impl Row {
    fn columns(&self, names: &[&str], repetitions: u32) -> Vec<String> {
        let failed = match self.failed {
            0 => String::new(),
            failed => format!(", {failed} failed"),
        };
        let figure = |name: &&str| {
            let values = self.runs.iter().filter_map(|run| run.get(*name).copied());
            let median = Summary::of(values).map(|summary| Metric::of(name).format(summary.median));
            median.unwrap_or_default()
        };
        let head = [
            self.name.clone(),
            format!("{}/{repetitions}{failed}", self.done),
        ]
        .into_iter();
        head.chain(names.iter().map(figure)).collect()
    }
}

/// Range of at most `room` indices below `count` with `at` near its middle.
fn visible_range(count: usize, at: usize, room: usize) -> std::ops::Range<usize> {
    let first = at.saturating_sub(room / 2).min(count.saturating_sub(room));
    first..(first + room).min(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn live_table(cells: usize) -> LiveTable {
        let row = |n: usize| Row {
            name: format!("loss={n}"),
            done: 0,
            failed: 0,
            runs: Vec::new(),
        };
        LiveTable {
            rows: (0..cells).map(row).collect(),
            repetitions: 3,
            main_metric: None,
        }
    }

    fn run(bps: f64) -> Run {
        Run {
            metrics: Metrics::from([("goodput_bps".to_owned(), bps)]),
            ..Run::default()
        }
    }

    #[test]
    fn lines_show_completed_runs() {
        let mut board = live_table(2);
        board.add(1, &run(1e9));
        board.add(1, &run(3e9));
        board.add(
            1,
            &Run {
                failed: Some("reset".to_owned()),
                ..Run::default()
            },
        );
        let lines = board.lines(1, 10, 80);
        assert_eq!(lines.len(), 3);
        assert!(lines[1].starts_with("  loss=0   0/3"), "{lines:?}");
        assert!(lines[2].starts_with("▸ loss=1   3/3"), "{lines:?}");
        assert!(lines[2].contains("3/3, 1 failed   2 Gbit/s"), "{lines:?}");
        assert!(
            board
                .lines(1, 10, 8)
                .iter()
                .all(|line| line.chars().count() <= 8)
        );
    }

    #[test]
    fn long_names_are_cut_before_metrics() {
        let mut board = live_table(2);
        board.rows[0].name = "choice=relays and everything else that there is".to_owned();
        board.add(0, &run(1e9));
        let lines = board.lines(0, 10, 40);
        assert_eq!(lines[1], "▸ choice=relays and e…   1/3    1 Gbit/s");
        assert!(
            lines.iter().all(|line| line.chars().count() <= 40),
            "{lines:?}"
        );
    }

    #[test]
    fn small_terminal_shows_the_current_cell() {
        assert_eq!(visible_range(20, 0, 5), 0..5);
        assert_eq!(visible_range(20, 10, 5), 8..13);
        assert_eq!(visible_range(20, 19, 5), 15..20);
        assert_eq!(visible_range(3, 1, 5), 0..3);
        assert_eq!(live_table(20).lines(10, 6, 80).len(), 6);
    }
}
