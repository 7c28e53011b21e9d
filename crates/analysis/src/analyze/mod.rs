// SPDX-License-Identifier: MIT OR Apache-2.0
//! `longhaul tap analyze`: reads capture files and reports what each flow did.
//!
//! `sources` reads files in order of time and splits them into batches of complete records. The worker pool
//! decodes segments and partitions them into shards, which run `longhaul_flow::Flows`. Their output is collected
//! in the order of the batches and written by `report`.

mod args;
mod config;
mod crew;
mod folder;
mod input;
mod load;
mod pairs;
mod progress;
mod shard;
mod source;
mod sources;
mod summary;
mod work;

use crate::report::{Finished, Output, Plan, Sources as Told};
use anyhow::Result;
pub(crate) use args::Args;
use config::Config;
use crew::Crew;
use folder::Folder;
use load::Load;
use longhaul_command::{console::escaped_lines, exit::Refusal, outln};
use progress::Progress;
use shard::Shard;
use sources::Sources;
use std::path::Path;
use work::{Analyze, Gathered};

/// Runs the command.
pub(crate) fn run(args: &Args) -> Result<()> {
    let config = args.config()?;
    let sources = Sources::open(&config.files)?;
    let folder = config.out.as_deref().map(Folder::open).transpose()?;
    let unfinished = folder.as_ref().map(Folder::unfinished);
    let finished = finished(sources, &config, unfinished, 0)?;
    folder.map_or(Ok(()), Folder::finish)?;
    tell(&config, &finished)
}

/// Analyses one capture with the default flags; no file is written.
///
/// # Errors
/// The errors of the command.
pub(crate) fn capture(file: &Path) -> Result<Finished> {
    capture_with_bins(file, 0)
}

/// Analyses one capture with the default flags and returns its bins of 1 ms, too, if there are not more than
/// `bins_kept`.
///
/// # Errors
/// The errors of the command.
pub fn capture_with_bins(file: &Path, bins_kept: usize) -> Result<Finished> {
    let config = Config::new(vec![file.to_owned()], config::BIN, config::MEMORY)?;
    finished(Sources::open(&config.files)?, &config, None, bins_kept)
}

/// Runs the whole analysis and writes the files that `config` selects to `directory`.
fn finished(
    sources: Sources,
    config: &Config,
    directory: Option<&Path>,
    bins_kept: usize,
) -> Result<Finished> {
    let output = Output::create(Plan {
        directory: directory.map(Path::to_owned),
        widths: config.widths.clone(),
        formats: config.formats.clone(),
        ranks: config.ranks,
        bins_kept,
        threads: config.threads,
    })?;
    let series = !config.formats.is_empty() || bins_kept > 0;
    let told = go(sources, config, &output, series)?;
    refuse_ruins(&told)?;
    output.finish(told)
}

/// Reads and analyses all files and writes all but the final output. `series`: bins are written or kept.
fn go(sources: Sources, config: &Config, output: &Output, series: bool) -> Result<Told> {
    let progress = Progress::new(sources.len());
    let work = Analyze {
        series,
        progress: &progress,
        output,
    };
    let gathered = Gathered::new(output);
    let one_file = sources.is_one_file();
    let shard = || Shard::new(config.settings.clone(), one_file);
    let crew = Crew::new(&work, sources, gathered, Load::default, shard);
    let outcome = crew.go(config.threads);
    progress.end();
    let (sources, gathered, _) = outcome?;
    Ok(gathered.close(sources))
}

/// Fails if no file has a readable packet. Damaged files are analysed as far as they are readable.
fn refuse_ruins(told: &Told) -> Result<()> {
    let ruined = |file: &&crate::report::CaptureFile| file.packets == 0 && !file.damages.is_empty();
    if told.files.iter().any(|file| file.packets > 0) {
        return Ok(());
    }
    match told.files.iter().find(ruined) {
        Some(file) => Err(Refusal::usage(format!(
            "{}: no readable packet: {}",
            file.name, file.damages[0].what
        ))),
        None => Ok(()),
    }
}

fn tell(config: &Config, finished: &Finished) -> Result<()> {
    let analysis = &finished.analysis;
    let mut text = match config.json {
        true => serde_json::to_string(analysis)? + "\n",
        false => escaped_lines(&summary::summary(analysis, config.ranks.drawn)),
    };
    if let (Some(place), false) = (&config.out, config.json) {
        text += &format!("\nwritten to {}\n", place.display());
    }
    outln!("{text}");
    Ok(())
}
