// SPDX-License-Identifier: MIT OR Apache-2.0
//! A conversation about extents: its ends stay, and get another extent before they are done with the last.

use super::{
    leases::Leases,
    mover::{Mover, POLL, Said, TICK},
    work::Work,
};
use crate::{
    copy::conversation::{
        far::Far,
        follow::LAST_WORDS,
        meeting::{Ending, Met},
    },
    protocol::{
        order::{Extent, Role, Task, Word},
        report::{Progress, Report},
    },
};
use anyhow::Result;
use longhaul_command::exit::Refusal;
use longhaul_leases::Lease;
use std::{
    sync::mpsc::{Receiver, RecvTimeoutError, channel},
    time::Instant,
};

type Heard = (Role, Option<Report>);

struct Conversation<'a> {
    mover: &'a Mover<'a>,
    source: Far,
    /// Dropped, it ends.
    _target: Far,
    held: Leases<'a>,
    from: Receiver<Heard>,
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

/// Two ends that have met, and what they say.
struct Ends {
    source: Far,
    target: Far,
    from: Receiver<Heard>,
}

impl Mover<'_> {
    /// Copies an extent, and others after it while there are any.
    pub(super) fn converse(&self, lease: Lease, extent: Extent) -> Result<Ending> {
        let _nobody_hears = self.to.send(Said::Again(self.number));
        let bytes = lease.bytes;
        let mut held = self.holding();
        let number = held.take(lease);
        let ends = held.renewing(|| self.ends());
        let ends = match ends.and_then(|ends| ends) {
            Ok(Ok(ends)) => ends,
            other => {
                held.give_all_back("the ends did not begin");
                return other.map(|ends| ends.err().unwrap_or(Ending::Over));
            }
        };
        let mut conversation = Conversation::new(self, ends, held);
        let ending = conversation
            .assign(number, bytes, extent)
            .and_then(|()| conversation.follow());
        conversation.end(ending)
    }

    /// Both, or how it ended before they were.
    fn ends(&self) -> Result<Result<Ends, Ending>> {
        let (mut source, mut target) = match self.job.meet(self.pair(), Task::Extents)? {
            Met::Both { source, target } => (source, target),
            Met::Early(ending) => return Ok(Err(ending)),
        };
        let (to, from) = channel();
        source.report_to(Role::Source, to.clone())?;
        target.report_to(Role::Target, to)?;
        Ok(Ok(Ends {
            source,
            target,
            from,
        }))
    }
}

impl<'a> Conversation<'a> {
    fn new(mover: &'a Mover<'a>, ends: Ends, held: Leases<'a>) -> Self {
        Self {
            mover,
            source: ends.source,
            _target: ends.target,
            held,
            from: ends.from,
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

impl Conversation<'_> {
    fn follow(&mut self) -> Result<Ending> {
        loop {
            if let Some(silent) = self.silent() {
                return Ok(silent);
            }
            self.mover.check_presence()?;
            if self.held.renew()? {
                self.say_until()?;
            }
            if self.wants_more() {
                self.get_more()?;
            }
            match self.from.recv_timeout(TICK) {
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    return Ok(self.broken("both ends went away"));
                }
                Ok((role, report)) => {
                    if let Some(ending) = self.hear(role, report)? {
                        return Ok(ending);
                    }
                }
            }
        }
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

    fn hear(&mut self, role: Role, report: Option<Report>) -> Result<Option<Ending>> {
        let one = self.heard.iter_mut().find(|(of, _)| *of == role);
        one.into_iter().for_each(|one| one.1 = Instant::now());
        match report {
            Some(Report::Progress(progress)) => self.progress(role, progress),
            Some(Report::Done { number, failed }) => self.done(number, failed.as_deref())?,
            // What could not be copied the last conversation tries again, and says.
            Some(Report::Problem(problem)) => tracing::debug!("{}: {problem}", self.mover.name),
            Some(Report::Over(progress)) => {
                self.progress(role, progress);
                self.await_other(role);
                return Ok(Some(Ending::Over));
            }
            Some(Report::Broken(why)) => return Ok(Some(self.broken(&why))),
            Some(Report::Refused(why)) => return Err(Refusal::usage(why)),
            Some(_) => {}
            None => {
                return Ok(Some(self.broken(&format!("the {} went away", role.name()))));
            }
        }
        Ok(None)
    }

    /// One end has said that all is done; the other says so too, or was killed then.
    fn await_other(&mut self, first: Role) {
        let until = Instant::now() + LAST_WORDS;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match self.from.recv_timeout(left) {
                Ok((role, Some(Report::Over(progress)))) => return self.progress(role, progress),
                Ok((role, None)) if role != first => return,
                Ok(_) => {}
                Err(_) => return,
            }
        }
    }

    /// An end that is stuck must not keep what others could do.
    fn silent(&self) -> Option<Ending> {
        let ttl = self.mover.ttl();
        let silent = self.heard.iter().find(|(_, heard)| heard.elapsed() > ttl);
        silent.map(|(role, _)| {
            let (who, seconds) = (role.name(), ttl.as_secs_f32());
            self.broken(&format!("the {who} has said nothing for {seconds} s"))
        })
    }

    fn broken(&self, why: &str) -> Ending {
        Ending::Broken {
            why: why.to_owned(),
            gained: self.gained,
        }
    }

    fn progress(&mut self, role: Role, progress: Progress) {
        match role {
            Role::Source => self.gone = progress.sent + progress.there,
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
        self.source.tell(&Word::Assignment { number, extent })
    }

    fn say_until(&mut self) -> Result<()> {
        let millis = u32::try_from(self.held.left().as_millis()).unwrap_or(u32::MAX);
        self.source.tell(&Word::Until(millis))
    }

    fn enough(&mut self) -> Result<()> {
        self.enough = true;
        self.source.tell(&Word::Enough)
    }
}
