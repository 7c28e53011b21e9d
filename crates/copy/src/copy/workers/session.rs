// SPDX-License-Identifier: MIT OR Apache-2.0
//! Session that copies extents. Its endpoints stay connected, and get the next extent before they finish the last one.

use super::{
    leases::HeldLeases,
    work::Work,
    worker::{LEASE_POLL_INTERVAL, Worker, WorkerEvent},
};
use crate::{
    copy::{
        progress::monitor::ReportSink,
        session::{
            endpoint_process::EndpointProcess,
            follow::{follow_session, receive_reports},
            startup::{SessionOutcome, StartOutcome},
        },
    },
    protocol::{
        control::{ControlMsg, Extent, Role, Task},
        report::{Progress, Report},
    },
};
use anyhow::Result;
use longhaul_leases::Lease;
use std::time::Instant;

/// Session that copies one extent after another.
struct ExtentSession<'a> {
    worker: &'a Worker<'a>,
    source: EndpointProcess,
    target: EndpointProcess,
    leases: HeldLeases<'a>,
    /// Time of the last report of each endpoint.
    last_reports: [(Role, Instant); 2],
    /// Bytes that were assigned, bytes of the last extent, and bytes that were sent or were at the target already.
    assigned: u64,
    last_extent_len: u64,
    progressed: u64,
    gained: u64,
    /// Time of the next attempt to lease an extent.
    next_poll: Instant,
    /// Lease for planning, which is not work for this session. The session ends, and then the worker plans.
    plan_lease: Option<Lease>,
    /// Whether the source knows that it gets no further extent.
    no_more_extents: bool,
}

impl Worker<'_> {
    /// Copies an extent, and further ones as long as there are any.
    pub(super) fn run_extents(&self, lease: Lease, extent: Extent) -> Result<SessionOutcome> {
        let _receiver_gone = self.events.send(WorkerEvent::SessionStarted(self.number));
        let bytes = lease.bytes;
        let mut leases = self.new_leases();
        let number = leases.insert(lease);
        let started = leases.run_while_renewing(|| self.job.start_pair(self.pair(), Task::Extents));
        let outcome = match started.and_then(|started| started) {
            Ok(StartOutcome::Started { source, target }) => {
                let mut session = ExtentSession::new(self, source, target, leases);
                let outcome = session.run(number, bytes, extent);
                return session.finish(outcome);
            }
            Ok(StartOutcome::Failed(outcome)) => Ok(outcome),
            Err(error) => Err(error),
        };
        leases.release_all("the endpoints did not start");
        outcome
    }
}

impl<'a> ExtentSession<'a> {
    fn new(
        worker: &'a Worker<'a>,
        source: EndpointProcess,
        target: EndpointProcess,
        leases: HeldLeases<'a>,
    ) -> Self {
        Self {
            worker,
            source,
            target,
            leases,
            last_reports: [Role::Source, Role::Target].map(|role| (role, Instant::now())),
            assigned: 0,
            last_extent_len: 0,
            progressed: 0,
            gained: 0,
            next_poll: Instant::now(),
            plan_lease: None,
            no_more_extents: false,
        }
    }
}

impl ReportSink for ExtentSession<'_> {
    fn receive(&mut self, role: Role, report: Report) -> Result<()> {
        let entry = self.last_reports.iter_mut().find(|(of, _)| *of == role);
        entry.into_iter().for_each(|entry| entry.1 = Instant::now());
        match report {
            Report::Progress(progress) | Report::Finished(progress) => {
                self.report_progress(role, progress);
            }
            Report::ExtentDone { number, failed } => self.extent_done(number, failed.as_deref())?,
            // The session after all workers tries again, and reports failures.
            Report::Problem(problem) => tracing::debug!("{}: {problem}", self.worker.name),
            _ => {}
        }
        Ok(())
    }

    /// Ends the session if an endpoint is stuck, so that other workers can take its extents.
    fn poll(&mut self) -> Result<Option<String>> {
        let ttl = self.worker.ttl();
        let silent = self
            .last_reports
            .iter()
            .find(|(_, received_at)| received_at.elapsed() > ttl);
        if let Some((role, _)) = silent {
            let (who, seconds) = (role.name(), ttl.as_secs_f32());
            return Ok(Some(format!("no report from the {who} for {seconds} s")));
        }
        self.worker.check_job_exists()?;
        if self.leases.renew()? {
            self.send_lease_time()?;
        }
        if self.needs_extent() {
            self.lease_extent()?;
        }
        Ok(None)
    }

    fn gained(&self) -> u64 {
        self.gained
    }
}

