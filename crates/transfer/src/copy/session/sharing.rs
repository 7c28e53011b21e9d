// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether the target's directory is one on all its hosts, or another on each: either is refused where the other was meant,
//! before anything is copied. So are sources that are not the same on all hosts that are to share them.
//!
//! One makes a file in the target's directory under a name that nobody else has, and the others look for it. Nothing is made at a
//! source: there numbers and birth times are compared.

use super::{endpoint_process::EndpointProcess, job::Job};
use crate::protocol::{
    control::{Rendezvous, Role, Task},
    report::Report,
    sources::Sources,
};
use anyhow::Result;
use longhaul_command::exit::Refusal;
use rustix::rand::GetRandomFlags;

/// Refuses a directory that the hosts do not share: each would get some of the data, and none all of it.
pub(crate) fn check_target_shared(job: &Job<'_>) -> Result<()> {
    let Some((first, blind)) = find_target_host(job, false)? else {
        return Ok(());
    };
    Err(Refusal::usage(format!(
        "{blind} does not see what is in the target's directory on {first}: name hosts that share a file system, or let each keep a \
         share: --apart target",
    )))
}

/// Refuses one that some of them share: two would keep their shares in one place.
pub(crate) fn check_target_not_shared(job: &Job<'_>) -> Result<()> {
    let Some((first, seeing)) = find_target_host(job, true)? else {
        return Ok(());
    };
    Err(Refusal::usage(format!(
        "{seeing} sees what is in the target's directory on {first}: hosts that share it are not --apart; --leases has them share \
         the work",
    )))
}

/// Refuses source hosts of which one has other things than another: each would bring some of its own, and none all of it.
pub(crate) fn check_sources_shared(job: &Job<'_>) -> Result<()> {
    let hosts = job.config.sources.first().map_or(0, Vec::len);
    if hosts < 2 {
        return Ok(());
    }
    let mut located = source_locations(job);
    let Some((first, like)) = located.next() else {
        return Ok(());
    };
    let other = located.find_map(|(host, sources)| Some((host, sources.first_difference(&like)?)));
    let Some((other, path)) = other else {
        return Ok(());
    };
    let (first, other) = (job.source_name(first), job.source_name(other));
    Err(Refusal::usage(format!(
        "{path} on {other} is not what it is on {first}: name source hosts that share a file system; what each has of its own \
         comes by --apart source, or moves on by --apart both"
    )))
}

/// The first host, and another that does, or does not, see what is in its directory. A host that can't be reached now is not
/// asked: its conversation will not get far either.
fn find_target_host(job: &Job<'_>, sees: bool) -> Result<Option<(String, String)>> {
    let number = random_number()?;
    let hosts = 0..job.config.target.len();
    let sources = match hosts.len() {
        1 => Sources::default(),
        _ => locate_all_sources(job),
    };
    let ask = |host: usize, task| {
        let sources = sources.clone();
        probe_result(job.start_alone_with_sources(job.pair(host), Role::Target, task, sources))
    };
    let marked = |host: usize| Some((host, ask(host, Task::CreateProbe(number))?.0));
    // With one host there is nothing to find.
    let Some((first, mut marking)) = hosts
        .clone()
        .take(hosts.len().saturating_sub(1))
        .find_map(marked)
    else {
        return Ok(None);
    };
    let found = |host: &usize| matches!(ask(*host, Task::FindProbe(number)), Some((_, seen)) if seen == sees);
    let found = hosts.skip(first + 1).find(found);
    marking.send(&Rendezvous::Wait)?;
    marking.receive_report()?;
    let name = |host: usize| job.pair(host).name(Role::Target);
    Ok(found.map(|found| (name(first), name(found))))
}

/// Where the sources on all hosts are, so that no mark is made in one of them.
fn locate_all_sources(job: &Job<'_>) -> Sources {
    let all = source_locations(job).map(|(_, sources)| sources);
    all.fold(Sources::default(), Sources::merge)
}

/// Where they are on each host that can be reached now.
fn source_locations<'a>(job: &'a Job<'_>) -> impl Iterator<Item = (usize, Sources)> + 'a {
    let hosts = 0..job.config.sources.first().map_or(0, Vec::len);
    hosts.filter_map(|host| {
        let mut far = job.start_alone(job.pair_of(host, 0), Role::Source, Task::Locate);
        match far.as_mut().ok()?.receive_report() {
            Ok(Some(Report::Sources(sources))) => Some((host, sources)),
            _ => None,
        }
    })
}

fn random_number() -> Result<u128> {
    let mut random = [0; 16];
    rustix::rand::getrandom(&mut random, GetRandomFlags::empty())?;
    Ok(u128::from_ne_bytes(random))
}

/// Whether an end made the mark, or sees it; `None` of one that can't be reached, refuses or is gone: its conversation says why.
fn probe_result(far: Result<EndpointProcess>) -> Option<(EndpointProcess, bool)> {
    let mut far = far.ok()?;
    match far.receive_report() {
        Ok(Some(Report::ProbeVisible(seen))) => Some((far, seen)),
        _ => None,
    }
}
