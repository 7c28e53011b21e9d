// SPDX-License-Identifier: MIT OR Apache-2.0
//! What was asked for, checked.

use super::args::Args;
use crate::{connection_filter::Filter, decp::model::Settings};
use anyhow::Result;
use longhaul_command::exit::Refusal;
use longhaul_linux::{
    cgroup,
    netns::{self, Netns},
};
use longhaul_units::Time;
use std::path::{Path, PathBuf};

/// A run that can begin.
#[derive(Debug)]
pub(super) struct Config {
    pub(super) filter: Filter,
    pub(super) cgroup: Option<PathBuf>,
    /// None is the one that this process is in.
    pub(super) netns: Option<Netns>,
    pub(super) interval: Time,
    pub(super) settings: Settings,
    pub(super) dry_run: bool,
    pub(super) duration: Option<Time>,
    pub(super) json: bool,
}

impl Config {
    pub(super) fn check(args: &Args) -> Result<Self> {
        let filter = Filter::of_flag(&args.filter);
        let headroom = args.headroom.get();
        if !(0.02..=1.0).contains(&headroom) {
            let text = args.headroom.exact();
            return Err(Refusal::usage(format!(
                "--headroom {text} is not 2% to 100%"
            )));
        }
        if !(Time::from_millis(20)..=Time::from_secs(10)).contains(&args.interval) {
            let text = args.interval.exact();
            return Err(Refusal::usage(format!(
                "--interval {text} is not 20ms to 10s"
            )));
        }
        args.cgroup.as_deref().map_or(Ok(()), is_cgroup)?;
        Ok(Self {
            filter: filter?,
            cgroup: args.cgroup.clone(),
            netns: args.netns.as_deref().map(open).transpose()?,
            interval: args.interval,
            settings: Settings {
                headroom: args.headroom,
                floor_segments: args.floor,
                hold: args.hold,
                refill: args.refill,
            },
            dry_run: args.dry_run,
            duration: args.duration,
            json: args.json,
        })
    }
}

fn is_cgroup(path: &Path) -> Result<()> {
    cgroup::identifiers(path).map(drop).map_err(|error| {
        Refusal::usage(format!(
            "--cgroup {}: {error}; name a directory below a cgroup2 mount, as /sys/fs/cgroup/user.slice",
            path.display()
        ))
    })
}

fn open(name: &str) -> Result<Netns> {
    Netns::named(name).map_err(|error| {
        Refusal::usage(format!(
            "--netns {name:?} in {}: {error}; ip netns list shows what there is",
            netns::DIRECTORY
        ))
    })
}
