// SPDX-License-Identifier: MIT OR Apache-2.0
//! A conversation about extents: its ends stay, and get another extent before they are done with the last.

use super::{
    leases::Leases,
    mover::{Mover, POLL, Said},
    work::Work,
};
use crate::{
    copy::{
        conversation::{
            far::Far,
            follow::{follow, reports},
            meeting::{Ending, Met},
        },
        progress::hearing::Listener,
    },
    protocol::{
        control::{ControlMsg, Extent, Role, Task},
        report::{Progress, Report},
    },
};
use anyhow::Result;
use longhaul_leases::Lease;
use std::time::Instant;

struct Conversation<'a> {
    mover: &'a Mover<'a>,
    source: Far,
    target: Far,
    held: Leases<'a>,
    /// When each end said something last.
    heard: [(Role, Instant); 2],
    /// Bytes that were assigned, those of the last extent, and those that are sent or need not be.
    assigned: u64,
    last: u64,
    gone: u64,
    gained: u64,
    /// When it is looked next whether there is more.
    poll: Instant,
    /// Something was taken that is not this conversation's: it ends, and then comes that.
    plan: Option<Lease>,
    enough: bool,
}

impl Mover<'_> {
    /// Copies an extent, and others after it while there are any.
    pub(super) fn converse(&self, lease: Lease, extent: Extent) -> Result<Ending> {
        let _nobody_hears = self.to.send(Said::Again(self.number));
        let bytes = lease.bytes;
        let mut held = self.holding();
        let number = held.take(lease);
        let met = held.renewing(|| self.job.meet(self.pair(), Task::Extents));
        let ended = match met.and_then(|met| met) {
            Ok(Met::Both { source, target }) => {
                let mut conversation = Conversation::new(self, source, target, held);
                let ending = conversation.follow(number, bytes, extent);
                return conversation.end(ending);
            }
            Ok(Met::Early(ending)) => Ok(ending),
            Err(error) => Err(error),
        };
        held.give_all_back("the ends did not begin");
        ended
    }
}

impl<'a> Conversation<'a> {
    fn new(mover: &'a Mover<'a>, source: Far, target: Far, held: Leases<'a>) -> Self {
        Self {
            mover,
            source,
            target,
            held,
            heard: [Role::Source, Role::Target].map(|role| (role, Instant::now())),
            assigned: 0,
            last: 0,
            gone: 0,
            gained: 0,
            poll: Instant::now(),
            plan: None,
            enough: false,
        }
    }
}

impl Listener for Conversation<'_> {
    fn hear(&mut self, role: Role, report: Report) -> Result<()> {
        let one = self.heard.iter_mut().find(|(of, _)| *of == role);
        one.into_iter().for_each(|one| one.1 = Instant::now());
        match report {
            Report::Progress(progress) | Report::Finished(progress) => {
                self.progress(role, progress)
            }
            Report::ExtentDone { number, failed } => self.done(number, failed.as_deref())?,
            // What could not be copied the last conversation tries again, and says.
            Report::Problem(problem) => tracing::debug!("{}: {problem}", self.mover.name),
            _ => {}
        }
        Ok(())
    }

    /// An end that is stuck must not keep what others could do.
    fn look(&mut self) -> Result<Option<String>> {
        let ttl = self.mover.ttl();
        let silent = self.heard.iter().find(|(_, heard)| heard.elapsed() > ttl);
        if let Some((role, _)) = silent {
            let (who, seconds) = (role.name(), ttl.as_secs_f32());
            return Ok(Some(format!("the {who} has said nothing for {seconds} s")));
        }
        self.mover.check_presence()?;
        if self.held.renew()? {
            self.say_until()?;
        }
        if self.wants_more() {
            self.get_more()?;
        }
        Ok(None)
    }

    fn gained(&self) -> u64 {
        self.gained
    }
}

impl Conversation<'_> {
    fn follow(&mut self, number: u64, bytes: u64, extent: Extent) -> Result<Ending> {
        let from = reports(&mut self.source, &mut self.target)?;
        self.assign(number, bytes, extent)?;
        follow(self, None, &from)
    }

    /// Gives back what is not done, and does what was put off.
    fn end(mut self, ending: Result<Ending>) -> Result<Ending> {
        let why = match &ending {
            Ok(Ending::Over) => String::new(),
            Ok(Ending::Broken { why, .. }) => why.clone(),
            Err(error) => format!("{error:#}"),
        };
        self.held.give_all_back(&why);
        let (mover, plan) = (self.mover, self.plan.take());
        drop(self);
        match (ending, plan) {
            (Ok(Ending::Over), Some(lease)) => mover.plan(lease),
            (ending, Some(lease)) => {
                let mut held = mover.holding();
                held.take(lease);
                held.give_all_back(&why);
                ending
            }
            (ending, None) => ending,
        }
    }

    fn progress(&mut self, role: Role, progress: Progress) {
        match role {
            Role::Source => self.gone = progress.sent + progress.present,
            Role::Target => self.gained = progress.durable,
        }
        let said = Said::Progress(self.mover.number, role, Box::new(progress));
        let _nobody_hears = self.mover.to.send(said);
    }

    fn done(&mut self, number: u64, failed: Option<&str>) -> Result<()> {
        if let Some(why) = failed {
            self.mover.note(&format!("an extent goes again: {why}"));
        }
        self.held.settle(number, failed)?;
        if failed.is_none() {
            let _nobody_hears = self.mover.to.send(Said::Done(self.mover.number));
        }
        Ok(())
    }

    /// The path shall not idle, but nor shall one mover have two extents at the end and another none: the last is three
    /// quarters gone.
    fn wants_more(&self) -> bool {
        let left = self.assigned.saturating_sub(self.gone);
        let idle = self.held.is_empty() || left <= self.last / 4;
        idle && !self.enough && Instant::now() >= self.poll
    }

    fn get_more(&mut self) -> Result<()> {
        self.poll = Instant::now() + POLL;
        let Some(lease) = self.mover.take()? else {
            if self.held.is_empty() && self.mover.is_over()? {
                self.enough()?;
            }
            return Ok(());
        };
        match Work::of(&lease)? {
            Work::Extent(extent) => {
                let bytes = lease.bytes;
                let number = self.held.take(lease);
                self.assign(number, bytes, extent)
            }
            Work::Plan => {
                self.plan = Some(lease);
                self.enough()
            }
        }
    }

    fn assign(&mut self, number: u64, bytes: u64, extent: Extent) -> Result<()> {
        self.last = bytes;
        self.assigned += bytes;
        // Who got one may get another at once.
        self.poll = Instant::now();
        self.say_until()?;
        self.source.tell(&ControlMsg::Assignment { number, extent })
    }

    fn say_until(&mut self) -> Result<()> {
        let millis = u32::try_from(self.held.left().as_millis()).unwrap_or(u32::MAX);
        self.source.tell(&ControlMsg::LeaseRemaining(millis))
    }

    fn enough(&mut self) -> Result<()> {
        self.enough = true;
        self.source.tell(&ControlMsg::NoMoreExtents)
    }
}
