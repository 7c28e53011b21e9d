// SPDX-License-Identifier: MIT OR Apache-2.0
//! `longhaul copy --apart`: hosts that have no file system in common, and each keep a share of a copy. A conversation to or from
//! each of them, all at once, as any other: it goes on after whatever befell it, and finds what is there. Nobody divides the work:
//! what goes to which host follows from its name ([`longhaul_scheduling::placement`]), and what comes from one, from what it has.

mod listener;
mod shares;
mod union;

use crate::{
    copy::{
        config::Apart,
        conversation::{
            follow::converse,
            job::{Job, Pair},
            sharing,
        },
        progress::{hearing::Hearing, record::Record},
    },
    protocol::{
        control::{Pass, Task},
        spread::Placement,
    },
};
use anyhow::{Result, anyhow, bail};
use listener::ShareListener;
use longhaul_command::{exit::Refusal, threads};
use shares::Shares;
use std::{sync::mpsc::channel, thread};

/// What one host gets, or what it has.
struct Share {
    /// Of the hosts of the side that has shares, which.
    host: usize,
    task: Task,
}

/// Copies all shares; how it all stands then.
pub(super) fn run(job: &Job<'_>, side: Apart, hearing: &mut Hearing) -> Result<Record> {
    allow(job, side)?;
    match side {
        Apart::Source => sharing::must_be_shared(job)?,
        Apart::Target | Apart::Both => sharing::must_be_apart(job)?,
    }
    if side == Apart::Target {
        sharing::sources_must_be_shared(job)?;
    }
    let missing = match side {
        Apart::Source => union::survey(job, hearing)?,
        Apart::Target | Apart::Both => 0,
    };
    let mut shown = Shares::new(hearing, job.config.pairs());
    carry(job, side, &shares(job, side), &mut shown)?;
    if side == Apart::Source {
        gather_last(job, &mut shown)?;
    }
    Ok(shown.conclude(missing))
}

fn allow(job: &Job<'_>, side: Apart) -> Result<()> {
    let sources = job.config.sources.first().map_or(0, Vec::len);
    let targets = job.config.target.len();
    let why = match side {
        Apart::Target if targets < 2 => "--apart target wants several hosts to copy to: b1,b2:PATH",
        Apart::Source if sources < 2 => {
            "--apart source wants several hosts to copy from: a1,a2:PATH"
        }
        Apart::Source if job.config.options.delete => {
            "no host of --apart source knows what the others have, so nothing can be deleted: leave --delete out"
        }
        Apart::Both if sources < 2 || sources != targets => {
            "--apart both wants as many hosts on either side: a1,a2:PATH b1,b2:PATH"
        }
        _ => return Ok(()),
    };
    Err(Refusal::usage(why))
}

fn shares(job: &Job<'_>, side: Apart) -> Vec<Share> {
    let hosts = match side {
        Apart::Target => job.config.target.len(),
        Apart::Source | Apart::Both => job.config.sources.first().map_or(0, Vec::len),
    };
    let ranks = job.target_ranks();
    let task = |host: usize| match side {
        Apart::Source => Task::Gather(Pass::Data),
        Apart::Both => Task::Pieces,
        Apart::Target => Task::Spread(Placement {
            host: ranks[host],
            hosts: hosts as u16,
            stripe: job.config.stripe.map(longhaul_units::Bytes::get),
        }),
    };
    let share = |host| Share {
        host,
        task: task(host),
    };
    (0..hosts).map(share).collect()
}

/// Who has a share is the same at each try; the other one, if there are several, is another.
fn pair<'a>(job: &'a Job<'_>, side: Apart, host: usize, number: usize) -> Pair<'a> {
    match side {
        Apart::Source => job.pair_of(host, host + number),
        Apart::Target => job.pair_of(host + number, host),
        Apart::Both => job.pair_of(host, host),
    }
}

/// All of them at the same time. What one can't, the others do all the same.
fn carry(job: &Job<'_>, side: Apart, shares: &[Share], shown: &mut Shares<'_>) -> Result<()> {
    let (to, from) = channel();
    let failed = thread::scope(|scope| {
        let threads: Vec<_> = shares
            .iter()
            .map(|share| {
                let mut listener = ShareListener::new(share.host, to.clone());
                threads::spawn_scoped(scope, move || {
                    let pair = |number| pair(job, side, share.host, number);
                    let ended = converse(job, pair, share.task, &mut listener);
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
    all_done(failed, shares.len(), shown)
}

/// The first one that failed is the error, the others are said. What some refuse and others have done was not refused before
/// anything was touched.
fn all_done(failed: Vec<(String, anyhow::Error)>, all: usize, shown: &Shares<'_>) -> Result<()> {
    let refused = failed.len() == all;
    let mut failed = failed.into_iter();
    let Some((pair, error)) = failed.next() else {
        return Ok(());
    };
    for (pair, error) in failed {
        shown.note(&format!("{pair}: {error:#}"));
    }
    match refused && error.is::<Refusal>() {
        true => Err(Refusal::usage(format!("{pair}: {error:#}"))),
        false => bail!("{pair}: {error:#}"),
    }
}

/// Directories get their metadata when nobody writes in them any more.
fn gather_last(job: &Job<'_>, shown: &mut Shares<'_>) -> Result<()> {
    for host in 0..job.config.sources.first().map_or(0, Vec::len) {
        shown.pass(host);
        let task = Task::Gather(Pass::Last);
        // What it refuses now it did not refuse before anything was touched.
        let carried = carry(job, Apart::Source, &[Share { host, task }], shown);
        carried.map_err(|error| anyhow!("{error:#}"))?;
    }
    Ok(())
}
