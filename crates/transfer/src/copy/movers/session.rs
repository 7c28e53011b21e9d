// SPDX-License-Identifier: MIT OR Apache-2.0
//! A conversation about extents: its ends stay, and get another extent before they are done with the last.

use super::{
    leases::HeldLeases,
    mover::{Mover, MoverEvent, POLL},
    work::Work,
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

struct ExtentSession<'a> {
    mover: &'a Mover<'a>,
    source: EndpointProcess,
    target: EndpointProcess,
    leases: HeldLeases<'a>,
    /// When each end said something last.
    last_reports: [(Role, Instant); 2],
    /// Bytes that were assigned, those of the last extent, and those that are sent or need not be.
    assigned: u64,
    last_extent_len: u64,
    progressed: u64,
    gained: u64,
    /// When it is looked next whether there is more.
    next_poll: Instant,
    /// Something was taken that is not this conversation's: it ends, and then comes that.
    plan_lease: Option<Lease>,
    no_more_extents: bool,
}

impl Mover<'_> {
    /// Copies an extent, and others after it while there are any.
    pub(super) fn run_extents(&self, lease: Lease, extent: Extent) -> Result<SessionOutcome> {
        let _nobody_hears = self.events.send(MoverEvent::SessionStarted(self.number));
        let bytes = lease.bytes;
        let mut held = self.new_leases();
        let number = held.insert(lease);
        let met = held.run_while_renewing(|| self.job.start_pair(self.pair(), Task::Extents));
        let ended = match met.and_then(|met| met) {
            Ok(StartOutcome::Started { source, target }) => {
                let mut conversation = ExtentSession::new(self, source, target, held);
                let ending = conversation.run(number, bytes, extent);
                return conversation.finish(ending);
            }
            Ok(StartOutcome::Failed(ending)) => Ok(ending),
            Err(error) => Err(error),
        };
        held.release_all("the ends did not begin");
        ended
    }
}

impl<'a> ExtentSession<'a> {
    fn new(
        mover: &'a Mover<'a>,
        source: EndpointProcess,
        target: EndpointProcess,
        held: HeldLeases<'a>,
    ) -> Self {
        Self {
            mover,
            source,
            target,
            leases: held,
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
        let one = self.last_reports.iter_mut().find(|(of, _)| *of == role);
        one.into_iter().for_each(|one| one.1 = Instant::now());
        match report {
            Report::Progress(progress) | Report::Finished(progress) => {
                self.report_progress(role, progress)
            }
            Report::ExtentDone { number, failed } => self.extent_done(number, failed.as_deref())?,
            // What could not be copied the last conversation tries again, and says.
            Report::Problem(problem) => tracing::debug!("{}: {problem}", self.mover.name),
            _ => {}
        }
        Ok(())
    }

    /// An end that is stuck must not keep what others could do.
    fn poll(&mut self) -> Result<Option<String>> {
        let ttl = self.mover.ttl();
        let silent = self
            .last_reports
            .iter()
            .find(|(_, heard)| heard.elapsed() > ttl);
        if let Some((role, _)) = silent {
            let (who, seconds) = (role.name(), ttl.as_secs_f32());
            return Ok(Some(format!("the {who} has said nothing for {seconds} s")));
        }
        self.mover.check_job_exists()?;
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

    /// Gives back what is not done, and does what was put off.
    fn finish(mut self, ending: Result<SessionOutcome>) -> Result<SessionOutcome> {
        let why = match &ending {
            Ok(SessionOutcome::Finished) => String::new(),
            Ok(SessionOutcome::Broken { why, .. }) => why.clone(),
            Err(error) => format!("{error:#}"),
        };
        self.leases.release_all(&why);
        let (mover, plan) = (self.mover, self.plan_lease.take());
        drop(self);
        match (ending, plan) {
            (Ok(SessionOutcome::Finished), Some(lease)) => mover.run_plan(lease),
            (ending, Some(lease)) => {
                let mut held = mover.new_leases();
                held.insert(lease);
                held.release_all(&why);
                ending
            }
            (ending, None) => ending,
        }
    }

    fn report_progress(&mut self, role: Role, progress: Progress) {
        match role {
            Role::Source => self.progressed = progress.sent + progress.present,
            Role::Target => self.gained = progress.durable,
        }
        let said = MoverEvent::Progress(self.mover.number, role, Box::new(progress));
        let _nobody_hears = self.mover.events.send(said);
    }

    fn extent_done(&mut self, number: u64, failed: Option<&str>) -> Result<()> {
        if let Some(why) = failed {
            self.mover
                .print_note(&format!("an extent goes again: {why}"));
        }
        self.leases.complete(number, failed)?;
        if failed.is_none() {
            let _nobody_hears = self
                .mover
                .events
                .send(MoverEvent::ExtentDone(self.mover.number));
        }
        Ok(())
    }

    /// The path shall not idle, but nor shall one mover have two extents at the end and another none: the last is three
    /// quarters gone.
    fn needs_extent(&self) -> bool {
        let left = self.assigned.saturating_sub(self.progressed);
        let idle = self.leases.is_empty() || left <= self.last_extent_len / 4;
        idle && !self.no_more_extents && Instant::now() >= self.next_poll
    }

    fn lease_extent(&mut self) -> Result<()> {
        self.next_poll = Instant::now() + POLL;
        let Some(lease) = self.mover.lease_next()? else {
            if self.leases.is_empty() && self.mover.is_job_finished()? {
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
        // Who got one may get another at once.
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
