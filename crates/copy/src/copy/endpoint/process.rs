// SPDX-License-Identifier: MIT OR Apache-2.0
//! Process of an endpoint. It gets its task from the coordinator, connects to the other endpoint and does its
//! part. It may be killed at any moment, and ends by itself when the coordinator is gone.

use super::{
    access_scope::AccessScope, limits::raise_descriptor_limit, listing, rendezvous::NoFreePort,
    reports::Reporter, shared_fs_probe, source, target,
};
use crate::protocol::{
    control::{Begin, Role, Task},
    hello::{GREETING, Hello},
    message,
    report::{Progress, Report},
};
use anyhow::{Context as _, Result};
use longhaul_command::exit::Refusal;
use longhaul_transport::identity::Identity;
use parking_lot::Mutex;
use std::{
    io::{self, Write},
    net::IpAddr,
    sync::Arc,
};

/// Runs an endpoint on standard input and output. `confined`: a site has started it, and sends first of all
/// what it may access.
pub(crate) fn run(confined: bool) -> Result<()> {
    let scope = if confined {
        AccessScope::receive()?
    } else {
        AccessScope::Unrestricted
    };
    longhaul_linux::file_size::refuse_beyond_limit();
    let mut stdout = io::stdout();
    stdout.write_all(GREETING)?;
    let reporter = Reporter(Arc::new(Mutex::new(stdout)));
    let identity = Identity::new()?;
    reporter.write(&Hello::new(identity.certificate(), ssh_addresses()));
    let begin: Option<Begin> = message::read(&mut io::stdin().lock())?;
    let begin = begin.context("the coordinator has exited")?;
    let report = match run_task(begin, &scope, &identity, &reporter) {
        Ok(progress) => Report::Finished(progress),
        Err(error) => match error.downcast_ref::<Refusal>() {
            Some(refusal) => Report::Refused(refusal.to_string()),
            None if error.is::<NoFreePort>() => Report::PortsInUse(error.to_string()),
            None => Report::Broken(format!("{error:#}")),
        },
    };
    reporter.send(&report);
    // Threads may still wait for connections that are not needed.
    std::process::exit(0)
}

fn run_task(
    begin: Begin,
    scope: &AccessScope,
    identity: &Identity,
    reporter: &Reporter,
) -> Result<Progress> {
    scope.check_task(&begin)?;
    // More descriptors let it read, send and write more files at once.
    raise_descriptor_limit(begin.role)?;
    match begin.role {
        Role::Source if begin.task == Task::Locate => {
            reporter.send(&Report::Sources(source::portion::source_locations(
                &begin, scope,
            )));
            Ok(Progress::default())
        }
        Role::Source if begin.task == Task::Scan => listing::run(&begin, scope, reporter),
        Role::Source => source::session::run(begin, scope, identity, reporter),
        Role::Target => match begin.task {
            Task::CreateProbe(number) => {
                shared_fs_probe::create_probe_file(number, &begin, scope, reporter)
            }
            Task::FindProbe(number) => {
                shared_fs_probe::find_probe_file(number, &begin, scope, reporter)
            }
            _ => target::session::run(begin, scope, identity, reporter),
        },
    }
}

/// Returns the client's and the server's address from `SSH_CONNECTION`: the client's address and port, then
/// the server's (sshd(8)).
fn ssh_addresses() -> Option<(IpAddr, IpAddr)> {
    let text = std::env::var("SSH_CONNECTION").ok()?;
    let words: Vec<&str> = text.split(' ').collect();
    let [client, _, server, _] = words[..] else {
        return None;
    };
    Some((client.parse().ok()?, server.parse().ok()?))
}
