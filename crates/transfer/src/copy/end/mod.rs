// SPDX-License-Identifier: MIT OR Apache-2.0
//! One end of a copy: a process that hears from the driver who it is, meets the other end and does its part. It can be
//! killed at any moment; it ends by itself when the driver is gone.

mod attributes;
mod descriptors;
mod gauges;
#[cfg(test)]
mod hostile;
mod mark;
mod meeting;
mod progress;
mod reach;
mod receiver;
mod source;
mod stopwatch;
mod survey;
mod watched;

use crate::{
    protocol::{
        message,
        options::Options,
        order::{Begin, GREETING, Meeting, Role, Task},
        report::{Progress, Report},
    },
    transport::identity::Identity,
};
use anyhow::{Context as _, Result};
use longhaul_command::exit::Refusal;
use longhaul_store::filter::Filter;
use meeting::Occupied;
use reach::Reach;
use std::{
    io::{self, Write},
    net::IpAddr,
    sync::{Arc, Mutex, PoisonError},
};

/// Where reports go; any thread may.
#[derive(Clone)]
struct Reporter(Arc<Mutex<dyn Write + Send>>);

impl std::fmt::Debug for Reporter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Reporter")
    }
}

impl Reporter {
    fn say(&self, report: &Report) {
        let mut to = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let said = message::write(&mut *to, report).and_then(|()| Ok(to.flush()?));
        if said.is_err() {
            // Nobody is left to hear it.
            std::process::exit(1);
        }
    }
}

/// `confined`: a site has started this end, and says before all else what it may touch.
pub(super) fn run(confined: bool) -> Result<()> {
    let reach = match confined {
        true => Reach::told()?,
        false => Reach::Everything,
    };
    longhaul_linux::file_size::refuse_beyond_limit();
    let mut stdout = io::stdout();
    stdout.write_all(GREETING)?;
    let reporter = Reporter(Arc::new(Mutex::new(stdout)));
    let identity = Identity::new()?;
    reporter.say(&Report::Hello {
        version: longhaul_command::release().to_owned(),
        certificate: identity.certificate().to_vec(),
        ssh: ssh(),
    });
    let begin: Option<Begin> = message::read(&mut io::stdin().lock())?;
    let begin = begin.context("the driver went away")?;
    let report = match perform(begin, &reach, &identity, &reporter) {
        Ok(progress) => Report::Over(progress),
        Err(error) => match error.downcast_ref::<Refusal>() {
            Some(refusal) => Report::Refused(refusal.to_string()),
            None if error.is::<Occupied>() => Report::Occupied(error.to_string()),
            None => Report::Broken(format!("{error:#}")),
        },
    };
    reporter.say(&report);
    // Threads may still wait for connections that nobody needs.
    std::process::exit(0)
}

fn perform(
    begin: Begin,
    reach: &Reach,
    identity: &Identity,
    reporter: &Reporter,
) -> Result<Progress> {
    reach.admit(&begin)?;
    // With more, more is read, sent and written at once.
    descriptors::raise_limit(begin.role)?;
    match begin.role {
        Role::Source if begin.task == Task::Locate => {
            reporter.say(&Report::Sources(source::located(&begin, reach)));
            Ok(Progress::default())
        }
        Role::Source if begin.task == Task::Survey => survey::run(&begin, reach, reporter),
        Role::Source => source::run(begin, reach, identity, reporter),
        Role::Target => match begin.task {
            Task::Mark(number) => mark::make(number, &begin, reach, reporter),
            Task::Seek(number) => mark::seek(number, &begin, reach, reporter),
            _ => receiver::run(begin, reach, identity, reporter),
        },
    }
}

fn filter(options: &Options) -> Result<Filter> {
    let filter = Filter::new(&options.rules).map_err(Refusal::usage)?;
    Ok(filter.staying(options.one_file_system))
}

/// Says that this end has what it needs, if that is asked, and hears where the other one is.
fn get_ready(begin: &mut Begin, reach: &Reach, reporter: &Reporter) -> Result<()> {
    if begin.meeting == Meeting::Later {
        reporter.say(&Report::Ready);
        let told: Option<Meeting> = message::read(&mut io::stdin().lock())?;
        begin.meeting = told.context("the driver went away")?;
    }
    reach.confine(&mut begin.meeting);
    Ok(())
}

/// Whoever started this process says nothing more; its end is.
pub(super) fn end_with_standard_input() {
    let _ = io::copy(&mut io::stdin(), &mut io::sink());
    std::process::exit(1);
}

/// `SSH_CONNECTION`: the client's address and port, then the server's (sshd(8)).
fn ssh() -> Option<(IpAddr, IpAddr)> {
    let text = std::env::var("SSH_CONNECTION").ok()?;
    let words: Vec<&str> = text.split(' ').collect();
    let [client, _, server, _] = words[..] else {
        return None;
    };
    Some((client.parse().ok()?, server.parse().ok()?))
}
