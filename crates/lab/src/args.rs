// SPDX-License-Identifier: MIT OR Apache-2.0
//! The command line of `longhaul lab`.

use clap::Subcommand;
use longhaul_results::compare::{Config, describe_significance_rule};
use std::{ffi::OsString, path::PathBuf};

/// Arguments of `longhaul lab`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

const EXAMPLES: &str = "\
Examples:
  longhaul lab run nec-dvd --out /tmp/dvd
      one scenario, results and report in /tmp/dvd
  longhaul lab run nec-dvd --out /tmp/dvd --set size=4.7GB
      one scenario with the paper's own file size
  longhaul lab run nec-dvd --out /tmp/dvd --quick --filter relays=true
      a short run of one cell
  longhaul lab run today-fast --out /tmp/fast --filter rate=100gbit
      under simulated time, at a rate that no testbed has
  longhaul lab run simulate --out /tmp/hour --set rate=10gbit --set delay=175ms --set duration=1h
      one flow over one path under simulated time
  longhaul lab run --all --out /tmp/lab --repetitions 1
      every built-in scenario once, and one page about all; the same command resumes it
  longhaul lab validate my-scenario.toml
      check that it is valid and that this machine can run it

The lab runs in its own namespaces. The kernel removes them when the lab ends or is killed.
The manual explains scenario files.";

/// Subcommands of `longhaul lab`.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run scenarios; write result.json, report.html and raw records
    Run(RunArgs),
    /// List the built-in scenarios
    List,
    /// Print a scenario's file
    Show(ShowArgs),
    /// Check a scenario, and that this machine can run it, without running it
    Validate(ValidateArgs),
    /// Compare two results side by side and mark the significant differences
    Compare(CompareArgs),
    /// Rewrite report.html from a directory's result.json, and index.html over several
    Report(ReportArgs),
    /// Run a command of a scenario, end all processes that it started, and report its resource use
    #[command(hide = true)]
    Contain(ContainArgs),
}

/// Arguments of `longhaul lab contain`, which the lab starts itself for commands of flows.
#[derive(Debug, clap::Args)]
pub(crate) struct ContainArgs {
    /// File for the exit status and the resource use of the command, as JSON
    #[arg(long, value_name = "FILE")]
    pub(crate) report: PathBuf,
    /// Program and arguments of the command
    #[arg(last = true, required = true)]
    pub(crate) words: Vec<OsString>,
}

/// Arguments of `longhaul lab validate`.
#[derive(Debug, clap::Args)]
pub(crate) struct ValidateArgs {
    /// Name of a built-in scenario, or path of a file
    #[arg(value_name = "SCENARIO")]
    pub(crate) scenario: String,
}

/// Arguments of `longhaul lab show`.
#[derive(Debug, clap::Args)]
pub(crate) struct ShowArgs {
    /// Name of a built-in scenario, or path of a file
    #[arg(value_name = "SCENARIO")]
    pub(crate) scenario: String,
}

