// SPDX-License-Identifier: MIT OR Apache-2.0
//! Output of an analysis: receives its results from all threads and writes them to a directory.

use super::page::{between, html};
use super::result::{
    Analysis, CaptureFile, SCHEMA, VantagePoint,
    by_line::ByLine,
    course::Drawn,
    excerpts::{self, marks_max},
    finished::{COURSES, Finished, RESULT},
    largest::{Largest, Ranks, payload},
};
use crate::series::{self, Format, Row, cannot_write};
use anyhow::{Context, Result};
use longhaul_flow::{
    joint_verdict,
    record::{Flow, PacketWindow, TwoPointComparison},
    time_series::TimeSeries,
};
use longhaul_units::Time;
use serde::Serialize;
use serde_json::Serializer;
use std::{
    fs::{self, File},
    io::{BufWriter, Write},
    mem,
    path::{Path, PathBuf},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

/// Rows that a thread buffers for each width before it takes the lock: 220 kB.
const ROWS_MAX: usize = 1 << 10;

/// Maximum number of bins of a direction in `courses.jsonl` and in the page.
const BINS_MAX: usize = 1 << 12;
/// Number of bins that every direction may have.
const BINS_MIN: usize = 1 << 6;
/// Maximum number of bins of all directions while each has more than [`BINS_MIN`]: about 80 bytes each as text.
const BINS_SUM_MAX: usize = 40 << 10;

/// Size of the write buffer for JSON, bytes.
const BUFFER: usize = 1 << 17;

/// File of the flows that are not in `result.json`.
const OTHERS: &str = "flows.jsonl";

/// Selection of what an analysis writes.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    /// Output directory; without one, [`Output::finish`] only returns the result.
    pub(crate) directory: Option<PathBuf>,
    /// Widths of the bins, as in the analysis settings.
    pub(crate) widths: Vec<Time>,
    /// Formats of the series files.
    pub(crate) formats: Vec<Format>,
    pub(crate) ranks: Ranks,
    /// Maximum number of bins of the first width in [`Finished::bins`], over all flows: 184 bytes each.
    pub(crate) bins_kept: usize,
    /// Number of threads; with more than one, the last files are written in parallel.
    pub(crate) threads: usize,
}

/// Facts about the input that are known after reading it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sources {
    pub(crate) files: Vec<CaptureFile>,
    pub(crate) vantages: Vec<VantagePoint>,
    /// Flows that were captured at two points.
    pub(crate) both_ends: Vec<TwoPointComparison>,
}

/// Bins that are kept in memory: all of them, or none if there are too many.
struct Kept {
    most: usize,
    rows: Option<Vec<Row>>,
}

impl Kept {
    fn new(most: usize) -> Self {
        let rows = (most > 0).then(Vec::new);
        Self { most, rows }
    }

    fn add(&mut self, rows: &[Row]) {
        let room = |kept: &Vec<Row>| kept.len() + rows.len() <= self.most;
        self.rows = self.rows.take().filter(room);
        if let Some(kept) = &mut self.rows {
            kept.extend_from_slice(rows);
        }
    }
}

/// Output of an analysis, shared by its threads.
pub(crate) struct Output {
    plan: Plan,
    open: Mutex<Open>,
    /// Payload in bytes below which a flow gets no charts.
    least_drawn: AtomicU64,
}

struct Open {
    largest: Largest<BufWriter<File>>,
    series: series::Files,
    kept: Kept,
    /// First error; after it nothing is written.
    failed: Option<anyhow::Error>,
}

impl Output {
    /// Creates the directory and its files. Files of an earlier analysis are overwritten.
    ///
    /// # Errors
    /// The directory or a file cannot be created.
    pub(crate) fn create(plan: Plan) -> Result<Self> {
        let (lines, series) = match &plan.directory {
            Some(directory) => {
                fs::create_dir_all(directory).with_context(|| cannot_write(directory))?;
                let lines = create(&directory.join(OTHERS))?;
                let series = series::Files::create(directory, &plan.widths, &plan.formats)?;
                (Some(lines), series)
            }
            None => (None, series::Files::none(plan.widths.len())),
        };
        let open = Open {
            largest: Largest::new(plan.ranks, lines),
            series,
            kept: Kept::new(plan.bins_kept),
            failed: None,
        };
        Ok(Self {
            plan,
            open: Mutex::new(open),
            least_drawn: AtomicU64::new(0),
        })
    }

