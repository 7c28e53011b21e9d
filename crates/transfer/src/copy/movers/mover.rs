// SPDX-License-Identifier: MIT OR Apache-2.0
//! A mover: it takes extents, and has a pair of ends copy them, until nothing is left.

use super::{
    leases::HeldLeases,
    work::{SharedJob, Work, refuse_permanent},
};
use crate::{
    copy::{
        progress::retry::RetryPolicy,
        session::{
            follow::POLL_INTERVAL,
            job::{HostPair, Job},
            startup::SessionOutcome,
        },
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
pub(super) enum MoverEvent {
    Progress(usize, Role, Box<Progress>),
    /// It has brought an extent.
    ExtentDone(usize),
    /// Its next conversation counts from 0.
    SessionStarted(usize),
    Note(String),
}

/// One of them.
pub(super) struct Mover<'a> {
    pub(super) job: &'a Job<'a>,
    /// Its own connection.
    pub(super) board: Board,
    pub(super) leases_job: longhaul_leases::Job,
    pub(super) number: usize,
    /// As the database calls it.
    pub(super) name: String,
    pub(super) events: Sender<MoverEvent>,
    /// The job is no longer in the database.
    job_removed: &'a AtomicBool,
}

impl<'a> Mover<'a> {
    pub(super) fn new(
        job: &'a Job<'a>,
        shared: &SharedJob,
        number: usize,
        to: Sender<MoverEvent>,
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
            leases_job: shared.job,
            number,
            name: format!("{host} {process}.{number}: {}", job.pair(number)),
            events: to,
            job_removed: forgotten,
        })
    }

    pub(super) fn is_job_removed(&self) -> bool {
        self.job_removed.load(Ordering::Relaxed)
    }

    /// Asks the database whether the job is there. One that does not answer says nothing about the job.
    fn refresh_job_presence(&self) {
        if matches!(self.board.has(self.leases_job), Ok(false)) {
            self.job_removed.store(true, Ordering::Relaxed);
        }
    }

    /// An error if the job is no longer in the database, as another command had it.
    pub(super) fn check_job_exists(&self) -> Result<()> {
        match self.is_job_removed() {
            true => Err(job_removed_error()),
            false => Ok(()),
        }
    }

    pub(super) fn pair(&self) -> HostPair<'_> {
        self.job.pair(self.number)
    }

    pub(super) fn ttl(&self) -> Duration {
        Duration::from_nanos(self.job.config.lease_time.as_nanos())
    }

    /// Until nothing is left to do, or this one can't.
    pub(super) fn run(&self) -> Result<()> {
        let mut patience = RetryPolicy::default();
        loop {
            let (why, gained) = match self.run_once() {
                Ok(Some(SessionOutcome::Finished)) => {
                    patience = RetryPolicy::default();
                    continue;
                }
                Ok(None) => return Ok(()),
                Ok(Some(SessionOutcome::Broken { why, gained })) => (why, gained),
                Err(error) if error.is::<Refusal>() => return Err(error),
                Err(error) => (format!("{error:#}"), 0),
            };
            // A lease that is gone may be a job that is gone.
            self.refresh_job_presence();
            self.check_job_exists()?;
            let Some(pause) = patience.next_delay(gained > 0, Instant::now()) else {
                bail!("{why}; given up, the same command goes on from here");
            };
            self.print_note(&format!("{why}; going on in {} s", pause.as_secs_f32()));
            self.sleep(pause)?;
        }
    }

    /// Sleeps, but not for a job that is gone.
    fn sleep(&self, pause: Duration) -> Result<()> {
        let until = Instant::now() + pause;
        loop {
            self.check_job_exists()?;
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            thread::sleep(left.min(POLL_INTERVAL));
        }
    }

    /// One conversation, or a look whether there is anything to have one about; nothing if there never will be.
    fn run_once(&self) -> Result<Option<SessionOutcome>> {
        let Some(lease) = self.lease_next()? else {
            if self.is_job_finished()? {
                return Ok(None);
            }
            // Others have all that there is.
            thread::sleep(POLL);
            return Ok(Some(SessionOutcome::Finished));
        };
        match Work::of(&lease)? {
            Work::Plan => self.run_plan(lease).map(Some),
            Work::Extent(extent) => self.run_extents(lease, extent).map(Some),
        }
    }

    pub(super) fn lease_next(&self) -> Result<Option<Lease>> {
        let taken = self.board.take(self.leases_job, &self.name, 1, self.ttl());
        Ok(taken.map_err(refuse_permanent)?.into_iter().next())
    }

    pub(super) fn is_job_finished(&self) -> Result<bool> {
        match self.board.standing(self.leases_job) {
            Ok(standing) => Ok(standing.is_over()),
            Err(longhaul_leases::Error::NoJob) => {
                self.job_removed.store(true, Ordering::Relaxed);
                Err(job_removed_error())
            }
            Err(error) => Err(error.into()),
        }
    }

    pub(super) fn new_leases(&self) -> HeldLeases<'_> {
        HeldLeases::new(&self.board, self.ttl())
    }

    pub(super) fn print_note(&self, said: &str) {
        let said = format!("{}: {said}", self.pair());
        let _nobody_hears = self.events.send(MoverEvent::Note(said));
    }
}

fn job_removed_error() -> anyhow::Error {
    Refusal::usage(
        "another command removed this copy from the database (longhaul copy jobs --forget): what has arrived stays, and the \
         same command copies the rest",
    )
}
