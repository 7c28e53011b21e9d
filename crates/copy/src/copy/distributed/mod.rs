// SPDX-License-Identifier: MIT OR Apache-2.0
//! `longhaul copy --distributed`: distributed copies, in which hosts without a shared file system store a share each.
//!
//! One session runs to or from each host, all at the same time. A session is resumable as in any copy, and finds the data
//! that is at the target. There is no division of work at run time. The host of an entry follows from its name
//! ([`longhaul_scheduling::placement`]), and a source host sends what it has.

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
    protocol::control::{Pass, Task},
};
use aggregator::ProgressAggregator;
use anyhow::{Result, anyhow, bail};
use channel_sink::ChannelSink;
use longhaul_command::{exit::Refusal, threads};
use longhaul_scheduling::placement::Placement;
use std::{sync::mpsc::channel, thread};

/// Share of one host, to copy to it or from it.
struct HostShare {
    /// Index of the host, on the side that has shares.
    host: usize,
    task: Task,
}

/// Copies all shares, and returns the record of the copy.
pub(super) fn run(
    job: &Job<'_>,
    side: DistributedSide,
    monitor: &mut CopyMonitor,
) -> Result<Record> {
    check_hosts(job, side)?;
    // The check of the target creates its directory.
    if side == DistributedSide::Target {
        sharing::check_sources_shared(job)?;
    }
    match side {
        DistributedSide::Source => sharing::check_target_shared(job)?,
        DistributedSide::Target | DistributedSide::Both => sharing::check_target_not_shared(job)?,
    }
    let missing = match side {
        DistributedSide::Source => merged_scan::scan_hosts(job, monitor)?,
        DistributedSide::Target | DistributedSide::Both => 0,
    };
    let mut aggregator = ProgressAggregator::new(monitor, job.config.pair_count());
    copy_shares(job, side, &shares(job, side), &mut aggregator)?;
    if side == DistributedSide::Source {
        copy_directory_metadata(job, &mut aggregator)?;
    }
    Ok(aggregator.finish(missing))
}

/// Checks that the number of hosts and the options suit the side with shares.
fn check_hosts(job: &Job<'_>, side: DistributedSide) -> Result<()> {
    let sources = job.config.sources.first().map_or(0, Vec::len);
    let targets = job.config.target.len();
    let why = match side {
        DistributedSide::Target if targets < 2 => {
            "--distributed target needs several hosts to copy to: b1,b2:PATH"
        }
        DistributedSide::Source if sources < 2 => {
            "--distributed source needs several hosts to copy from: a1,a2:PATH"
        }
        DistributedSide::Source if job.config.options.delete => {
            "no host of --distributed source knows what the others have, so nothing can be deleted: leave --delete out"
        }
        DistributedSide::Both if sources < 2 || sources != targets => {
            "--distributed both needs the same number of hosts on both sides: a1,a2:PATH b1,b2:PATH"
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

/// Returns the pair of hosts for a session. The host with the share is the same in each session. The host of the other
/// side is the next one each time, if there are several.
fn pair<'a>(job: &'a Job<'_>, side: DistributedSide, host: usize, number: usize) -> HostPair<'a> {
    match side {
        DistributedSide::Source => job.pair_of(host, host + number),
        DistributedSide::Target => job.pair_of(host + number, host),
        DistributedSide::Both => job.pair_of(host, host),
    }
}

/// Copies shares at the same time. A failure of one does not stop the others.
fn copy_shares(
    job: &Job<'_>,
    side: DistributedSide,
    shares: &[HostShare],
    aggregator: &mut ProgressAggregator<'_>,
) -> Result<()> {
    let (to, from) = channel();
    let failed = thread::scope(|scope| {
        let threads: Vec<_> = shares
            .iter()
            .map(|share| {
                let mut sink = ChannelSink::new(share.host, to.clone());
                threads::spawn_scoped(scope, move || {
                    let pair = |number| pair(job, side, share.host, number);
                    let result = run_sessions(job, pair, share.task, &mut sink);
                    result.map_err(|error| (pair(0).to_string(), error))
                })
            })
            .collect();
        drop(to);
        aggregator.follow(&from);
        let mut failed = Vec::new();
        for thread in threads {
            match thread.map(thread::ScopedJoinHandle::join) {
                Ok(Ok(Ok(()))) => {}
                Ok(Ok(Err(failure))) => failed.push(failure),
                Ok(Err(panic)) => std::panic::resume_unwind(panic),
                Err(error) => failed.push(("this machine".to_owned(), error)),
            }
        }
        failed
    });
    combine_results(failed, shares.len(), aggregator)
}

/// Returns the first failure as the error, and prints the others. The result counts as a refusal only if all hosts
/// failed: otherwise something was copied.
fn combine_results(
    failed: Vec<(String, anyhow::Error)>,
    all: usize,
    aggregator: &ProgressAggregator<'_>,
) -> Result<()> {
    let refused = failed.len() == all;
    let mut failed = failed.into_iter();
    let Some((pair, error)) = failed.next() else {
        return Ok(());
    };
    for (pair, error) in failed {
        aggregator.print_note(&format!("{pair}: {error:#}"));
    }
    if refused && error.is::<Refusal>() {
        Err(Refusal::usage(format!("{pair}: {error:#}")))
    } else {
        bail!("{pair}: {error:#}")
    }
}

/// Copies the metadata of directories, after all writes in them.
fn copy_directory_metadata(job: &Job<'_>, aggregator: &mut ProgressAggregator<'_>) -> Result<()> {
    for host in 0..job.config.sources.first().map_or(0, Vec::len) {
        aggregator.start_pass(host);
        let task = Task::Gather(Pass::Last);
        // A refusal in this pass is an ordinary error, because something was copied before.
        let copied = copy_shares(
            job,
            DistributedSide::Source,
            &[HostShare { host, task }],
            aggregator,
        );
        copied.map_err(|error| anyhow!("{error:#}"))?;
    }
    Ok(())
}
