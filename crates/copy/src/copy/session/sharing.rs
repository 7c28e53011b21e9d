// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks which hosts share a file system, before anything is copied. Target hosts must share the target's directory; in
//! a distributed copy they must not. Source hosts that share the work must have the same sources.
//!
//! One target host creates a probe file with a random name in the target's directory, and the others look for it. Nothing
//! is created at a source: there inode numbers and birth times are compared.

use super::{endpoint_process::EndpointProcess, job::Job};
use crate::protocol::{
    control::{Rendezvous, Role, Task},
    report::Report,
    sources::Sources,
};
use anyhow::Result;
use longhaul_command::exit::Refusal;
use longhaul_linux::random::random_bytes;

/// Refuses a target directory that the hosts do not share: each host would get some of the data, and none all of it.
pub(crate) fn check_target_shared(job: &Job<'_>) -> Result<()> {
    let Some((first, other)) = find_target_host(job, Visibility::Hidden)? else {
        return Ok(());
    };
    Err(Refusal::usage(format!(
        "{other} does not see what is in the target's directory on {first}: name hosts that share a file system, or let each keep a \
         share: --distributed target",
    )))
}

/// Refuses a target directory that some hosts share: two hosts would store their shares in the same directory.
pub(crate) fn check_target_not_shared(job: &Job<'_>) -> Result<()> {
    let Some((first, seeing)) = find_target_host(job, Visibility::Visible)? else {
        return Ok(());
    };
    Err(Refusal::usage(format!(
        "{seeing} sees what is in the target's directory on {first}: hosts that share it cannot be --distributed; use --leases to share \
         the work",
    )))
}

/// Refuses source hosts with different entries: each host would send some of its own, and none all of them.
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
        "{path} on {other} is not the same as on {first}: name source hosts that share a file system; to copy what each host \
         has of its own, use --distributed source, or --distributed both to move shares"
    )))
}

/// Whether a target host sees the probe file that another target host created.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Visibility {
    Visible,
    Hidden,
}

/// Returns the first target host, and another host to which the first one's directory has the wanted visibility. Skips
/// hosts that cannot be reached: their sessions fail anyway.
fn find_target_host(job: &Job<'_>, wanted: Visibility) -> Result<Option<(String, String)>> {
    let probe_number = random_number()?;
    let hosts = 0..job.config.target.len();
    let sources = match hosts.len() {
        1 => Sources::default(),
        _ => locate_all_sources(job),
    };
    let run_probe = |host: usize, task| {
        let sources = sources.clone();
        probe_result(job.start_alone_with_sources(job.pair(host), Role::Target, task, sources))
    };
    let create_probe =
        |host: usize| Some((host, run_probe(host, Task::CreateProbe(probe_number))?.0));
    // A single host needs no check.
    let Some((first, mut probe_creator)) = hosts
        .clone()
        .take(hosts.len().saturating_sub(1))
        .find_map(create_probe)
    else {
        return Ok(None);
    };
    let matches = |host: &usize| {
        let probe = run_probe(*host, Task::FindProbe(probe_number));
        probe.is_some_and(|(_, seen)| seen == (wanted == Visibility::Visible))
    };
    let found = hosts.skip(first + 1).find(matches);
    probe_creator.send(&match found {
        Some(_) => Rendezvous::refused(),
        None => Rendezvous::Wait,
    })?;
    probe_creator.receive_report()?;
    let name = |host: usize| job.pair(host).name(Role::Target);
    Ok(found.map(|other| (name(first), name(other))))
}

/// Returns the locations of the sources on all hosts, so that no probe file is created in one of them.
fn locate_all_sources(job: &Job<'_>) -> Sources {
    let all = source_locations(job).map(|(_, sources)| sources);
    all.fold(Sources::default(), Sources::merge)
}

/// Returns the locations of the sources on each host that can be reached.
fn source_locations<'a>(job: &'a Job<'_>) -> impl Iterator<Item = (usize, Sources)> + 'a {
    let hosts = 0..job.config.sources.first().map_or(0, Vec::len);
    hosts.filter_map(|host| {
        let mut process = job.start_alone(job.pair_of(host, 0), Role::Source, Task::Locate);
        match process.as_mut().ok()?.receive_report() {
            Ok(Some(Report::Sources(sources))) => Some((host, sources)),
            _ => None,
        }
    })
}

fn random_number() -> Result<u128> {
    Ok(u128::from_ne_bytes(random_bytes()?))
}

/// Returns whether an endpoint created the probe file, or sees it; `None` if the endpoint cannot be reached, refuses or has
/// exited. Its session will report the reason.
fn probe_result(process: Result<EndpointProcess>) -> Option<(EndpointProcess, bool)> {
    let mut process = process.ok()?;
    match process.receive_report() {
        Ok(Some(Report::ProbeVisible(seen))) => Some((process, seen)),
        _ => None,
    }
}
