// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sessions of two endpoints: followed until both have finished, and started again when one breaks.

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

/// Interval of display updates and other periodic work while no report arrives.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// Time that the second endpoint may take to finish after the first.
const FINISH_TIMEOUT: Duration = Duration::from_secs(5);

/// Time after the end of a session in which the reason may arrive.
const REFUSAL_TIMEOUT: Duration = Duration::from_millis(500);

/// Report of an endpoint, or `None` after its end.
pub(crate) type EndpointReport = (Role, Option<Report>);

/// Runs sessions until one finishes, each between the next pair of hosts.
pub(crate) fn run_sessions<'a>(
    job: &Job<'a>,
    pair: impl Fn(usize) -> HostPair<'a>,
    task: Task,
    sink: &mut impl SessionSink,
) -> Result<()> {
    let mut retry_policy = RetryPolicy::default();
    let mut reached = job.config.is_local();
    for number in 0.. {
        let current_pair = pair(number);
        let outcome = run_session(job, current_pair, task, sink);
        reached |= outcome.is_ok();
        // A host that cannot be reached the first time is not tried again, unless another host can take its place.
        let may_retry = reached || pair(number + 1) != pair(0);
        let outcome = match outcome {
            Err(error) if may_retry && !error.is::<Refusal>() => SessionOutcome::Broken {
                why: format!("{error:#}"),
                gained: 0,
            },
            other => other?,
        };
        match outcome {
            SessionOutcome::Finished => break,
            SessionOutcome::Broken { why, gained } => {
                let Some(delay) = retry_policy.next_delay(gained > 0, Instant::now()) else {
                    bail!("{why}; giving up, run the same command to resume");
                };
                let hosts = match job.config.pair_count() {
                    1 => String::new(),
                    _ => format!("{current_pair}: "),
                };
                sink.print_note(&format!(
                    "{hosts}{why}; retrying in {} s",
                    delay.as_secs_f32()
                ));
                std::thread::sleep(delay);
                sink.start_session();
            }
        }
    }
    Ok(())
}

/// Runs one session.
pub(crate) fn run_session(
    job: &Job<'_>,
    pair: HostPair<'_>,
    task: Task,
    sink: &mut impl ReportSink,
) -> Result<SessionOutcome> {
    match job.start_pair(pair, task)? {
        StartOutcome::Started {
            mut source,
            mut target,
        } => {
            let reports = receive_reports(&mut source, &mut target)?;
            follow_session(sink, Some(pair), &reports)
        }
        StartOutcome::Failed(outcome) => Ok(outcome),
    }
}

/// Returns the receiver of all further reports of both endpoints.
pub(crate) fn receive_reports(
    source: &mut EndpointProcess,
    target: &mut EndpointProcess,
) -> Result<Receiver<EndpointReport>> {
    let (to, from) = channel();
    source.forward_reports(Role::Source, to.clone())?;
    target.forward_reports(Role::Target, to)?;
    Ok(from)
}

/// Receives reports until both endpoints have finished, or one has exited. Problems are prefixed with
/// their endpoint: the name of its host in `hosts`, or its role on this machine.
pub(crate) fn follow_session(
    sink: &mut impl ReportSink,
    hosts: Option<HostPair<'_>>,
    from: &Receiver<EndpointReport>,
) -> Result<SessionOutcome> {
    let why = loop {
        if let Some(why) = sink.poll()? {
            break why;
        }
        match from.recv_timeout(POLL_INTERVAL) {
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break "both endpoints exited".to_owned(),
            Ok((role, Some(finished @ Report::Finished(_)))) => {
                sink.receive(role, finished)?;
                await_other_endpoint(sink, role, hosts, from)?;
                return Ok(SessionOutcome::Finished);
            }
            Ok((_, Some(Report::Refused(why)))) => return Err(Refusal::usage(why)),
            Ok((_, Some(Report::Broken(why)))) => break why,
            Ok((role, None)) => break format!("the {} exited", role.name()),
            Ok((role, Some(report))) => sink.receive(role, add_endpoint(report, role, hosts))?,
        }
    };
    // The other endpoint may only see the end of a connection.
    await_refusal(sink, hosts, from)?;
    let gained = sink.gained();
    Ok(SessionOutcome::Broken { why, gained })
}

/// Waits a moment for an endpoint that refuses, which is an error.
fn await_refusal(
    sink: &mut impl ReportSink,
    hosts: Option<HostPair<'_>>,
    from: &Receiver<EndpointReport>,
) -> Result<()> {
    let deadline = Instant::now() + REFUSAL_TIMEOUT;
    loop {
        let remaining = deadline.saturating_duration_since(Instant::now());
        match from.recv_timeout(remaining) {
            Ok((_, Some(Report::Refused(why)))) => return Err(Refusal::usage(why)),
            Ok((role, Some(report))) => sink.receive(role, add_endpoint(report, role, hosts))?,
            Ok((_, None)) => {}
            Err(_) => return Ok(()),
        }
    }
}

/// Adds the endpoint to a problem. Paths in the problem are those in the copy.
fn add_endpoint(report: Report, role: Role, hosts: Option<HostPair<'_>>) -> Report {
    let Report::Problem(problem) = report else {
        return report;
    };
    let host = hosts.and_then(|hosts| hosts.host(role));
    let endpoint = host.map_or_else(|| role.name().to_owned(), ToString::to_string);
    Report::Problem(format!("{endpoint}: {problem}"))
}

/// Waits for the second endpoint after the first has finished. It finishes too, or was killed meanwhile.
fn await_other_endpoint(
    sink: &mut impl ReportSink,
    first: Role,
    hosts: Option<HostPair<'_>>,
    from: &Receiver<EndpointReport>,
) -> Result<()> {
    let deadline = Instant::now() + FINISH_TIMEOUT;
    loop {
        let remaining = deadline.saturating_duration_since(Instant::now());
        match from.recv_timeout(remaining) {
            Ok((role, Some(finished @ Report::Finished(_)))) => {
                return sink.receive(role, finished);
            }
            Ok((role, None)) if role == first => {}
            // The copy is complete, whatever the report is.
            Ok((role, Some(report))) => sink.receive(role, add_endpoint(report, role, hosts))?,
            Ok((_, None)) | Err(_) => return Ok(()),
        }
    }
}
