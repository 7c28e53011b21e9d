// SPDX-License-Identifier: MIT OR Apache-2.0
//! All movers of this process: started, followed and shown together.

use super::{
    mover::{Mover, Said},
    work::Shared,
};
use crate::copy::{
    conversation::{follow::TICK, job::Job, sharing},
    progress::{
        hearing::{Hearing, Narrator as _},
        record::{Brought, Record},
        standing::Standing,
    },
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
const PRESENCE_EVERY: Duration = Duration::from_secs(1);

/// How often the database is asked how all is.
const ALL_EVERY: Duration = Duration::from_secs(5);

/// Brings the data, with everybody who does the same. Whoever has the result may forget the job.
pub(crate) fn run(job: &Job<'_>, address: &str, hearing: &mut Hearing) -> Result<Shared> {
    sharing::must_be_shared(job)?;
    sharing::sources_must_be_shared(job)?;
    let mut shared = Shared::join(job, address)?;
    let count = job.config.movers.map_or(job.config.pairs(), usize::from);
    let (to, from) = channel();
    let forgotten = AtomicBool::new(false);
    let movers = (0..count).map(|number| Mover::new(job, &shared, number, to.clone(), &forgotten));
    let movers: Vec<Mover<'_>> = movers.collect::<Result<_>>()?;
    drop(to);
    let (pair, ended) = thread::scope(|scope| {
        let work = |mover: Mover<'_>| {
            let ended = mover.work();
            // What concerns all movers alike is the command's error, and said once.
            if let Err(error) = &ended
                && !mover.is_forgotten()
            {
                mover.note(&format!("{error:#}"));
            }
            ended
        };
        let movers = movers.into_iter();
        let threads = movers.map(|mover| threads::spawn_scoped(scope, move || work(mover)));
        let threads: Vec<_> = threads.collect();
        let pair = Movers::new(count).follow(&shared, hearing, &from, &forgotten);
        let ended = threads.into_iter().map(|thread| match thread {
            Ok(thread) => thread.join(),
            Err(error) => Ok(Err(error)),
        });
        (pair, ended.collect::<Vec<_>>())
    });
    shared.pair = pair;
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
struct Movers {
    began: Instant,
    movers: Vec<Standing>,
    /// Who brought an extent last.
    last: usize,
    all: longhaul_leases::Standing,
    /// When that was asked for.
    asked: Option<Instant>,
    /// When it is asked next whether the job is still there.
    presence: Instant,
}

impl Movers {
    fn new(count: usize) -> Self {
        let began = Instant::now();
        Self {
            began,
            movers: (0..count).map(|_| Standing::new(began)).collect(),
            last: 0,
            all: longhaul_leases::Standing::default(),
            asked: None,
            presence: began + PRESENCE_EVERY,
        }
    }

    /// Until all have ended; whose pair worked last. Sets `forgotten` when the job is gone.
    fn follow(
        &mut self,
        shared: &Shared,
        hearing: &mut Hearing,
        from: &Receiver<Said>,
        forgotten: &AtomicBool,
    ) -> usize {
        loop {
            let now = Instant::now();
            if now >= self.presence {
                self.presence = now + PRESENCE_EVERY;
                // A database that does not answer says nothing about the job.
                if matches!(shared.board.has(shared.job), Ok(false)) {
                    forgotten.store(true, Ordering::Relaxed);
                }
            }
            if self.asked.is_none_or(|asked| now >= asked + ALL_EVERY) {
                self.asked = Some(now);
                // What can't be asked is shown as it was.
                self.all = shared.standing().unwrap_or_else(|_| self.all.clone());
            }
            hearing.show(|| self.record(now), now);
            match from.recv_timeout(TICK) {
                Ok(said) => self.hear(said, hearing),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        self.all = shared.standing().unwrap_or_else(|_| self.all.clone());
        hearing.brought(self.brought(), &self.record(Instant::now()));
        self.last
    }

    fn hear(&mut self, said: Said, hearing: &Hearing) {
        match said {
            Said::Progress(mover, role, progress) => {
                self.movers[mover].hear(role, *progress, Instant::now());
            }
            Said::Done(mover) => self.last = mover,
            Said::Again(mover) => self.movers[mover].again(),
            Said::Note(said) => hearing.note(&said),
        }
    }

    fn record(&self, now: Instant) -> Record {
        let movers = self.movers.iter().map(|mover| mover.now(now)).collect();
        let amounts = [&self.all.open, &self.all.waiting, &self.all.leased];
        let left: u64 = amounts.iter().map(|amount| amount.bytes).sum();
        Record::together(movers, left, self.all.done.bytes + self.all.failed.bytes)
    }

    fn brought(&self) -> Brought {
        Brought {
            movers: self.movers.len(),
            // The plan is one.
            extents: self.all.done.extents.saturating_sub(1),
            failed: self.all.failed.extents,
            bytes: self.all.done.bytes,
            seconds: self.began.elapsed().as_secs_f64(),
        }
    }
}