/// Arguments of `longhaul lab compare`.
#[derive(Debug, clap::Args)]
#[command(after_help = compare_help())]
pub(crate) struct CompareArgs {
    /// Directory that a run wrote, or its result.json
    #[arg(value_name = "BASELINE")]
    baseline: PathBuf,
    /// Directory or result.json to compare with the baseline
    #[arg(value_name = "CANDIDATE")]
    candidate: PathBuf,
    /// Print every metric of every cell, not only the main one and those that differ
    #[arg(long)]
    all: bool,
    /// Print the comparison as JSON
    #[arg(long)]
    json: bool,
    /// Also write the comparison as one offline page
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

fn compare_help() -> String {
    let rule = describe_significance_rule();
    format!(
        "\
A metric of the candidate is marked as better or worse than the baseline's if the difference is
significant. The rule depends on the number of runs:
  {}

Examples:
  longhaul lab compare out/before out/after
  longhaul lab compare out/before out/after --html compare.html",
        rule.join("\n  ")
    )
}

impl From<CompareArgs> for Config {
    fn from(args: CompareArgs) -> Self {
        Self {
            results: [args.baseline, args.candidate],
            all: args.all,
            json: args.json,
            html: args.html,
        }
    }
}

/// Arguments of `longhaul lab report`.
#[derive(Debug, clap::Args)]
pub(crate) struct ReportArgs {
    /// Directories that runs wrote, or one that holds such directories
    #[arg(value_name = "DIR", required = true)]
    pub(crate) directories: Vec<PathBuf>,
    /// File for the page over several results [default: index.html in the one DIR, else here]
    #[arg(long, value_name = "FILE")]
    pub(crate) index: Option<PathBuf>,
}

/// Arguments of `longhaul lab run`.
#[derive(Debug, clap::Args)]
pub(crate) struct RunArgs {
    /// Name of a built-in scenario, or path of a file. Several run one after the other, and
    /// DIR/index.html lists their results. Of several, those whose result is up to date are skipped
    #[arg(value_name = "SCENARIO", required_unless_present = "all")]
    pub(crate) scenarios: Vec<String>,
    /// Run all built-in scenarios. This takes about four hours with --repetitions 1, and twelve with
    /// the scenarios' own numbers
    #[arg(long, conflicts_with = "scenarios")]
    pub(crate) all: bool,
    /// Directory for result.json, report.html and raw records; created if absent. With several
    /// scenarios, each has its own DIR/NAME. An interrupted run there is resumed if scenario and
    /// options are the same. A finished result of a single scenario is replaced
    #[arg(long, value_name = "DIR")]
    pub(crate) out: PathBuf,
    /// Run the same cells, shortened as the scenario's `quick` table says
    #[arg(long)]
    pub(crate) quick: bool,
    /// Change a parameter of the scenario; repeatable
    #[arg(long, value_name = "NAME=VALUE", value_parser = pair)]
    pub(crate) set: Vec<(String, String)>,
    /// Run only the cells (combinations of varied values) with this value, or with one of several
    /// values (A|B); repeatable
    #[arg(long, value_name = "NAME=VALUE", value_parser = pair)]
    pub(crate) filter: Vec<(String, String)>,
    /// Number of runs of each cell, without warm-up runs [default: the scenario's]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) repetitions: Option<u32>,
    /// Seed of the order of runs, the file contents and the links [default: the scenario's]
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
    /// Run all cells under simulated time instead of on a testbed. This needs no root, takes little
    /// time and allows any link rate. Only flows of iperf3 can be simulated, with relays and one
    /// shared bottleneck
    #[arg(long)]
    pub(crate) simulate: bool,
    /// Start again, even if an interrupted run could be resumed or a result is up to date
    #[arg(long)]
    pub(crate) restart: bool,
    /// Print result.json on standard output instead of the table
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `longhaul demo`.
#[derive(Debug, clap::Args)]
#[command(after_help = DEMO_EXAMPLES)]
pub struct DemoArgs {
    /// Directory for the results and the report; created if absent
    #[arg(long, value_name = "DIR", default_value = "longhaul-demo")]
    pub(crate) out: PathBuf,
    /// Shorter downloads: a minute instead of two or three
    #[arg(long)]
    pub(crate) quick: bool,
    /// Change a parameter of the scenario `demo`; repeatable
    #[arg(long, value_name = "NAME=VALUE", value_parser = pair)]
    pub(crate) set: Vec<(String, String)>,
}

const DEMO_EXAMPLES: &str = "\
Examples:
  longhaul demo
      downloads by curl from nginx over an emulated path of 10 Gbit/s and 26 ms, without and with
      two relays: three clients, a clean cable and one that loses packets; a report of one page
  longhaul demo --set size=4.7GB
      with the first paper's own file size, in some 20 minutes
  longhaul demo --set cable_cc=bbr
      with BBR between the relays

The demo runs in its own namespaces. The kernel removes them when it ends or is killed. It needs
nginx, curl and nft.";

fn pair(text: &str) -> Result<(String, String), String> {
    let (name, value) = text
        .split_once('=')
        .ok_or("expected NAME=VALUE, for example size=4.7GB")?;
    Ok((name.trim().to_owned(), value.trim().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Args as _;

    #[test]
    fn help_fits_into_100_columns() {
        let mut lab = Args::augment_args(clap::Command::new("lab").term_width(100));
        lab.build();
        let commands = lab.get_subcommands_mut();
        let helps = commands.map(|command| command.render_help().to_string());
        let helps: Vec<String> = helps.chain([EXAMPLES.to_owned()]).collect();
        let mut lines = helps.iter().flat_map(|help| help.lines());
        assert_eq!(lines.find(|line| line.chars().count() > 100), None);
    }
}
