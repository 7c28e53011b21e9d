// SPDX-License-Identifier: MIT OR Apache-2.0
//! All workers of this process: started, monitored and displayed together.

use super::{
    completeness,
    work::SharedJob,
    worker::{JobRemoval, Worker, WorkerEvent},
};
use crate::copy::{
    progress::{
        copy_progress::CopyProgress,
        monitor::{CopyMonitor, SessionSink as _},
        record::{JobTotals, Record, WorkerTotals},
    },
    session::{follow::POLL_INTERVAL, job::Job, sharing},
};
use anyhow::{Result, bail};
use longhaul_command::threads;
use std::{
    sync::mpsc::{Receiver, RecvTimeoutError, channel},
    thread,
    time::{Duration, Instant},
};

/// Interval of checks whether the job is still in the database. The workers of a removed job stop.
const PRESENCE_INTERVAL: Duration = Duration::from_secs(1);

/// Interval of reads of the job's status from the database.
const STATUS_INTERVAL: Duration = Duration::from_secs(5);

/// Copies the file data, together with the workers of other processes. Then `finish` copies the rest, from the given pair
/// of hosts on.
pub(crate) fn copy_shared(
    job: &Job<'_>,
    address: &str,
    monitor: &mut CopyMonitor,
    finish: impl FnOnce(usize, &mut CopyMonitor) -> Result<()>,
) -> Result<()> {
    let shared = copy_file_data(job, address, monitor)?;
    finish(shared.last_pair, monitor)?;
    shared.remove();
    Ok(())
}

fn copy_file_data(job: &Job<'_>, address: &str, monitor: &mut CopyMonitor) -> Result<SharedJob> {
    // The check of the target creates its directory.
    sharing::check_sources_shared(job)?;
    sharing::check_target_shared(job)?;
    let mut shared = SharedJob::join(job, address)?;
    let count = job
        .config
        .workers
        .count
        .map_or(job.config.pair_count(), usize::from);
    let (to, from) = channel();
    let job_removal = JobRemoval::default();
    let workers =
        (0..count).map(|number| Worker::new(job, &shared, number, to.clone(), &job_removal));
    let workers: Vec<Worker<'_>> = workers.collect::<Result<_>>()?;
    drop(to);
    let (last_worker, results) = thread::scope(|scope| {
        let work = |worker: Worker<'_>| {
            let result = worker.run();
            // The removal of the job concerns all workers alike, so the command reports it once.
            if let Err(error) = &result
                && !worker.is_job_removed()
            {
                worker.print_note(&format!("{error:#}"));
            }
            result
        };
        let workers = workers.into_iter();
        let threads = workers.map(|worker| threads::spawn_scoped(scope, move || work(worker)));
        let threads: Vec<_> = threads.collect();
        let last_worker = WorkerMonitor::new(count).follow(&shared, monitor, &from, &job_removal);
        let results = threads.into_iter().map(|thread| match thread {
            Ok(thread) => thread.join(),
            Err(error) => Ok(Err(error)),
        });
        (last_worker, results.collect::<Vec<_>>())
    });
    shared.last_pair = last_worker;
    let mut failed = None;
    for result in results {
        match result {
            Ok(Ok(())) => return Ok(shared),
            Ok(Err(error)) => failed = failed.or(Some(error)),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
    if job_removal.may_be_finished() && is_finished_by_others(job, monitor) {
        return Ok(shared);
    }
    match failed {
        Some(error) => Err(error),
        None => bail!("no worker was started"),
    }
}

/// Whether the target has all data of a job that is no longer in the database. Then the last session remains, as after a
/// job that this command has seen finished.
fn is_finished_by_others(job: &Job<'_>, monitor: &CopyMonitor) -> bool {
    monitor.print_note("this copy is no longer in the database: checking whether it is complete");
    completeness::is_complete(job).unwrap_or_else(|error| {
        monitor.print_note(&format!("the target cannot be checked: {error:#}"));
        false
    })
}

/// Monitor of all workers of this process.
struct WorkerMonitor {
    started_at: Instant,
    workers: Vec<CopyProgress>,
    /// Worker that finished an extent last.
    last_worker: usize,
    job_status: longhaul_leases::JobStatus,
    /// Time at which the status was read.
    status_read_at: Option<Instant>,
    /// Time of the next check whether the job exists.
    next_presence_check: Instant,
}

impl WorkerMonitor {
    fn new(count: usize) -> Self {
        let started_at = Instant::now();
        Self {
            started_at,
            workers: (0..count).map(|_| CopyProgress::new(started_at)).collect(),
            last_worker: 0,
            job_status: longhaul_leases::JobStatus::default(),
            status_read_at: None,
            next_presence_check: started_at + PRESENCE_INTERVAL,
        }
    }

    /// Receives events until all workers have ended, and returns the worker that finished an extent last. Records
    /// when the job is no longer in the database.
    fn follow(
        &mut self,
        shared: &SharedJob,
        monitor: &mut CopyMonitor,
        from: &Receiver<WorkerEvent>,
        job_removal: &JobRemoval,
    ) -> usize {
        loop {
            let now = Instant::now();
            if now >= self.next_presence_check {
                self.next_presence_check = now + PRESENCE_INTERVAL;
                // Without an answer of the database, the job counts as present.
                if matches!(shared.job_store.exists(shared.job), Ok(false)) {
                    job_removal.record();
                }
            }
            if self
                .status_read_at
                .is_none_or(|read_at| now >= read_at + STATUS_INTERVAL)
            {
                self.status_read_at = Some(now);
                // Without an answer the last status is shown.
                self.job_status = shared.status().unwrap_or_else(|_| self.job_status.clone());
            }
            monitor.show(|| self.record(now), now);
            match from.recv_timeout(POLL_INTERVAL) {
                Ok(event) => self.receive(event, monitor),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        let totals = match shared.status() {
            Ok(status) => {
                self.job_status = status;
                self.job_totals()
            }
            Err(_) => JobTotals::default(),
        };
        let totals = WorkerTotals {
            count: self.workers.len(),
            job: totals,
            seconds: self.started_at.elapsed().as_secs_f64(),
        };
        monitor.add_workers(totals, &self.record(Instant::now()));
        self.last_worker
    }

    fn receive(&mut self, event: WorkerEvent, monitor: &CopyMonitor) {
        match event {
            WorkerEvent::Progress(worker, role, progress) => {
                self.workers[worker].receive(role, *progress, Instant::now());
            }
            WorkerEvent::ExtentDone(worker) => self.last_worker = worker,
            WorkerEvent::SessionStarted(worker) => self.workers[worker].start_session(),
            WorkerEvent::Note(text) => monitor.print_note(&text),
        }
    }

    fn record(&self, now: Instant) -> Record {
        let workers = self
            .workers
            .iter()
            .map(|worker| worker.snapshot(now))
            .collect();
        let amounts = [
            &self.job_status.open,
            &self.job_status.waiting,
            &self.job_status.leased,
        ];
        let remaining: u64 = amounts.iter().map(|amount| amount.bytes).sum();
        Record::of_workers(
            workers,
            remaining,
            self.job_status.done.bytes + self.job_status.failed.bytes,
        )
    }

    fn job_totals(&self) -> JobTotals {
        JobTotals {
            // The plan itself is an extent in the database.
            extents: Some(self.job_status.done.tasks.saturating_sub(1)),
            failed: Some(self.job_status.failed.tasks),
            bytes: Some(self.job_status.done.bytes),
        }
    }
}