    /// Drops the time series of a flow that is too small to get charts. The analysis calls it as soon as a flow ends,
    /// to save memory.
    pub(crate) fn thin(&self, flow: &mut Flow) {
        if payload(flow) < self.least_drawn.load(Ordering::Relaxed) {
            flow.drop_chart_data();
        }
    }

    /// Returns a writer for one thread.
    pub(crate) fn writer(&self) -> Writer<'_> {
        let written = !self.plan.formats.is_empty() && self.plan.directory.is_some();
        let wanted = written || self.plan.bins_kept > 0;
        Writer {
            output: self,
            rows: vec![Vec::new(); if wanted { self.plan.widths.len() } else { 0 }],
        }
    }

    /// Returns whether writing failed. The analysis can stop then; [`Output::finish`] returns the error.
    pub(crate) fn has_failed(&self) -> bool {
        self.with(|open| open.failed.is_some())
    }

    /// Closes the files, and writes `result.json`, `courses.jsonl` and `report.html`. All writers must be dropped before.
    ///
    /// # Errors
    /// The first file that could not be written, now or before.
    pub(crate) fn finish(self, sources: Sources) -> Result<Finished> {
        let Self { plan, open, .. } = self;
        let Open {
            largest,
            series,
            kept,
            failed,
        } = open.into_inner().unwrap_or_else(PoisonError::into_inner);
        if let Some(error) = failed {
            return Err(error);
        }
        let mut raw = series.names();
        let (mut flows, others) = largest.finish().context("cannot write flows.jsonl")?;
        judge_pairs(&mut flows, &sources.both_ends);
        let finest_ns = plan.widths.iter().map(|width| width.as_nanos()).min();
        let courses = drawn(&mut flows, finest_ns.unwrap_or(u64::MAX));
        match (&plan.directory, others.flows) {
            (Some(_), 1..) => raw.push(OTHERS.to_owned()),
            (Some(directory), 0) => remove(&directory.join(OTHERS))?,
            (None, _) => {}
        }
        let mut both_ends = sources.both_ends;
        both_ends.iter_mut().for_each(between::thin);
        let analysis = Analysis {
            schema: SCHEMA,
            longhaul: longhaul_command::release().to_owned(),
            bins_ns: plan.widths.iter().map(|width| width.as_nanos()).collect(),
            files: sources.files,
            vantages: sources.vantages,
            flows,
            both_ends,
            others,
            raw,
        };
        let finished = Finished {
            analysis,
            courses,
            bins: kept.rows,
        };
        let directory = plan.directory.as_deref();
        let result = || directory.map_or(Ok(()), |directory| write_result(&finished, directory));
        let rest = || {
            series.finish()?;
            directory.map_or(Ok(()), |directory| write_page(&finished, directory))
        };
        match plan.threads {
            1 => result().and_then(|()| rest())?,
            _ => both(result, rest)?,
        }
        Ok(finished)
    }

    fn with<T>(&self, act: impl FnOnce(&mut Open) -> T) -> T {
        // Poisoning is ignored: the panic itself ends the analysis.
        act(&mut self.open.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Open {
    fn attempt(&mut self, write: impl FnOnce(&mut Self) -> Result<()>) {
        if self.failed.is_none() {
            self.failed = write(self).err();
        }
    }
}

/// Writer of one thread. It buffers rows, so that threads seldom wait for each other.
pub(crate) struct Writer<'a> {
    output: &'a Output,
    rows: Vec<Vec<Row>>,
}

impl Writer<'_> {
    fn flush(&mut self, width: usize) {
        let rows = &mut self.rows[width];
        self.output.with(|open| {
            open.attempt(|open| open.series.write(width, rows));
            if width == 0 {
                open.kept.add(rows);
            }
        });
        rows.clear();
    }

    /// Writes a bin of the width with this index.
    pub(crate) fn row(&mut self, width: usize, row: Row) {
        let Some(rows) = self.rows.get_mut(width) else {
            return;
        };
        rows.push(row);
        if rows.len() == ROWS_MAX {
            self.flush(width);
        }
    }

    /// Writes a finished flow.
    pub(crate) fn flow(&mut self, flow: Box<Flow>) {
        let write = |open: &mut Open| open.largest.flow(flow).context("cannot write flows.jsonl");
        let least = self.output.with(|open| {
            open.attempt(write);
            open.largest.least_drawn()
        });
        self.output.least_drawn.store(least, Ordering::Relaxed);
    }
}

impl Drop for Writer<'_> {
    fn drop(&mut self) {
        (0..self.rows.len()).for_each(|width| self.flush(width));
    }
}

