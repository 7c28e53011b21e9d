// SPDX-License-Identifier: MIT OR Apache-2.0
//! Command line of `longhaul decp`, and its validation.
#![allow(
    rustdoc::broken_intra_doc_links,
    reason = "help texts are printed as they stand"
)]

use super::config::Config;
use crate::{connection_filter::Filter, decp::model::Settings};
use anyhow::Result;
use longhaul_command::exit::Refusal;
use longhaul_linux::{cgroup, netns::Netns};
use longhaul_units::{Ratio, Time};
use std::path::{Path, PathBuf};

const EXAMPLES: &str = "\
Examples:
  32 streams of iperf3, while they run (as root, on the host that sends):
    longhaul decp --filter 'dport 5201'
  What it would do, without touching anything or being root:
    longhaul decp --filter 'dst 10.9.0.0/16 and dport 50000-51000' --dry-run
  Data connections of one GridFTP service, with each sample as a JSON line:
    longhaul decp --filter 'sport 50000-51000' --json \\
        --cgroup /sys/fs/cgroup/system.slice/gridftp.service > decp.jsonl
  A dedicated path, without other traffic:
    longhaul decp --filter 'dport 5201' --slow-start
  Remove caps that an ended run left behind:
    longhaul decp --filter 'dport 5201' --remove-caps

A filter is made of: dport N, sport N, port N (or N-M); dst ADDRESS[/LENGTH], src …, host …; and,
or, not, ( ). dst and dport are the other end of the connection, as ss(8) has them.
It caps the congestion windows of this host's own sockets: run it on the sending host.";

/// Arguments of `longhaul decp`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Connections to balance: 'dport 5201', 'dst 10.0.0.0/8 and not dport 22' …
    #[arg(long, value_name = "FILTER")]
    filter: String,
    /// Only connections of this cgroup (a directory of a cgroup2 file system) and of cgroups below
    /// it
    #[arg(long, value_name = "DIRECTORY")]
    cgroup: Option<PathBuf>,
    /// Network namespace of the connections [default: this one]
    #[arg(long, value_name = "NAMESPACE")]
    netns: Option<String>,
    /// Sampling interval, 20ms to 10s; an eighth of a round trip is best
    #[arg(long, value_name = "TIME", default_value = "50ms")]
    interval: Time,
    /// Standing queue that capped connections keep, as a share of the BDP, 2% to 100%
    #[arg(long, value_name = "SHARE", default_value = "10%")]
    headroom: Ratio,
    /// Smallest cap in segments, 2 to 100000
    #[arg(long, value_name = "SEGMENTS", default_value_t = 10,
          value_parser = clap::value_parser!(u32).range(2..=100_000))]
    cap_min: u32,
    /// Keep caps when all connections have equal rates
    #[arg(long)]
    keep_caps: bool,
    /// Grow windows that losses have reduced, by slow start, up to the equal share. Only for links
    /// without other traffic
    #[arg(long)]
    slow_start: bool,
    /// Only observe, and print what would be capped
    #[arg(long)]
    dry_run: bool,
    /// Remove the caps of the connections, whoever set them, and exit
    #[arg(long, conflicts_with_all = ["dry_run", "keep_caps", "slow_start", "duration", "json"])]
    remove_caps: bool,
    /// End after this time [default: run until a signal]
    #[arg(long, value_name = "TIME")]
    duration: Option<Time>,
    /// Print every sample and the summary as JSON lines
    #[arg(long)]
    json: bool,
}

impl Args {
    /// Validates the arguments.
    pub(super) fn config(&self) -> Result<Config> {
        let filter = Filter::of_flag(&self.filter);
        let headroom = self.headroom.get();
        if !(0.02..=1.0).contains(&headroom) {
            let text = self.headroom.percent();
            let problem = format!("--headroom {text}: want 2% to 100%");
            return Err(Refusal::option("headroom", problem));
        }
        if !(Time::from_millis(20)..=Time::from_secs(10)).contains(&self.interval) {
            let text = self.interval.exact();
            let problem = format!("--interval {text}: want 20ms to 10s");
            return Err(Refusal::option("interval", problem));
        }
        self.cgroup.as_deref().map_or(Ok(()), is_cgroup)?;
        let netns = self.netns.as_deref().map(Netns::named).transpose();
        Ok(Config {
            filter: filter?,
            cgroup: self.cgroup.clone(),
            netns: netns.map_err(Refusal::usage)?,
            interval: self.interval,
            settings: Settings {
                headroom: self.headroom,
                cap_min_segments: self.cap_min,
                keep_caps: self.keep_caps,
                slow_start: self.slow_start,
            },
            dry_run: self.dry_run,
            remove_caps: self.remove_caps,
            duration: self.duration,
            json: self.json,
        })
    }
}

fn is_cgroup(path: &Path) -> Result<()> {
    cgroup::identifiers(path).map(drop).map_err(|error| {
        let problem = format!(
            "--cgroup {}: {error}; name a directory below a cgroup2 mount, as /sys/fs/cgroup/user.slice",
            path.display()
        );
        Refusal::option("cgroup", problem)
    })
}
