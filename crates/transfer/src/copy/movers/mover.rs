// SPDX-License-Identifier: MIT OR Apache-2.0
//! A mover: it takes extents, and has a pair of ends copy them, until nothing is left.

use super::{
    leases::Leases,
    work::{Shared, Work, wrong},
};
use crate::{
    copy::{
        conversation::{
            follow::TICK,
            job::{Job, Pair},
            meeting::Ending,
        },
        progress::patience::Patience,
    },
    protocol::{control::Role, report::Progress},
};
use anyhow::{Result, bail};
use longhaul_command::exit::Refusal;
use longhaul_leases::{Board, Lease};
use std::{
    sync::{
        atomic::{AtomicBool, Ordering},
        mpsc::Sender,
    },
    thread,
    time::{Duration, Instant},
};

/// Between two looks whether there is something to take, or more.
pub(super) const POLL: Duration = Duration::from_secs(1);

/// What a mover tells.
pub(super) enum Said {
    Progress(usize, Role, Box<Progress>),
    /// It has brought an extent.
    Done(usize),
    /// Its next conversation counts from 0.
    Again(usize),
    Note(String),
}

/// One of them.
pub(super) struct Mover<'a> {
    pub(super) job: &'a Job<'a>,
    /// Its own connection.
    pub(super) board: Board,
    pub(super) shared: longhaul_leases::Job,
    pub(super) number: usize,
    /// As the database calls it.
    pub(super) name: String,
    pub(super) to: Sender<Said>,
    /// The job is no longer in the database.
    forgotten: &'a AtomicBool,
}

impl<'a> Mover<'a> {
    pub(super) fn new(
        job: &'a Job<'a>,
        shared: &Shared,
        number: usize,
        to: Sender<Said>,
        forgotten: &'a AtomicBool,
    ) -> Result<Self> {
        let host = rustix::system::uname()
            .nodename()
            .to_string_lossy()
            .into_owned();
        let process = std::process::id();
        Ok(Self {
            job,
            board: shared.board.another()?,
            shared: shared.job,
            number,
            name: format!("{host} {process}.{number}: {}", job.pair(number)),
            to,
            forgotten,
        })
    }

    pub(super) fn is_forgotten(&self) -> bool {
        self.forgotten.load(Ordering::Relaxed)
    }

    /// Asks the database whether the job is there. One that does not answer says nothing about the job.
    fn ask_presence(&self) {
        if matches!(self.board.has(self.shared), Ok(false)) {
            self.forgotten.store(true, Ordering::Relaxed);
        }
    }

    /// An error if the job is no longer in the database, as another command had it.
    pub(super) fn check_presence(&self) -> Result<()> {
        match self.is_forgotten() {
            true => Err(forgotten()),
            false => Ok(()),
        }
    }

    pub(super) fn pair(&self) -> Pair<'_> {
        self.job.pair(self.number)
    }

    pub(super) fn ttl(&self) -> Duration {
        Duration::from_nanos(self.job.config.lease_time.as_nanos())
    }

    /// Until nothing is left to do, or this one can't.
    pub(super) fn work(&self) -> Result<()> {
        let mut patience = Patience::default();
        loop {
            let (why, gained) = match self.step() {
                Ok(Some(Ending::Over)) => {
                    patience = Patience::default();
                    continue;
                }
                Ok(None) => return Ok(()),
                Ok(Some(Ending::Broken { why, gained })) => (why, gained),
                Err(error) if error.is::<Refusal>() => return Err(error),
                Err(error) => (format!("{error:#}"), 0),
            };
            // A lease that is gone may be a job that is gone.
            self.ask_presence();
            self.check_presence()?;
            let Some(pause) = patience.lose(gained > 0, Instant::now()) else {
                bail!("{why}; given up, the same command goes on from here");
            };
            self.note(&format!("{why}; going on in {} s", pause.as_secs_f32()));
            self.sleep(pause)?;
        }
    }

    /// Sleeps, but not for a job that is gone.
    fn sleep(&self, pause: Duration) -> Result<()> {
        let until = Instant::now() + pause;
        loop {
            self.check_presence()?;
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            thread::sleep(left.min(TICK));
        }
    }

    /// One conversation, or a look whether there is anything to have one about; nothing if there never will be.
    fn step(&self) -> Result<Option<Ending>> {
        let Some(lease) = self.take()? else {
            if self.is_over()? {
                return Ok(None);
            }
            // Others have all that there is.
            thread::sleep(POLL);
            return Ok(Some(Ending::Over));
        };
        match Work::of(&lease)? {
            Work::Plan => self.plan(lease).map(Some),
            Work::Extent(extent) => self.converse(lease, extent).map(Some),
        }
    }

    pub(super) fn take(&self) -> Result<Option<Lease>> {
        let taken = self.board.take(self.shared, &self.name, 1, self.ttl());
        Ok(taken.map_err(wrong)?.into_iter().next())
    }

    pub(super) fn is_over(&self) -> Result<bool> {
        match self.board.standing(self.shared) {
            Ok(standing) => Ok(standing.is_over()),
            Err(longhaul_leases::Error::NoJob) => {
                self.forgotten.store(true, Ordering::Relaxed);
                Err(forgotten())
            }
            Err(error) => Err(error.into()),
        }
    }

    pub(super) fn holding(&self) -> Leases<'_> {
        Leases::new(&self.board, self.ttl())
    }

    pub(super) fn note(&self, said: &str) {
        let said = format!("{}: {said}", self.pair());
        let _nobody_hears = self.to.send(Said::Note(said));
    }
}

fn forgotten() -> anyhow::Error {
    Refusal::usage(
        "another command removed this copy from the database (longhaul copy jobs --forget): what has arrived stays, and the \
         same command copies the rest",
    )
}
