// SPDX-License-Identifier: MIT OR Apache-2.0
//! `longhaul copy jobs`: lists the jobs in the database, and removes abandoned ones.

use super::work::{Spec, open};
use crate::copy::args::command::Jobs;
use anyhow::Result;
use longhaul_command::outln;
use longhaul_command::{console::escape, exit::Refusal};
use longhaul_leases::{JobStore, JobSummary};
use longhaul_units::{Bytes, Time};
use serde::Serialize;
use std::fmt;

/// Job in the list, as JSON and as text.
#[derive(Debug, Serialize)]
struct JobRecord {
    number: String,
    sources: Vec<String>,
    target: String,
    age_s: u64,
    idle_s: u64,
    extents: u64,
    done_extents: u64,
    failed_extents: u64,
    bytes: u64,
    done_bytes: u64,
    workers: Vec<String>,
}

/// Lists the jobs, or removes one.
pub(crate) fn manage_jobs(args: &Jobs) -> Result<()> {
    let job_store = open(&args.leases)?;
    let jobs = job_store.jobs()?;
    let Some(number) = &args.forget else {
        return jobs
            .iter()
            .try_for_each(|job| show(&job_store, job, args.json));
    };
    match jobs.iter().find(|job| job_number(job) == *number) {
        Some(job) => job_store.delete_job(job.job).map(drop).map_err(Into::into),
        None => Err(Refusal::usage(format!(
            "{number}: no job of {} has this number (without --forget all are listed)",
            job_store.label()
        ))),
    }
}

fn show(job_store: &JobStore, job: &JobSummary, json: bool) -> Result<()> {
    let status = job_store.status(job.job)?;
    let spec = Spec::read(&job.spec);
    let record = JobRecord {
        number: job_number(job),
        sources: spec.sources.iter().map(ToString::to_string).collect(),
        target: spec.target.to_string(),
        age_s: job.age.as_secs(),
        idle_s: job.idle.as_secs(),
        extents: job.tasks,
        done_extents: status.done.tasks,
        failed_extents: status.failed.tasks,
        bytes: job.bytes,
        done_bytes: status.done.bytes,
        workers: status
            .holders
            .into_iter()
            .map(|holder| holder.name)
            .collect(),
    };
    if json {
        outln!("{}", serde_json::to_string(&record)?);
    } else {
        outln!("{record}");
    }
    Ok(())
}

/// Returns the number of a job in the list: the first bytes of its hash, in hexadecimal.
fn job_number(job: &JobSummary) -> String {
    let first = job.name.iter().take(4);
    first.map(|byte| format!("{byte:02x}")).collect()
}

impl fmt::Display for JobRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = |seconds| Time::from_secs(seconds);
        write!(
            f,
            "{}  {} to {}: {} of {}, {} of {} extents",
            self.number,
            escape(&self.sources.join(" ")),
            escape(&self.target),
            Bytes::new(self.done_bytes),
            Bytes::new(self.bytes),
            self.done_extents,
            self.extents
        )?;
        if self.failed_extents > 0 {
            write!(f, ", {} failed", self.failed_extents)?;
        }
        let (age, quiet) = (time(self.age_s), time(self.idle_s));
        write!(f, "; started {age} ago, last activity {quiet} ago")?;
        self.workers
            .iter()
            .try_for_each(|worker| write!(f, "\n  {}", escape(worker)))
    }
}
