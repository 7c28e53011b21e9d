// SPDX-License-Identifier: MIT OR Apache-2.0
//! All movers of this process: started, followed and shown together.

use super::{
    mover::{Mover, MoverEvent},
    work::SharedJob,
};
use crate::copy::{
    progress::{
        copy_progress::CopyProgress,
        monitor::{CopyMonitor, SessionSink as _},
        record::{MoverTotals, Record},
    },
    session::{follow::POLL_INTERVAL, job::Job, sharing},
};
use anyhow::{Result, bail};
use longhaul_command::threads;
use std::{
    sync::{
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, RecvTimeoutError, channel},
    },
    thread,
    time::{Duration, Instant},
};

/// How often the database is asked whether the job is still there, so that movers of a job that was forgotten end.
const PRESENCE_INTERVAL: Duration = Duration::from_secs(1);

/// How often the database is asked how all is.
const STATUS_INTERVAL: Duration = Duration::from_secs(5);

/// Brings the data, with everybody who does the same. Whoever has the result may forget the job.
pub(crate) fn run(job: &Job<'_>, address: &str, hearing: &mut CopyMonitor) -> Result<SharedJob> {
    sharing::check_target_shared(job)?;
    sharing::check_sources_shared(job)?;
    let mut shared = SharedJob::join(job, address)?;
    let count = job
        .config
        .movers
        .map_or(job.config.pair_count(), usize::from);
    let (to, from) = channel();
    let forgotten = AtomicBool::new(false);
    let movers = (0..count).map(|number| Mover::new(job, &shared, number, to.clone(), &forgotten));
    let movers: Vec<Mover<'_>> = movers.collect::<Result<_>>()?;
    drop(to);
    let (pair, ended) = thread::scope(|scope| {
        let work = |mover: Mover<'_>| {
            let ended = mover.run();
            // What concerns all movers alike is the command's error, and said once.
            if let Err(error) = &ended
                && !mover.is_job_removed()
            {
                mover.print_note(&format!("{error:#}"));
            }
            ended
        };
        let movers = movers.into_iter();
        let threads = movers.map(|mover| threads::spawn_scoped(scope, move || work(mover)));
        let threads: Vec<_> = threads.collect();
        let pair = MoverMonitor::new(count).follow(&shared, hearing, &from, &forgotten);
        let ended = threads.into_iter().map(|thread| match thread {
            Ok(thread) => thread.join(),
            Err(error) => Ok(Err(error)),
        });
        (pair, ended.collect::<Vec<_>>())
    });
    shared.last_pair = pair;
    let mut failed = None;
    for ended in ended {
        match ended {
            Ok(Ok(())) => return Ok(shared),
            Ok(Err(error)) => failed = failed.or(Some(error)),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
    match failed {
        Some(error) => Err(error),
        None => bail!("no mover did anything"),
    }
}

/// All movers of this process, as they are shown.
struct MoverMonitor {
    started_at: Instant,
    movers: Vec<CopyProgress>,
    /// Who brought an extent last.
    last_mover: usize,
    job_status: longhaul_leases::Standing,
    /// When that was asked for.
    status_read_at: Option<Instant>,
    /// When it is asked next whether the job is still there.
    next_presence_check: Instant,
}

impl MoverMonitor {
    fn new(count: usize) -> Self {
        let began = Instant::now();
        Self {
            started_at: began,
            movers: (0..count).map(|_| CopyProgress::new(began)).collect(),
            last_mover: 0,
            job_status: longhaul_leases::Standing::default(),
            status_read_at: None,
            next_presence_check: began + PRESENCE_INTERVAL,
        }
    }

    /// Until all have ended; whose pair worked last. Sets `forgotten` when the job is gone.
    fn follow(
        &mut self,
        shared: &SharedJob,
        hearing: &mut CopyMonitor,
        from: &Receiver<MoverEvent>,
        forgotten: &AtomicBool,
    ) -> usize {
        loop {
            let now = Instant::now();
            if now >= self.next_presence_check {
                self.next_presence_check = now + PRESENCE_INTERVAL;
                // A database that does not answer says nothing about the job.
                if matches!(shared.board.has(shared.job), Ok(false)) {
                    forgotten.store(true, Ordering::Relaxed);
                }
            }
            if self
                .status_read_at
                .is_none_or(|asked| now >= asked + STATUS_INTERVAL)
            {
                self.status_read_at = Some(now);
                // What can't be asked is shown as it was.
                self.job_status = shared.status().unwrap_or_else(|_| self.job_status.clone());
            }
            hearing.show(|| self.record(now), now);
            match from.recv_timeout(POLL_INTERVAL) {
                Ok(said) => self.receive(said, hearing),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        self.job_status = shared.status().unwrap_or_else(|_| self.job_status.clone());
        hearing.add_movers(self.totals(), &self.record(Instant::now()));
        self.last_mover
    }

    fn receive(&mut self, said: MoverEvent, hearing: &CopyMonitor) {
        match said {
            MoverEvent::Progress(mover, role, progress) => {
                self.movers[mover].receive(role, *progress, Instant::now());
            }
            MoverEvent::ExtentDone(mover) => self.last_mover = mover,
            MoverEvent::SessionStarted(mover) => self.movers[mover].start_session(),
            MoverEvent::Note(said) => hearing.print_note(&said),
        }
    }

    fn record(&self, now: Instant) -> Record {
        let movers = self
            .movers
            .iter()
            .map(|mover| mover.snapshot(now))
            .collect();
        let amounts = [
            &self.job_status.open,
            &self.job_status.waiting,
            &self.job_status.leased,
        ];
        let left: u64 = amounts.iter().map(|amount| amount.bytes).sum();
        Record::of_movers(
            movers,
            left,
            self.job_status.done.bytes + self.job_status.failed.bytes,
        )
    }

    fn totals(&self) -> MoverTotals {
        MoverTotals {
            movers: self.movers.len(),
            // The plan is one.
            extents: self.job_status.done.extents.saturating_sub(1),
            failed: self.job_status.failed.extents,
            bytes: self.job_status.done.bytes,
            seconds: self.started_at.elapsed().as_secs_f64(),
        }
    }
}