fn write_result(finished: &Finished, directory: &Path) -> Result<()> {
    json_by_line(&directory.join(RESULT), &finished.analysis)
}

fn write_page(finished: &Finished, directory: &Path) -> Result<()> {
    json_lines(&directory.join(COURSES), &finished.courses)?;
    write_text(&directory.join("report.html"), &html::html(finished))
}

/// Runs two functions in parallel.
fn both(one: impl FnOnce() -> Result<()> + Send, other: impl FnOnce() -> Result<()>) -> Result<()> {
    std::thread::scope(|scope| {
        let one = scope.spawn(one);
        let other = other();
        let one = one
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        one.and(other)
    })
}

fn write_text(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| cannot_write(path))
}

fn json_by_line(path: &Path, value: &impl Serialize) -> Result<()> {
    let write = || -> std::io::Result<()> {
        let mut file = BufWriter::with_capacity(BUFFER, File::create(path)?);
        value.serialize(&mut Serializer::with_formatter(
            &mut file,
            ByLine::default(),
        ))?;
        file.write_all(b"\n")?;
        file.flush()
    };
    write().with_context(|| cannot_write(path))
}

fn json_lines(path: &Path, lines: &[Drawn]) -> Result<()> {
    let mut file = create(path)?;
    let mut write = || -> std::io::Result<()> {
        for line in lines {
            serde_json::to_writer(&mut file, line)?;
            file.write_all(b"\n")?;
        }
        file.flush()
    };
    write().with_context(|| cannot_write(path))
}

/// Moves the time series and packet windows out of all flows and returns them as chart data.
fn drawn(flows: &mut [Flow], finest_ns: u64) -> Vec<Drawn> {
    let taken: Vec<Taken> = flows.iter_mut().flat_map(take_courses).collect();
    let lengths = |of: fn(&Taken) -> usize| taken.iter().map(of).collect::<Vec<usize>>();
    let bins = bins_max(&lengths(|one| one.course.bins.len()));
    let marks = marks_max(&lengths(|one| excerpts::marks(&one.excerpts)));
    let drawn = taken.iter().map(|one| Drawn {
        excerpts: excerpts::packed(&one.excerpts, marks),
        ..Drawn::of((one.flow, one.upload), &one.course, finest_ns, bins)
    });
    drawn.collect()
}

/// Chart data of a direction, moved out of its flow.
struct Taken {
    flow: u64,
    upload: bool,
    course: TimeSeries,
    excerpts: Vec<PacketWindow>,
}

fn take_courses(flow: &mut Flow) -> Vec<Taken> {
    let number = flow.number;
    let directions = [(true, &mut flow.upload), (false, &mut flow.download)];
    let taken = directions.map(|(upload, direction)| Taken {
        flow: number,
        upload,
        course: mem::take(&mut direction.time_series),
        excerpts: mem::take(&mut direction.packet_windows),
    });
    taken
        .into_iter()
        .filter(|one| moves_data(&one.course))
        .collect()
}

/// Returns the maximum number of bins of a direction that keeps the total within the limit.
fn bins_max(lengths: &[usize]) -> usize {
    excerpts::fair_max(lengths, BINS_MIN..=BINS_MAX, BINS_SUM_MAX)
}

/// Returns whether a direction sends enough for a chart: data, and more than one bin.
fn moves_data(course: &TimeSeries) -> bool {
    course.bins.len() > 1 && course.bins.iter().any(|bin| bin.data_bytes > 0)
}

fn create(path: &Path) -> Result<BufWriter<File>> {
    File::create(path)
        .map(BufWriter::new)
        .with_context(|| cannot_write(path))
}

fn remove(path: &Path) -> Result<()> {
    fs::remove_file(path).with_context(|| cannot_write(path))
}

