// SPDX-License-Identifier: MIT OR Apache-2.0
//! `longhaul copy --apart`: hosts that have no file system in common, and each keep a share of a copy. A conversation to or from
//! each of them, all at once, as any other: it goes on after whatever befell it, and finds what is there. Nobody divides the work:
//! what goes to which host follows from its name ([`longhaul_scheduling::placement`]), and what comes from one, from what it has.

mod aggregator;
mod channel_sink;
mod merged_scan;

use crate::{
    copy::{
        config::DistributedSide,
        progress::{monitor::CopyMonitor, record::Record},
        session::{
            follow::run_sessions,
            job::{HostPair, Job},
            sharing,
        },
    },
    protocol::{
        control::{Pass, Task},
        spread::Placement,
    },
};
use aggregator::ProgressAggregator;
use anyhow::{Result, anyhow, bail};
use channel_sink::ChannelSink;
use longhaul_command::{exit::Refusal, threads};
use std::{sync::mpsc::channel, thread};

/// What one host gets, or what it has.
struct HostShare {
    /// Of the hosts of the side that has shares, which.
    host: usize,
    task: Task,
}

/// Copies all shares; how it all stands then.
pub(super) fn run(
    job: &Job<'_>,
    side: DistributedSide,
    hearing: &mut CopyMonitor,
) -> Result<Record> {
    check_hosts(job, side)?;
    match side {
        DistributedSide::Source => sharing::check_target_shared(job)?,
        DistributedSide::Target | DistributedSide::Both => sharing::check_target_not_shared(job)?,
    }
    if side == DistributedSide::Target {
        sharing::check_sources_shared(job)?;
    }
    let missing = match side {
        DistributedSide::Source => merged_scan::scan_hosts(job, hearing)?,
        DistributedSide::Target | DistributedSide::Both => 0,
    };
    let mut shown = ProgressAggregator::new(hearing, job.config.pair_count());
    copy_shares(job, side, &shares(job, side), &mut shown)?;
    if side == DistributedSide::Source {
        copy_directory_metadata(job, &mut shown)?;
    }
    Ok(shown.finish(missing))
}

fn check_hosts(job: &Job<'_>, side: DistributedSide) -> Result<()> {
    let sources = job.config.sources.first().map_or(0, Vec::len);
    let targets = job.config.target.len();
    let why = match side {
        DistributedSide::Target if targets < 2 => {
            "--apart target wants several hosts to copy to: b1,b2:PATH"
        }
        DistributedSide::Source if sources < 2 => {
            "--apart source wants several hosts to copy from: a1,a2:PATH"
        }
        DistributedSide::Source if job.config.options.delete => {
            "no host of --apart source knows what the others have, so nothing can be deleted: leave --delete out"
        }
        DistributedSide::Both if sources < 2 || sources != targets => {
            "--apart both wants as many hosts on either side: a1,a2:PATH b1,b2:PATH"
        }
        _ => return Ok(()),
    };
    Err(Refusal::usage(why))
}

fn shares(job: &Job<'_>, side: DistributedSide) -> Vec<HostShare> {
    let hosts = match side {
        DistributedSide::Target => job.config.target.len(),
        DistributedSide::Source | DistributedSide::Both => {
            job.config.sources.first().map_or(0, Vec::len)
        }
    };
    let ranks = job.target_ranks();
    let task = |host: usize| match side {
        DistributedSide::Source => Task::Gather(Pass::Data),
        DistributedSide::Both => Task::Pieces,
        DistributedSide::Target => Task::Spread(Placement {
            host: ranks[host],
            hosts: hosts as u16,
            stripe: job.config.stripe.map(longhaul_units::Bytes::get),
        }),
    };
    let share = |host| HostShare {
        host,
        task: task(host),
    };
    (0..hosts).map(share).collect()
}

/// Who has a share is the same at each try; the other one, if there are several, is another.
fn pair<'a>(job: &'a Job<'_>, side: DistributedSide, host: usize, number: usize) -> HostPair<'a> {
    match side {
        DistributedSide::Source => job.pair_of(host, host + number),
        DistributedSide::Target => job.pair_of(host + number, host),
        DistributedSide::Both => job.pair_of(host, host),
    }
}

/// All of them at the same time. What one can't, the others do all the same.
fn copy_shares(
    job: &Job<'_>,
    side: DistributedSide,
    shares: &[HostShare],
    shown: &mut ProgressAggregator<'_>,
) -> Result<()> {
    let (to, from) = channel();
    let failed = thread::scope(|scope| {
        let threads: Vec<_> = shares
            .iter()
            .map(|share| {
                let mut listener = ChannelSink::new(share.host, to.clone());
                threads::spawn_scoped(scope, move || {
                    let pair = |number| pair(job, side, share.host, number);
                    let ended = run_sessions(job, pair, share.task, &mut listener);
                    ended.map_err(|error| (pair(0).to_string(), error))
                })
            })
            .collect();
        drop(to);
        shown.follow(&from);
        let mut failed = Vec::new();
        for thread in threads {
            match thread.map(thread::ScopedJoinHandle::join) {
                Ok(Ok(Ok(()))) => {}
                Ok(Ok(Err(ended))) => failed.push(ended),
                Ok(Err(panic)) => std::panic::resume_unwind(panic),
                Err(error) => failed.push(("this machine".to_owned(), error)),
            }
        }
        failed
    });
    combine_results(failed, shares.len(), shown)
}

/// The first one that failed is the error, the others are said. What some refuse and others have done was not refused before
/// anything was touched.
fn combine_results(
    failed: Vec<(String, anyhow::Error)>,
    all: usize,
    shown: &ProgressAggregator<'_>,
) -> Result<()> {
    let refused = failed.len() == all;
    let mut failed = failed.into_iter();
    let Some((pair, error)) = failed.next() else {
        return Ok(());
    };
    for (pair, error) in failed {
        shown.print_note(&format!("{pair}: {error:#}"));
    }
    match refused && error.is::<Refusal>() {
        true => Err(Refusal::usage(format!("{pair}: {error:#}"))),
        false => bail!("{pair}: {error:#}"),
    }
}

/// Directories get their metadata when nobody writes in them any more.
fn copy_directory_metadata(job: &Job<'_>, shown: &mut ProgressAggregator<'_>) -> Result<()> {
    for host in 0..job.config.sources.first().map_or(0, Vec::len) {
        shown.start_pass(host);
        let task = Task::Gather(Pass::Last);
        // What it refuses now it did not refuse before anything was touched.
        let carried = copy_shares(
            job,
            DistributedSide::Source,
            &[HostShare { host, task }],
            shown,
        );
        carried.map_err(|error| anyhow!("{error:#}"))?;
    }
    Ok(())
}
