// SPDX-License-Identifier: MIT OR Apache-2.0
//! `longhaul tap analyze`: reads capture files and reports what each flow did.
//!
//! `sources` reads files in order of time and splits them into batches of complete records. The worker pool
//! decodes segments and partitions them into shards, which run `longhaul_flow::Flows`. Their output is collected
//! in the order of the batches and written by `report`.

mod args;
mod batch;
mod config;
mod connections;
mod decode_as;
mod flow_warnings;
mod input;
mod output_directory;
mod pairs;
mod parallel_flows;
mod pipeline;
mod progress;
mod shard;
mod source;
mod sources;
mod summary;
mod udp_line;
mod warnings;
mod worker_pool;

use crate::report::{AnalysisReport, CaptureInfo, Output, OutputConfig};
use anyhow::Result;
pub(crate) use args::Args;
use batch::Batch;
use config::Config;
use longhaul_command::{console::escaped_lines, exit::Refusal, outln};
use output_directory::OutputDirectory;
use pipeline::{AnalysisPipeline, ResultCollector};
use progress::Progress;
use shard::Shard;
use sources::Sources;
use std::path::Path;
use worker_pool::WorkerPool;

/// Runs the command.
pub(crate) fn run(args: &Args) -> Result<()> {
    let config = args.config()?;
    let sources = Sources::open(&config.files)?;
    let output_directory = config
        .out
        .as_deref()
        .map(OutputDirectory::open)
        .transpose()?;
    let unfinished = output_directory.as_ref().map(OutputDirectory::staging_path);
    let report = analyze_sources(sources, &config, unfinished)?;
    output_directory.map_or(Ok(()), OutputDirectory::finish)?;
    print_result(&config, &report)
}

/// Analyses one capture with the default flags; no file is written.
///
/// # Errors
/// The errors of the command.
pub fn capture(file: &Path) -> Result<AnalysisReport> {
    let config = Config::new(
        vec![file.to_owned()],
        config::DEFAULT_BIN,
        config::DEFAULT_MEMORY,
    )?;
    analyze_sources(Sources::open(&config.files)?, &config, None)
}

/// Runs the whole analysis and writes the files that `config` selects to `directory`.
fn analyze_sources(
    sources: Sources,
    config: &Config,
    directory: Option<&Path>,
) -> Result<AnalysisReport> {
    let output = Output::create(OutputConfig {
        directory: directory.map(Path::to_owned),
        widths: config.widths.clone(),
        formats: config.formats.clone(),
        flow_limits: config.flow_limits,
        threads: config.threads,
    })?;
    let info = run_pool(sources, config, &output)?;
    reject_unreadable(&info)?;
    output.finish(info)
}

/// Reads and analyses all files and writes all but the final output.
fn run_pool(sources: Sources, config: &Config, output: &Output) -> Result<CaptureInfo> {
    let progress = Progress::new(sources.len());
    let pipeline = AnalysisPipeline {
        series: !config.formats.is_empty(),
        udp_tunnels: &config.udp_tunnels,
        progress: &progress,
        output,
    };
    let collector = ResultCollector::new(output, config.udp_memory_max_bytes);
    let one_file = sources.is_one_file();
    let shard = || Shard::new(config.settings.clone(), one_file);
    let pool = WorkerPool::new(&pipeline, sources, collector, Batch::default, shard);
    let outcome = pool.run(config.threads);
    progress.finish();
    let (sources, gathered, _) = outcome?;
    Ok(gathered.close(sources))
}

/// Fails if no file has a readable packet. Damaged files are analysed as far as they are readable.
fn reject_unreadable(info: &CaptureInfo) -> Result<()> {
    let is_unreadable =
        |file: &&crate::report::CaptureFile| file.packets == 0 && !file.damages.is_empty();
    if info.files.iter().any(|file| file.packets > 0) {
        return Ok(());
    }
    match info.files.iter().find(is_unreadable) {
        Some(file) => Err(Refusal::usage(format!(
            "{}: no readable packet: {}",
            file.name, file.damages[0].description
        ))),
        None => Ok(()),
    }
}

fn print_result(config: &Config, report: &AnalysisReport) -> Result<()> {
    let analysis = &report.analysis;
    let mut text = if config.json {
        serde_json::to_string(analysis)? + "\n"
    } else {
        escaped_lines(&summary::summary(analysis, config.flow_limits.charted))
    };
    if let (Some(directory), false) = (&config.out, config.json) {
        text += &format!("\nwritten to {}\n", directory.display());
    }
    outln!("{text}");
    Ok(())
}
