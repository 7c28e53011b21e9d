// SPDX-License-Identifier: MIT OR Apache-2.0
//! Output of an analysis: receives its results from all threads and writes them to a directory.

use super::page::{html, two_point};
use super::result::{
    Analysis, CaptureFile, CapturePointInfo, SCHEMA,
    analysis_report::{AnalysisReport, CHART_SERIES_FILE, RESULT_FILE},
    chart_series::ChartSeries,
    largest_flows::{FlowLimits, LargestFlows, payload},
    largest_udp_flows::LargestUdpFlows,
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

/// Maximum number of bins of a direction in `time_series.jsonl` and in the page.
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
    pub(crate) udp_flows: LargestUdpFlows,
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
    /// First error; after it nothing is written.
    error: Option<anyhow::Error>,
}

impl Output {
    /// Creates the directory and its files. Files of an earlier analysis are overwritten.
    ///
    /// # Errors
    /// The directory or a file cannot be created.
    pub(crate) fn create(config: OutputConfig) -> Result<Self> {
        let (lines, series) = match &config.directory {
            Some(directory) => {
                fs::create_dir_all(directory).with_context(|| cannot_write(directory))?;
                let lines = create(&directory.join(REMAINDER_FILE))?;
                let series =
                    series::SeriesFiles::create(directory, &config.widths, &config.formats)?;
                (Some(lines), series)
            }
            None => (None, series::SeriesFiles::disabled(config.widths.len())),
        };
        let state = OutputState {
            largest: LargestFlows::new(config.flow_limits, lines),
            series,
            error: None,
        };
        Ok(Self {
            config,
            state: Mutex::new(state),
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
        let is_written = !self.config.formats.is_empty() && self.config.directory.is_some();
        Writer {
            output: self,
            rows: vec![
                Vec::new();
                if is_written {
                    self.config.widths.len()
                } else {
                    0
                }
            ],
        }
    }

    /// Returns whether writing failed. The analysis can stop then; [`Output::finish`] returns the error.
    pub(crate) fn has_failed(&self) -> bool {
        self.with_state(|state| state.error.is_some())
    }

    /// Closes the files, and writes `result.json`, `time_series.jsonl` and `report.html`. All writers must be dropped
    /// before.
    ///
    /// # Errors
    /// The first file that could not be written, now or before.
    pub(crate) fn finish(self, info: CaptureInfo) -> Result<AnalysisReport> {
        let Self { config, state, .. } = self;
        let OutputState {
            largest,
            series,
            error,
        } = state.into_inner().unwrap_or_else(PoisonError::into_inner);
        if let Some(error) = error {
            return Err(error);
        }
        let mut other_files = series.names();
        let (mut flows, remainder) = largest.finish().context("cannot write flows.jsonl")?;
        set_joint_verdicts(&mut flows, &info.two_point_comparisons);
        let finest_ns = config.widths.iter().map(|width| width.as_nanos()).min();
        let chart_series = take_chart_series(&mut flows, finest_ns.unwrap_or(u64::MAX));
        match (&config.directory, remainder.flows) {
            (Some(_), 1..) => other_files.push(REMAINDER_FILE.to_owned()),
            (Some(directory), 0) => remove(&directory.join(REMAINDER_FILE))?,
            (None, _) => {}
        }
        let mut comparisons = info.two_point_comparisons;
        comparisons.iter_mut().for_each(two_point::merge_delay_bins);
        let (udp_flows, udp_remainder) = info.udp_flows.finish();
        let analysis = Analysis {
            schema: SCHEMA,
            longhaul: longhaul_command::release().to_owned(),
            bins_ns: config.widths.iter().map(|width| width.as_nanos()).collect(),
            files: info.files,
            capture_points: info.capture_points,
            flows,
            two_point_comparisons: comparisons,
            remainder,
            udp_flows,
            udp_remainder,
            other_files,
        };
        let report = AnalysisReport {
            analysis,
            chart_series,
        };
        let directory = config.directory.as_deref();
        let write_result_file =
            || directory.map_or(Ok(()), |directory| write_result(&report, directory));
        let write_other_files = || {
            series.finish()?;
            directory.map_or(Ok(()), |directory| write_page(&report, directory))
        };
        match config.threads {
            1 => write_result_file().and_then(|()| write_other_files())?,
            _ => run_in_parallel(write_result_file, write_other_files)?,
        }
        Ok(report)
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
        self.output.with_state(|state| {
            state.write_unless_failed(|state| state.series.write(width, rows));
        });
        rows.clear();
    }

    /// Writes a bin of the width with this index.
    pub(crate) fn write_row(&mut self, width: usize, row: Row) {
        let Some(rows) = self.rows.get_mut(width) else {
            return;
        };
        rows.push(row);
        if rows.len() == ROWS_MAX {
            self.flush(width);
        }
    }

    /// Writes a finished flow.
    pub(crate) fn write_flow(&mut self, flow: Box<Flow>) {
        let write =
            |state: &mut OutputState| state.largest.add(flow).context("cannot write flows.jsonl");
        let payload_min = self.output.with_state(|state| {
            state.write_unless_failed(write);
            state.largest.charted_payload_min()
        });
        self.output
            .charted_payload_min
            .store(payload_min, Ordering::Relaxed);
    }
}

impl Drop for Writer<'_> {
    fn drop(&mut self) {
        (0..self.rows.len()).for_each(|width| self.flush(width));
    }
}

fn write_result(report: &AnalysisReport, directory: &Path) -> Result<()> {
    write_json_by_line(&directory.join(RESULT_FILE), &report.analysis)
}

fn write_page(report: &AnalysisReport, directory: &Path) -> Result<()> {
    write_json_lines(&directory.join(CHART_SERIES_FILE), &report.chart_series)?;
    write_text(&directory.join("report.html"), &html::html(report))
}

/// Runs two functions in parallel.
fn run_in_parallel(
    data: impl FnOnce() -> Result<()> + Send,
    other: impl FnOnce() -> Result<()>,
) -> Result<()> {
    std::thread::scope(|scope| {
        let data = scope.spawn(data);
        let other = other();
        let data = data
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        data.and(other)
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
    let chart_data: Vec<ChartData> = flows.iter_mut().flat_map(take_chart_data).collect();
    let lengths = |of: fn(&ChartData) -> usize| chart_data.iter().map(of).collect::<Vec<usize>>();
    let bins = bins_per_direction(&lengths(|data| data.time_series.bins.len()));
    let events_max = events_max(&lengths(|data| {
        packet_windows::event_count(&data.packet_windows)
    }));
    let all_series = chart_data.iter().map(|data| ChartSeries {
        packet_windows: packet_windows::pack(&data.packet_windows, events_max),
        ..ChartSeries::new(data.flow, data.upload, &data.time_series, finest_ns, bins)
    });
    all_series.collect()
}

/// Chart data of a direction, moved out of its flow.
struct ChartData {
    flow: u64,
    upload: bool,
    time_series: TimeSeries,
    packet_windows: Vec<PacketWindow>,
}

fn take_chart_data(flow: &mut Flow) -> Vec<ChartData> {
    let number = flow.number;
    let directions = [(true, &mut flow.upload), (false, &mut flow.download)];
    let chart_data = directions.map(|(upload, direction)| ChartData {
        flow: number,
        upload,
        time_series: mem::take(&mut direction.time_series),
        packet_windows: mem::take(&mut direction.packet_windows),
    });
    chart_data
        .into_iter()
        .filter(|data| has_chart(&data.time_series))
        .collect()
}

/// Returns the maximum number of bins of a direction that keeps the total within the limit.
fn bins_per_direction(lengths: &[usize]) -> usize {
    packet_windows::fair_limit(lengths, BINS_MIN..=BINS_MAX, BINS_SUM_MAX)
}

/// Returns whether a direction sends enough for a chart: data, and more than one bin.
fn has_chart(time_series: &TimeSeries) -> bool {
    time_series.bins.len() > 1 && time_series.bins.iter().any(|bin| bin.data_bytes > 0)
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
    let indexed: Vec<_> = pairs
        .iter()
        .filter_map(|pair| Some((pair, [index(pair.left)?, index(pair.right)?])))
        .collect();
    for (pair, indices) in indexed {
        if let Ok([left, right]) = flows.get_disjoint_mut(indices) {
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

    fn config(directory: Option<&Path>) -> OutputConfig {
        OutputConfig {
            directory: directory.map(Path::to_owned),
            widths: vec![Time::from_nanos(1_000_000)],
            formats: vec![Format::Csv],
            flow_limits: FlowLimits {
                charted: 1,
                listed: 2,
            },
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

    /// Writes bins and flows from two threads in parallel.
    fn write_from_two_threads(config: OutputConfig) -> Result<AnalysisReport> {
        let output = Output::create(config).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..2 {
                let mut writer = output.writer();
                scope.spawn(move || {
                    for n in 0..3 * ROWS_MAX as u64 {
                        writer.write_row(0, row(thread, n));
                    }
                    writer.write_flow(Box::new(fixtures::long_flow(thread)));
                    writer.write_flow(Box::new(fixtures::short_flow(10 + thread)));
                });
            }
        });
        output.finish(CaptureInfo::default())
    }

    #[test]
    fn writes_results_of_all_threads() {
        let directory = tempfile::tempdir().unwrap();
        let report = write_from_two_threads(config(Some(directory.path()))).unwrap();
        let read = |name: &str| fs::read_to_string(directory.path().join(name)).unwrap();
        let result: Analysis = serde_json::from_str(&read("result.json")).unwrap();
        assert_eq!(result, report.analysis);
        assert_eq!(result.flows.len(), 2);
        assert_eq!(result.remainder.flows, 2);
        assert_eq!(result.other_files, ["series-1ms.csv", "flows.jsonl"]);
        assert_eq!(read("flows.jsonl").lines().count(), 2);
        assert_eq!(read("series-1ms.csv").lines().count(), 1 + 6 * ROWS_MAX);
        let chart_series: Vec<ChartSeries> = read(CHART_SERIES_FILE)
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        assert_eq!(chart_series, report.chart_series);
        assert_eq!(chart_series.len(), 1, "of the one flow that is drawn");
        assert!(!read("result.json").contains("\"time_series\""));
        assert_eq!(AnalysisReport::read(directory.path()).unwrap(), report);
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
        let message = || {
            let error = AnalysisReport::read(directory.path()).unwrap_err();
            assert!(matches!(error.downcast_ref(), Some(Refusal::Usage(_))));
            error.to_string()
        };
        assert!(
            message().contains("result.json: No such file"),
            "{}",
            message()
        );
        let result = directory.path().join(RESULT_FILE);
        fs::write(&result, "{}").unwrap();
        assert!(message().contains("missing field"), "{}", message());
        let newer = Analysis {
            schema: SCHEMA + 1,
            ..Analysis::default()
        };
        fs::write(&result, serde_json::to_string(&newer).unwrap()).unwrap();
        assert!(
            message().contains("schema 3") && message().ends_with(DIRECTORY_HINT),
            "{}",
            message()
        );
    }

    #[test]
    fn returns_result_without_directory() {
        let report = write_from_two_threads(config(None)).unwrap();
        assert_eq!(report.analysis.flows.len(), 2);
        assert!(report.analysis.other_files.is_empty());
    }

    #[test]
    fn reports_full_disk_at_the_end() {
        let directory = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("/dev/full", directory.path().join("series-1ms.csv")).unwrap();
        let error = write_from_two_threads(config(Some(directory.path()))).unwrap_err();
        let message = format!("{error:#}");
        assert!(
            message.contains("series-1ms.csv") && message.contains("No space left"),
            "{message}"
        );
    }
}