/// Replaces the two verdicts of a connection that was captured at two points by one.
fn judge_pairs(flows: &mut [Flow], pairs: &[TwoPointComparison]) {
    let index = |number: u64| flows.iter().position(|flow| flow.number == number);
    let known: Vec<_> = pairs
        .iter()
        .filter_map(|pair| Some((pair, [index(pair.left)?, index(pair.right)?])))
        .collect();
    for (pair, places) in known {
        if let Ok([left, right]) = flows.get_disjoint_mut(places) {
            joint_verdict::assess(left, right, pair);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{made_up, result::finished::WAY_OUT};
    use longhaul_command::exit::Refusal;
    use longhaul_flow::bin::Bin;

    fn plan(directory: Option<&Path>) -> Plan {
        Plan {
            directory: directory.map(Path::to_owned),
            widths: vec![Time::from_nanos(1_000_000)],
            formats: vec![Format::Csv],
            ranks: Ranks { drawn: 1, told: 2 },
            bins_kept: 0,
            threads: 2,
        }
    }

    fn row(flow: u64, from_ns: u64) -> Row {
        Row {
            flow,
            upload: true,
            from_ns,
            bin: Bin::default(),
        }
    }

    #[test]
    fn keeps_all_bins_or_none() {
        let all = 2 * 3 * ROWS_MAX;
        let kept = |bins_kept| {
            let plan = Plan {
                bins_kept,
                formats: Vec::new(),
                ..plan(None)
            };
            fed(plan).unwrap().bins.map(|bins| bins.len())
        };
        assert_eq!(kept(all), Some(all));
        assert_eq!(kept(all - 1), None);
        assert_eq!(kept(0), None);
    }

    /// Writes bins and flows from two threads in parallel.
    fn fed(plan: Plan) -> Result<Finished> {
        let output = Output::create(plan).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..2 {
                let mut writer = output.writer();
                scope.spawn(move || {
                    for n in 0..3 * ROWS_MAX as u64 {
                        writer.row(0, row(thread, n));
                    }
                    writer.flow(Box::new(made_up::long_flow(thread)));
                    writer.flow(Box::new(made_up::short_flow(10 + thread)));
                });
            }
        });
        output.finish(Sources::default())
    }

    #[test]
    fn writes_results_of_all_threads() {
        let directory = tempfile::tempdir().unwrap();
        let finished = fed(plan(Some(directory.path()))).unwrap();
        let read = |name: &str| fs::read_to_string(directory.path().join(name)).unwrap();
        let result: Analysis = serde_json::from_str(&read("result.json")).unwrap();
        assert_eq!(result, finished.analysis);
        assert_eq!(result.flows.len(), 2);
        assert_eq!(result.others.flows, 2);
        assert_eq!(result.raw, ["series-1ms.csv", "flows.jsonl"]);
        assert_eq!(read("flows.jsonl").lines().count(), 2);
        assert_eq!(read("series-1ms.csv").lines().count(), 1 + 6 * ROWS_MAX);
        let courses: Vec<Drawn> = read(COURSES)
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        assert_eq!(courses, finished.courses);
        assert_eq!(courses.len(), 1, "of the one flow that is drawn");
        assert!(!read("result.json").contains("\"course\""));
        assert_eq!(Finished::read(directory.path()).unwrap(), finished);
    }

    #[test]
    fn limits_bins_per_direction_when_there_are_many() {
        assert_eq!(bins_max(&[4096]), 4096);
        assert_eq!(bins_max(&[4096; 10]), 4096);
        assert_eq!(bins_max(&[4096; 11]), 2048);
        let one_large = [&[4096][..], &[100; 40]].concat();
        assert_eq!(bins_max(&one_large), 4096);
        assert_eq!(bins_max(&[4096; 2000]), BINS_MIN);
    }

    #[test]
    fn refuses_unreadable_result_with_hint() {
        let directory = tempfile::tempdir().unwrap();
        let said = || {
            let error = Finished::read(directory.path()).unwrap_err();
            assert!(matches!(error.downcast_ref(), Some(Refusal::Usage(_))));
            error.to_string()
        };
        assert!(said().contains("result.json: No such file"), "{}", said());
        let result = directory.path().join(RESULT);
        fs::write(&result, "{}").unwrap();
        assert!(said().contains("missing field"), "{}", said());
        let newer = Analysis {
            schema: SCHEMA + 1,
            ..Analysis::default()
        };
        fs::write(&result, serde_json::to_string(&newer).unwrap()).unwrap();
        assert!(
            said().contains("schema 2") && said().ends_with(WAY_OUT),
            "{}",
            said()
        );
    }

    #[test]
    fn returns_result_without_directory() {
        let finished = fed(plan(None)).unwrap();
        assert_eq!(finished.analysis.flows.len(), 2);
        assert!(finished.analysis.raw.is_empty());
    }

    #[test]
    fn reports_full_disk_at_the_end() {
        let directory = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("/dev/full", directory.path().join("series-1ms.csv")).unwrap();
        let error = fed(plan(Some(directory.path()))).unwrap_err();
        let said = format!("{error:#}");
        assert!(
            said.contains("series-1ms.csv") && said.contains("No space left"),
            "{said}"
        );
    }
}
