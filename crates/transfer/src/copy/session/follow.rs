// SPDX-License-Identifier: MIT OR Apache-2.0
//! Conversations of two ends, followed until they say that all is done, and begun again when they break.

use super::{
    endpoint_process::EndpointProcess,
    job::{HostPair, Job},
    startup::{SessionOutcome, StartOutcome},
};
use crate::{
    copy::progress::{
        monitor::{ReportSink, SessionSink},
        retry::RetryPolicy,
    },
    protocol::{
        control::{Role, Task},
        report::Report,
    },
};
use anyhow::{Result, bail};
use longhaul_command::exit::Refusal;
use std::{
    sync::mpsc::{Receiver, RecvTimeoutError, channel},
    time::{Duration, Instant},
};

/// How long nothing is heard before it is looked what there is to show, or to do.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// How long the other end may take to say that all is done.
const FINISH_TIMEOUT: Duration = Duration::from_secs(5);

/// What an end says, and `None` when it is gone.
pub(crate) type EndpointReport = (Role, Option<Report>);

/// Conversations until one comes to its end, each between the next pair.
pub(crate) fn run_sessions<'a>(
    job: &Job<'a>,
    pair: impl Fn(usize) -> HostPair<'a>,
    task: Task,
    listener: &mut impl SessionSink,
) -> Result<()> {
    let mut patience = RetryPolicy::default();
    let mut reached = job.config.is_local();
    for number in 0.. {
        let pair_now = pair(number);
        let ended = run_session(job, pair_now, task, listener);
        reached |= ended.is_ok();
        // Who can't be reached the first time will not be the next, unless another stands in.
        let goes_on = reached || pair(number + 1) != pair(0);
        let ended = match ended {
            Err(error) if goes_on && !error.is::<Refusal>() => SessionOutcome::Broken {
                why: format!("{error:#}"),
                gained: 0,
            },
            other => other?,
        };
        match ended {
            SessionOutcome::Finished => break,
            SessionOutcome::Broken { why, gained } => {
                let Some(pause) = patience.next_delay(gained > 0, Instant::now()) else {
                    bail!("{why}; given up, the same command goes on from here");
                };
                let hosts = match job.config.pair_count() {
                    1 => String::new(),
                    _ => format!("{pair_now}: "),
                };
                listener.print_note(&format!(
                    "{hosts}{why}; going on in {} s",
                    pause.as_secs_f32()
                ));
                std::thread::sleep(pause);
                listener.start_session();
            }
        }
    }
    Ok(())
}

fn run_session(
    job: &Job<'_>,
    pair: HostPair<'_>,
    task: Task,
    listener: &mut impl ReportSink,
) -> Result<SessionOutcome> {
    match job.start_pair(pair, task)? {
        StartOutcome::Started {
            mut source,
            mut target,
        } => {
            let named = (job.config.pair_count() > 1).then_some(pair);
            follow_session(listener, named, &receive_reports(&mut source, &mut target)?)
        }
        StartOutcome::Failed(ending) => Ok(ending),
    }
}

/// What both ends say from now on.
pub(crate) fn receive_reports(
    source: &mut EndpointProcess,
    target: &mut EndpointProcess,
) -> Result<Receiver<EndpointReport>> {
    let (to, from) = channel();
    source.forward_reports(Role::Source, to.clone())?;
    target.forward_reports(Role::Target, to)?;
    Ok(from)
}

/// Hears both ends until they say that all is done, or one of them is gone. With `hosts`, problems get the name of
/// their host.
pub(crate) fn follow_session(
    listener: &mut impl ReportSink,
    hosts: Option<HostPair<'_>>,
    from: &Receiver<EndpointReport>,
) -> Result<SessionOutcome> {
    let why = loop {
        if let Some(why) = listener.poll()? {
            break why;
        }
        match from.recv_timeout(POLL_INTERVAL) {
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break "both ends went away".to_owned(),
            Ok((role, Some(over @ Report::Finished(_)))) => {
                listener.receive(role, over)?;
                await_other_endpoint(listener, role, hosts, from)?;
                return Ok(SessionOutcome::Finished);
            }
            Ok((_, Some(Report::Refused(why)))) => return Err(Refusal::usage(why)),
            Ok((_, Some(Report::Broken(why)))) => break why,
            Ok((role, None)) => break format!("the {} went away", role.name()),
            Ok((role, Some(report))) => {
                listener.receive(role, add_host_name(report, role, hosts))?
            }
        }
    };
    let gained = listener.gained();
    Ok(SessionOutcome::Broken { why, gained })
}

fn add_host_name(report: Report, role: Role, hosts: Option<HostPair<'_>>) -> Report {
    match (report, hosts) {
        (Report::Problem(problem), Some(hosts)) => {
            Report::Problem(format!("{}: {problem}", hosts.name(role)))
        }
        (report, _) => report,
    }
}

/// One end has said that all is done; the other says so too, or was killed then.
fn await_other_endpoint(
    listener: &mut impl ReportSink,
    first: Role,
    hosts: Option<HostPair<'_>>,
    from: &Receiver<EndpointReport>,
) -> Result<()> {
    let until = Instant::now() + FINISH_TIMEOUT;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        match from.recv_timeout(left) {
            Ok((role, Some(over @ Report::Finished(_)))) => return listener.receive(role, over),
            Ok((role, None)) if role == first => {}
            // Whatever it is, all is done.
            Ok((role, Some(report))) => {
                listener.receive(role, add_host_name(report, role, hosts))?
            }
            Ok((_, None)) | Err(_) => return Ok(()),
        }
    }
}