impl ExtentSession<'_> {
    fn run(&mut self, number: u64, bytes: u64, extent: Extent) -> Result<SessionOutcome> {
        let from = receive_reports(&mut self.source, &mut self.target)?;
        self.assign(number, bytes, extent)?;
        follow_session(self, None, &from)
    }

    /// Releases unfinished extents, and plans if a plan was leased.
    fn finish(mut self, outcome: Result<SessionOutcome>) -> Result<SessionOutcome> {
        let why = match &outcome {
            Ok(SessionOutcome::Finished) => String::new(),
            Ok(SessionOutcome::Broken { why, .. }) => why.clone(),
            Err(error) => format!("{error:#}"),
        };
        self.worker.record_unfinished(&self.leases);
        self.leases.release_all(&why);
        let (worker, plan) = (self.worker, self.plan_lease.take());
        drop(self);
        match (outcome, plan) {
            (Ok(SessionOutcome::Finished), Some(lease)) => worker.run_plan(lease),
            (outcome, Some(lease)) => {
                let mut leases = worker.new_leases();
                leases.insert(lease);
                leases.release_all(&why);
                outcome
            }
            (outcome, None) => outcome,
        }
    }

    fn report_progress(&mut self, role: Role, progress: Progress) {
        match role {
            Role::Source => self.progressed = progress.sent + progress.present,
            Role::Target => self.gained = progress.durable,
        }
        let event = WorkerEvent::Progress(self.worker.number, role, Box::new(progress));
        let _receiver_gone = self.worker.events.send(event);
    }

    fn extent_done(&mut self, number: u64, failed: Option<&str>) -> Result<()> {
        if let Some(why) = failed {
            self.worker
                .print_note(&format!("an extent is retried: {why}"));
        }
        self.leases.complete(number, failed)?;
        if failed.is_none() {
            let _receiver_gone = self
                .worker
                .events
                .send(WorkerEvent::ExtentDone(self.worker.number));
        }
        Ok(())
    }

    /// Whether to lease another extent. It is leased when three quarters of the last one are done. That is early enough
    /// that the path is never idle, and late enough that no worker holds two extents near the end while another has none.
    fn needs_extent(&self) -> bool {
        let remaining = self.assigned.saturating_sub(self.progressed);
        let idle = self.leases.is_empty() || remaining <= self.last_extent_len / 4;
        idle && !self.no_more_extents && Instant::now() >= self.next_poll
    }

    fn lease_extent(&mut self) -> Result<()> {
        self.next_poll = Instant::now() + LEASE_POLL_INTERVAL;
        let Some(lease) = self.worker.lease_next()? else {
            if self.leases.is_empty() && self.worker.is_job_finished()? {
                self.end_assignments()?;
            }
            return Ok(());
        };
        match Work::of(&lease)? {
            Work::Extent(extent) => {
                let bytes = lease.bytes;
                let number = self.leases.insert(lease);
                self.assign(number, bytes, extent)
            }
            Work::Plan => {
                self.plan_lease = Some(lease);
                self.end_assignments()
            }
        }
    }

    fn assign(&mut self, number: u64, bytes: u64, extent: Extent) -> Result<()> {
        self.last_extent_len = bytes;
        self.assigned += bytes;
        // After a successful lease the next attempt needs no delay.
        self.next_poll = Instant::now();
        self.send_lease_time()?;
        self.source.send(&ControlMsg::Assignment { number, extent })
    }

    fn send_lease_time(&mut self) -> Result<()> {
        let millis = u32::try_from(self.leases.remaining_time().as_millis()).unwrap_or(u32::MAX);
        self.source.send(&ControlMsg::LeaseRemaining(millis))
    }

    fn end_assignments(&mut self) -> Result<()> {
        self.no_more_extents = true;
        self.source.send(&ControlMsg::NoMoreExtents)
    }
}
