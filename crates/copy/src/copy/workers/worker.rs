// SPDX-License-Identifier: MIT OR Apache-2.0
//! Worker: leases extents, and lets a pair of endpoints copy them, until none is left.

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
use longhaul_leases::{JobStore, Lease};
use std::{
    sync::{
        atomic::{AtomicBool, Ordering},
        mpsc::Sender,
    },
    thread,
    time::{Duration, Instant},
};

/// Interval of attempts to lease an extent.
pub(super) const LEASE_POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Event of a worker, with the index of the worker.
pub(super) enum WorkerEvent {
    Progress(usize, Role, Box<Progress>),
    /// An extent is done.
    ExtentDone(usize),
    /// A new session starts, which counts from 0.
    SessionStarted(usize),
    /// Line to print beside the progress display.
    Note(String),
}

/// Removal of the job from the database, as far as this process knows.
#[derive(Debug, Default)]
pub(super) struct JobRemoval {
    /// Whether the job is no longer in the database.
    is_removed: AtomicBool,
    /// Whether a worker held an extent then. So no other command had finished the job.
    was_unfinished: AtomicBool,
}

impl JobRemoval {
    pub(super) fn record(&self) {
        self.is_removed.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_removed(&self) -> bool {
        self.is_removed.load(Ordering::Relaxed)
    }

    /// Whether another command may have finished the job before it was removed.
    pub(super) fn may_be_finished(&self) -> bool {
        self.is_removed() && !self.was_unfinished.load(Ordering::Relaxed)
    }
}

/// One worker of this process.
pub(super) struct Worker<'a> {
    pub(super) job: &'a Job<'a>,
    /// Connection to the database of this worker.
    pub(super) job_store: JobStore,
    pub(super) leases_job: longhaul_leases::Job,
    pub(super) number: usize,
    /// Name of the worker in the database.
    pub(super) name: String,
    pub(super) events: Sender<WorkerEvent>,
    job_removal: &'a JobRemoval,
}

impl<'a> Worker<'a> {
    pub(super) fn new(
        job: &'a Job<'a>,
        shared: &SharedJob,
        number: usize,
        events: Sender<WorkerEvent>,
        job_removal: &'a JobRemoval,
    ) -> Result<Self> {
        let host = rustix::system::uname()
            .nodename()
            .to_string_lossy()
            .into_owned();
        let process = std::process::id();
        Ok(Self {
            job,
            job_store: shared.job_store.new_connection()?,
            leases_job: shared.job,
            number,
            name: format!("{host} {process}.{number}: {}", job.pair(number)),
            events,
            job_removal,
        })
    }

    pub(super) fn is_job_removed(&self) -> bool {
        self.job_removal.is_removed()
    }

    /// Records that the job was not finished, if it was removed while these leases were valid.
    pub(super) fn record_unfinished(&self, leases: &HeldLeases<'_>) {
        if self.is_job_removed() && leases.are_valid() {
            self.job_removal
                .was_unfinished
                .store(true, Ordering::Relaxed);
        }
    }

    /// Updates whether the job is in the database. No answer leaves it unchanged.
    fn refresh_job_presence(&self) {
        if matches!(self.job_store.exists(self.leases_job), Ok(false)) {
            self.job_removal.record();
        }
    }

    /// Fails if the job is no longer in the database, because another command removed it.
    pub(super) fn check_job_exists(&self) -> Result<()> {
        if self.is_job_removed() {
            Err(job_removed_error())
        } else {
            Ok(())
        }
    }

    pub(super) fn pair(&self) -> HostPair<'_> {
        self.job.pair(self.number)
    }

    pub(super) fn ttl(&self) -> Duration {
        Duration::from_nanos(self.job.config.workers.lease_time.as_nanos())
    }

    /// Runs until nothing is left to do, or the worker gives up.
    pub(super) fn run(&self) -> Result<()> {
        let mut retry_policy = RetryPolicy::default();
        loop {
            let (why, gained) = match self.run_once() {
                Ok(Some(SessionOutcome::Finished)) => {
                    retry_policy = RetryPolicy::default();
                    continue;
                }
                Ok(None) => return Ok(()),
                Ok(Some(SessionOutcome::Broken { why, gained })) => (why, gained),
                Err(error) if error.is::<Refusal>() => return Err(error),
                Err(error) => (format!("{error:#}"), 0),
            };
            // The lease may be lost because the job was removed.
            self.refresh_job_presence();
            self.check_job_exists()?;
            let Some(delay) = retry_policy.next_delay(gained > 0, Instant::now()) else {
                bail!("{why}; giving up, run the same command to resume");
            };
            self.print_note(&format!("{why}; retrying in {} s", delay.as_secs_f32()));
            self.sleep(delay)?;
        }
    }

    /// Sleeps, and fails if the job is removed meanwhile.
    fn sleep(&self, delay: Duration) -> Result<()> {
        let deadline = Instant::now() + delay;
        loop {
            self.check_job_exists()?;
            let remaining = deadline.saturating_duration_since(Instant::now());
            if remaining.is_zero() {
                return Ok(());
            }
            thread::sleep(remaining.min(POLL_INTERVAL));
        }
    }

    /// Runs one session, or one plan, if there is work. Returns `None` when the job is finished.
    fn run_once(&self) -> Result<Option<SessionOutcome>> {
        let Some(lease) = self.lease_next()? else {
            if self.is_job_finished()? {
                return Ok(None);
            }
            // Other workers have all remaining extents.
            thread::sleep(LEASE_POLL_INTERVAL);
            return Ok(Some(SessionOutcome::Finished));
        };
        match Work::of(&lease)? {
            Work::Plan => self.run_plan(lease).map(Some),
            Work::Extent(extent) => self.run_extents(lease, extent).map(Some),
        }
    }

    /// Leases the next extent, if one is available.
    pub(super) fn lease_next(&self) -> Result<Option<Lease>> {
        let leased = self
            .job_store
            .acquire(self.leases_job, &self.name, 1, self.ttl());
        Ok(leased.map_err(refuse_permanent)?.into_iter().next())
    }

    /// Whether all extents are done or failed.
    pub(super) fn is_job_finished(&self) -> Result<bool> {
        match self.job_store.status(self.leases_job) {
            Ok(status) => Ok(status.has_ended()),
            Err(longhaul_leases::Error::JobNotFound) => {
                self.job_removal.record();
                Err(job_removed_error())
            }
            Err(error) => Err(error.into()),
        }
    }

    pub(super) fn new_leases(&self) -> HeldLeases<'_> {
        HeldLeases::new(&self.job_store, self.ttl())
    }

    /// Prints a line beside the progress display, with the pair of hosts.
    pub(super) fn print_note(&self, text: &str) {
        let text = format!("{}: {text}", self.pair());
        let _receiver_gone = self.events.send(WorkerEvent::Note(text));
    }
}

fn job_removed_error() -> anyhow::Error {
    Refusal::usage(
        "another command removed this copy from the database (longhaul copy jobs --forget): what was copied stays, and the \
         same command resumes",
    )
}
