// SPDX-License-Identifier: MIT OR Apache-2.0
//! Output of an analysis: receives its results from all threads and writes them to a directory.

use super::page::{html, two_point};
use super::result::{
    Analysis, CaptureFile, CapturePointInfo, SCHEMA,
    analysis_report::{AnalysisReport, CHART_SERIES_FILE, RESULT_FILE},
    chart_series::ChartSeries,
    largest_flows::{FlowLimits, LargestFlows, payload},
    line_formatter::LineFormatter,
    packet_windows::{self, events_max},
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
const WRITE_BUFFER_LEN: usize = 1 << 17;

/// File of the flows that are not in `result.json`.
const REMAINDER_FILE: &str = "flows.jsonl";

/// Selection of what an analysis writes.
#[derive(Debug, Clone)]
pub(crate) struct OutputConfig {
    /// Output directory; without one, [`Output::finish`] only returns the result.
    pub(crate) directory: Option<PathBuf>,
    /// Widths of the bins, as in the analysis settings.
    pub(crate) widths: Vec<Time>,
    /// Formats of the series files.
    pub(crate) formats: Vec<Format>,
    pub(crate) flow_limits: FlowLimits,
    /// Maximum number of bins of the first width in [`AnalysisReport::bins`], over all flows: 184 bytes each.
    pub(crate) bins_max: usize,
    /// Number of threads; with more than one, the last files are written in parallel.
    pub(crate) threads: usize,
}

/// Facts about the input that are known after reading it.
#[derive(Debug, Clone, Default)]
pub(crate) struct CaptureInfo {
    pub(crate) files: Vec<CaptureFile>,
    pub(crate) capture_points: Vec<CapturePointInfo>,
    /// Flows that were captured at two points.
    pub(crate) two_point_comparisons: Vec<TwoPointComparison>,
}

/// Bins that are kept in memory: all of them, or none if there are too many.
struct KeptBins {
    max: usize,
    rows: Option<Vec<Row>>,
}

impl KeptBins {
    fn new(most: usize) -> Self {
        let rows = (most > 0).then(Vec::new);
        Self { max: most, rows }
    }

    fn add(&mut self, rows: &[Row]) {
        let room = |kept: &Vec<Row>| kept.len() + rows.len() <= self.max;
        self.rows = self.rows.take().filter(room);
        if let Some(kept) = &mut self.rows {
            kept.extend_from_slice(rows);
        }
    }
}

/// Output of an analysis, shared by its threads.
pub(crate) struct Output {
    config: OutputConfig,
    state: Mutex<OutputState>,
    /// Payload in bytes below which a flow gets no charts.
    charted_payload_min: AtomicU64,
}

struct OutputState {
    largest: LargestFlows<BufWriter<File>>,
    series: series::SeriesFiles,
    bins: KeptBins,
    /// First error; after it nothing is written.
    error: Option<anyhow::Error>,
}

impl Output {
    /// Creates the directory and its files. Files of an earlier analysis are overwritten.
    ///
    /// # Errors
    /// The directory or a file cannot be created.
    pub(crate) fn create(plan: OutputConfig) -> Result<Self> {
        let (lines, series) = match &plan.directory {
            Some(directory) => {
                fs::create_dir_all(directory).with_context(|| cannot_write(directory))?;
                let lines = create(&directory.join(REMAINDER_FILE))?;
                let series = series::SeriesFiles::create(directory, &plan.widths, &plan.formats)?;
                (Some(lines), series)
            }
            None => (None, series::SeriesFiles::disabled(plan.widths.len())),
        };
        let open = OutputState {
            largest: LargestFlows::new(plan.flow_limits, lines),
            series,
            bins: KeptBins::new(plan.bins_max),
            error: None,
        };
        Ok(Self {
            config: plan,
            state: Mutex::new(open),
            charted_payload_min: AtomicU64::new(0),
        })
    }

    /// Drops the time series of a flow that is too small to get charts. The analysis calls it as soon as a flow ends,
    /// to save memory.
    pub(crate) fn drop_unused_chart_data(&self, flow: &mut Flow) {
        if payload(flow) < self.charted_payload_min.load(Ordering::Relaxed) {
            flow.drop_chart_data();
        }
    }

    /// Returns a writer for one thread.
    pub(crate) fn writer(&self) -> Writer<'_> {
        let written = !self.config.formats.is_empty() && self.config.directory.is_some();
        let wanted = written || self.config.bins_max > 0;
        Writer {
            output: self,
            rows: vec![Vec::new(); if wanted { self.config.widths.len() } else { 0 }],
        }
    }

    /// Returns whether writing failed. The analysis can stop then; [`Output::finish`] returns the error.
    pub(crate) fn has_failed(&self) -> bool {
        self.with_state(|open| open.error.is_some())
    }

    /// Closes the files, and writes `result.json`, `courses.jsonl` and `report.html`. All writers must be dropped before.
    ///
    /// # Errors
    /// The first file that could not be written, now or before.
    pub(crate) fn finish(self, sources: CaptureInfo) -> Result<AnalysisReport> {
        let Self {
            config: plan,
            state: open,
            ..
        } = self;
        let OutputState {
            largest,
            series,
            bins: kept,
            error: failed,
        } = open.into_inner().unwrap_or_else(PoisonError::into_inner);
        if let Some(error) = failed {
            return Err(error);
        }
        let mut raw = series.names();
        let (mut flows, others) = largest.finish().context("cannot write flows.jsonl")?;
        set_joint_verdicts(&mut flows, &sources.two_point_comparisons);
        let finest_ns = plan.widths.iter().map(|width| width.as_nanos()).min();
        let courses = take_chart_series(&mut flows, finest_ns.unwrap_or(u64::MAX));
        match (&plan.directory, others.flows) {
            (Some(_), 1..) => raw.push(REMAINDER_FILE.to_owned()),
            (Some(directory), 0) => remove(&directory.join(REMAINDER_FILE))?,
            (None, _) => {}
        }
        let mut both_ends = sources.two_point_comparisons;
        both_ends.iter_mut().for_each(two_point::merge_delay_bins);
        let analysis = Analysis {
            schema: SCHEMA,
            longhaul: longhaul_command::release().to_owned(),
            bins_ns: plan.widths.iter().map(|width| width.as_nanos()).collect(),
            files: sources.files,
            capture_points: sources.capture_points,
            flows,
            two_point_comparisons: both_ends,
            remainder: others,
            other_files: raw,
        };
        let finished = AnalysisReport {
            analysis,
            chart_series: courses,
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
            _ => run_in_parallel(result, rest)?,
        }
        Ok(finished)
    }

    fn with_state<T>(&self, act: impl FnOnce(&mut OutputState) -> T) -> T {
        // Poisoning is ignored: the panic itself ends the analysis.
        act(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl OutputState {
    fn write_unless_failed(&mut self, write: impl FnOnce(&mut Self) -> Result<()>) {
        if self.error.is_none() {
            self.error = write(self).err();
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
        self.output.with_state(|open| {
            open.write_unless_failed(|open| open.series.write(width, rows));
            if width == 0 {
                open.bins.add(rows);
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
        let write =
            |open: &mut OutputState| open.largest.add(flow).context("cannot write flows.jsonl");
        let least = self.output.with_state(|open| {
            open.write_unless_failed(write);
            open.largest.charted_payload_min()
        });
        self.output
            .charted_payload_min
            .store(least, Ordering::Relaxed);
    }
}

impl Drop for Writer<'_> {
    fn drop(&mut self) {
        (0..self.rows.len()).for_each(|width| self.flush(width));
    }
}

fn write_result(finished: &AnalysisReport, directory: &Path) -> Result<()> {
    write_json_by_line(&directory.join(RESULT_FILE), &finished.analysis)
}

fn write_page(finished: &AnalysisReport, directory: &Path) -> Result<()> {
    write_json_lines(&directory.join(CHART_SERIES_FILE), &finished.chart_series)?;
    write_text(&directory.join("report.html"), &html::html(finished))
}

/// Runs two functions in parallel.
fn run_in_parallel(
    one: impl FnOnce() -> Result<()> + Send,
    other: impl FnOnce() -> Result<()>,
) -> Result<()> {
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

fn write_json_by_line(path: &Path, value: &impl Serialize) -> Result<()> {
    let write = || -> std::io::Result<()> {
        let mut file = BufWriter::with_capacity(WRITE_BUFFER_LEN, File::create(path)?);
        value.serialize(&mut Serializer::with_formatter(
            &mut file,
            LineFormatter::default(),
        ))?;
        file.write_all(b"\n")?;
        file.flush()
    };
    write().with_context(|| cannot_write(path))
}

fn write_json_lines(path: &Path, lines: &[ChartSeries]) -> Result<()> {
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
fn take_chart_series(flows: &mut [Flow], finest_ns: u64) -> Vec<ChartSeries> {
    let taken: Vec<ChartData> = flows.iter_mut().flat_map(take_chart_data).collect();
    let lengths = |of: fn(&ChartData) -> usize| taken.iter().map(of).collect::<Vec<usize>>();
    let bins = bins_per_direction(&lengths(|one| one.course.bins.len()));
    let marks = events_max(&lengths(|one| {
        packet_windows::event_count(&one.packet_windows)
    }));
    let drawn = taken.iter().map(|one| ChartSeries {
        packet_windows: packet_windows::pack(&one.packet_windows, marks),
        ..ChartSeries::new((one.flow, one.upload), &one.course, finest_ns, bins)
    });
    drawn.collect()
}

/// Chart data of a direction, moved out of its flow.
struct ChartData {
    flow: u64,
    upload: bool,
    course: TimeSeries,
    packet_windows: Vec<PacketWindow>,
}

fn take_chart_data(flow: &mut Flow) -> Vec<ChartData> {
    let number = flow.number;
    let directions = [(true, &mut flow.upload), (false, &mut flow.download)];
    let taken = directions.map(|(upload, direction)| ChartData {
        flow: number,
        upload,
        course: mem::take(&mut direction.time_series),
        packet_windows: mem::take(&mut direction.packet_windows),
    });
    taken
        .into_iter()
        .filter(|one| has_chart(&one.course))
        .collect()
}

/// Returns the maximum number of bins of a direction that keeps the total within the limit.
fn bins_per_direction(lengths: &[usize]) -> usize {
    packet_windows::fair_limit(lengths, BINS_MIN..=BINS_MAX, BINS_SUM_MAX)
}

/// Returns whether a direction sends enough for a chart: data, and more than one bin.
fn has_chart(course: &TimeSeries) -> bool {
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
fn set_joint_verdicts(flows: &mut [Flow], pairs: &[TwoPointComparison]) {
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
    use crate::report::{fixtures, result::analysis_report::DIRECTORY_HINT};
    use longhaul_command::exit::Refusal;
    use longhaul_flow::bin::Bin;

    fn plan(directory: Option<&Path>) -> OutputConfig {
        OutputConfig {
            directory: directory.map(Path::to_owned),
            widths: vec![Time::from_nanos(1_000_000)],
            formats: vec![Format::Csv],
            flow_limits: FlowLimits {
                charted: 1,
                listed: 2,
            },
            bins_max: 0,
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
            let plan = OutputConfig {
                bins_max: bins_kept,
                formats: Vec::new(),
                ..plan(None)
            };
            write_from_two_threads(plan)
                .unwrap()
                .bins
                .map(|bins| bins.len())
        };
        assert_eq!(kept(all), Some(all));
        assert_eq!(kept(all - 1), None);
        assert_eq!(kept(0), None);
    }

    /// Writes bins and flows from two threads in parallel.
    fn write_from_two_threads(plan: OutputConfig) -> Result<AnalysisReport> {
        let output = Output::create(plan).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..2 {
                let mut writer = output.writer();
                scope.spawn(move || {
                    for n in 0..3 * ROWS_MAX as u64 {
                        writer.row(0, row(thread, n));
                    }
                    writer.flow(Box::new(fixtures::long_flow(thread)));
                    writer.flow(Box::new(fixtures::short_flow(10 + thread)));
                });
            }
        });
        output.finish(CaptureInfo::default())
    }

    #[test]
    fn writes_results_of_all_threads() {
        let directory = tempfile::tempdir().unwrap();
        let finished = write_from_two_threads(plan(Some(directory.path()))).unwrap();
        let read = |name: &str| fs::read_to_string(directory.path().join(name)).unwrap();
        let result: Analysis = serde_json::from_str(&read("result.json")).unwrap();
        assert_eq!(result, finished.analysis);
        assert_eq!(result.flows.len(), 2);
        assert_eq!(result.remainder.flows, 2);
        assert_eq!(result.other_files, ["series-1ms.csv", "flows.jsonl"]);
        assert_eq!(read("flows.jsonl").lines().count(), 2);
        assert_eq!(read("series-1ms.csv").lines().count(), 1 + 6 * ROWS_MAX);
        let courses: Vec<ChartSeries> = read(CHART_SERIES_FILE)
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        assert_eq!(courses, finished.chart_series);
        assert_eq!(courses.len(), 1, "of the one flow that is drawn");
        assert!(!read("result.json").contains("\"course\""));
        assert_eq!(AnalysisReport::read(directory.path()).unwrap(), finished);
    }

    #[test]
    fn limits_bins_per_direction_when_there_are_many() {
        assert_eq!(bins_per_direction(&[4096]), 4096);
        assert_eq!(bins_per_direction(&[4096; 10]), 4096);
        assert_eq!(bins_per_direction(&[4096; 11]), 2048);
        let one_large = [&[4096][..], &[100; 40]].concat();
        assert_eq!(bins_per_direction(&one_large), 4096);
        assert_eq!(bins_per_direction(&[4096; 2000]), BINS_MIN);
    }

    #[test]
    fn refuses_unreadable_result_with_hint() {
        let directory = tempfile::tempdir().unwrap();
        let said = || {
            let error = AnalysisReport::read(directory.path()).unwrap_err();
            assert!(matches!(error.downcast_ref(), Some(Refusal::Usage(_))));
            error.to_string()
        };
        assert!(said().contains("result.json: No such file"), "{}", said());
        let result = directory.path().join(RESULT_FILE);
        fs::write(&result, "{}").unwrap();
        assert!(said().contains("missing field"), "{}", said());
        let newer = Analysis {
            schema: SCHEMA + 1,
            ..Analysis::default()
        };
        fs::write(&result, serde_json::to_string(&newer).unwrap()).unwrap();
        assert!(
            said().contains("schema 2") && said().ends_with(DIRECTORY_HINT),
            "{}",
            said()
        );
    }

    #[test]
    fn returns_result_without_directory() {
        let finished = write_from_two_threads(plan(None)).unwrap();
        assert_eq!(finished.analysis.flows.len(), 2);
        assert!(finished.analysis.other_files.is_empty());
    }

    #[test]
    fn reports_full_disk_at_the_end() {
        let directory = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("/dev/full", directory.path().join("series-1ms.csv")).unwrap();
        let error = write_from_two_threads(plan(Some(directory.path()))).unwrap_err();
        let said = format!("{error:#}");
        assert!(
            said.contains("series-1ms.csv") && said.contains("No space left"),
            "{said}"
        );
    }
}
