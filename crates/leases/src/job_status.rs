// SPDX-License-Identifier: MIT OR Apache-2.0
//! Progress and results of a job.

use crate::{
    error::Error,
    job_store::{JobStore, Value, to_duration, to_u64},
    task::{Job, check_bound},
};
use std::time::Duration;
use tokio_postgres::{
    Error as PgError, GenericClient, IsolationLevel, Row,
    types::{ToSql, Type},
};

/// Maximum number of holders in a [`JobStatus`], those with most tasks first.
pub const HOLDERS_MAX: i64 = 1000;
/// Maximum number of failed tasks in a [`JobStatus`], in the order in which they were added.
pub const FAILURES_MAX: i64 = 100;
/// Maximum number of results that a call of [`JobStore::results`] returns.
pub const RESULTS_MAX: u32 = 1000;

/// Number of tasks, and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Number of tasks.
    pub tasks: u64,
    /// Bytes of the tasks, at most 2⁶³ − 1.
    pub bytes: u64,
}

/// Progress of a job at one point in time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobStatus {
    /// Tasks that can be acquired: at once, or after the pause that a release set.
    pub open: Totals,
    /// Tasks that wait until all tasks of a group are done.
    pub waiting: Totals,
    /// Leased tasks, including those whose lease has expired but that nobody has acquired since.
    pub leased: Totals,
    /// Completed tasks.
    pub done: Totals,
    /// Tasks that failed permanently.
    pub failed: Totals,
    /// Holders with their leases, at most [`HOLDERS_MAX`].
    pub holders: Vec<Holder>,
    /// Failed tasks with the reasons, at most [`FAILURES_MAX`].
    pub failures: Vec<FailedTask>,
}

/// Holder of leases.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Name given when the tasks were acquired.
    pub name: String,
    /// Tasks that the holder has leased.
    pub leased: Totals,
    /// Time since the oldest of its leases was acquired.
    pub since: Duration,
    /// Number of its leases that have expired because they were not renewed in time.
    pub expired: u64,
}

/// Task that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedTask {
    /// Key of the task.
    pub key: Vec<u8>,
    /// Holder that reported the failure.
    pub holder: String,
    /// Reason.
    pub reason: String,
    /// Number of acquisitions.
    pub tries: u32,
}

/// Task that is done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskResult {
    /// Position in the job's order, from which the next call for results continues.
    pub position: Position,
    /// Key of the task.
    pub key: Vec<u8>,
    /// Result passed to [`JobStore::complete`].
    pub result: Vec<u8>,
}

/// Position in a job's order of tasks. The default is before the first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position(i64);

impl JobStatus {
    /// Whether the job has ended: every task is done, has failed, or waits for one that failed.
    pub fn has_ended(&self) -> bool {
        self.open.tasks == 0 && self.leased.tasks == 0
    }

    /// Whether every task is done.
    pub fn is_done(&self) -> bool {
        self.has_ended() && self.failed.tasks == 0 && self.waiting.tasks == 0
    }
}

impl JobStore {
    /// Progress of the job. With 100,000 tasks it takes about a tenth of a second of the server's
    /// time.
    ///
    /// # Errors
    /// [`Error::JobNotFound`] if the job was deleted, and errors of the connection.
    pub fn status(&self, job: Job) -> Result<JobStatus, Error> {
        let found = self.call_with_retry(async |client| {
            let snapshot = client
                .build_transaction()
                .isolation_level(IsolationLevel::RepeatableRead)
                .read_only(true)
                .start()
                .await?;
            if !job_exists(&snapshot, job).await? {
                return Ok(None);
            }
            let mut status = JobStatus::default();
            for row in query(&snapshot, TOTALS, &job.0).await? {
                *status.totals_mut(row.try_get(0)?) = read_totals(&row, 1)?;
            }
            status.holders = read(&snapshot, HOLDERS, job, HOLDERS_MAX, read_holder).await?;
            status.failures =
                read(&snapshot, FAILURES, job, FAILURES_MAX, read_failed_task).await?;
            Ok(Some(status))
        })?;
        found.ok_or(Error::JobNotFound)
    }

    /// Whether the job exists. Reads one row.
    ///
    /// # Errors
    /// Errors of the connection.
    pub fn exists(&self, job: Job) -> Result<bool, Error> {
        self.call_with_retry(async |client| job_exists(client, job).await)
    }

    /// Results of completed tasks after `position`, in the order in which the tasks were added.
    /// Fewer than `limit` means that there are no more now. Tasks that complete later may have
    /// earlier positions, so read all results again when the job has ended.
    ///
    /// # Errors
    /// [`Error::TooLarge`] beyond [`RESULTS_MAX`], and errors of the connection.
    pub fn results(
        &self,
        job: Job,
        position: Position,
        limit: u32,
    ) -> Result<Vec<TaskResult>, Error> {
        check_bound(
            "the number of results to read",
            limit as usize,
            RESULTS_MAX as usize,
        )?;
        let limit = i64::from(limit);
        let values: [Value<'_>; 3] = [
            (&job.0, Type::INT8),
            (&position.0, Type::INT8),
            (&limit, Type::INT8),
        ];
        self.rows(RESULTS, &values, read_task_result)
    }
}

impl JobStatus {
    /// Totals that a row of [`TOTALS`] with this `kind` has.
    fn totals_mut(&mut self, kind: i32) -> &mut Totals {
        match kind {
            0 => &mut self.open,
            1 => &mut self.leased,
            2 => &mut self.done,
            3 => &mut self.failed,
            _ => &mut self.waiting,
        }
    }
}

/// Counts tasks by their stored state, or 4 for open tasks that wait. The list of unfinished groups
/// is read once, not for each task.
const TOTALS: &str = "
WITH unfinished AS (
    SELECT DISTINCT part_of FROM longhaul.extent WHERE job = $1 AND state <> 2 AND part_of IS NOT NULL
)
SELECT CASE WHEN e.state = 0 AND u.part_of IS NOT NULL THEN 4 ELSE e.state::integer END AS kind,
    count(*), least(sum(e.bytes), 9223372036854775807)::bigint
FROM longhaul.extent e LEFT JOIN unfinished u ON u.part_of = e.after
WHERE e.job = $1 GROUP BY kind";

const HOLDERS: &str = "
SELECT holder, count(*), least(sum(bytes), 9223372036854775807)::bigint,
    (extract(epoch FROM clock_timestamp() - min(since)) * 1000000)::bigint,
    count(*) FILTER (WHERE expires <= clock_timestamp())
FROM longhaul.extent WHERE job = $1 AND state = 1
GROUP BY holder ORDER BY count(*) DESC, holder LIMIT $2";

const FAILURES: &str = "
SELECT key, holder, why, tries
FROM longhaul.extent WHERE job = $1 AND state = 3 ORDER BY id LIMIT $2";

const RESULTS: &str = "
SELECT id, key, result
FROM longhaul.extent WHERE job = $1 AND state = 2 AND id > $2 ORDER BY id LIMIT $3";

async fn job_exists(client: &impl GenericClient, job: Job) -> Result<bool, PgError> {
    let sql = "SELECT FROM longhaul.job WHERE id = $1";
    Ok(!query(client, sql, &job.0).await?.is_empty())
}

async fn query(
    client: &impl GenericClient,
    sql: &str,
    job: &(dyn ToSql + Sync),
) -> Result<Vec<Row>, PgError> {
    client.query_typed(sql, &[(job, Type::INT8)]).await
}

async fn read<T>(
    client: &impl GenericClient,
    sql: &str,
    job: Job,
    limit: i64,
    read: fn(&Row) -> Result<T, PgError>,
) -> Result<Vec<T>, PgError> {
    let values: [Value<'_>; 2] = [(&job.0, Type::INT8), (&limit, Type::INT8)];
    client
        .query_typed(sql, &values)
        .await?
        .iter()
        .map(read)
        .collect()
}

fn read_totals(row: &Row, from: usize) -> Result<Totals, PgError> {
    Ok(Totals {
        tasks: to_u64(row.try_get(from)?),
        bytes: to_u64(row.try_get(from + 1)?),
    })
}

fn read_holder(row: &Row) -> Result<Holder, PgError> {
    Ok(Holder {
        name: read_text(row, 0)?,
        leased: read_totals(row, 1)?,
        since: to_duration(row.try_get(3)?),
        expired: to_u64(row.try_get(4)?),
    })
}

fn read_failed_task(row: &Row) -> Result<FailedTask, PgError> {
    let tries: i32 = row.try_get(3)?;
    Ok(FailedTask {
        key: row.try_get(0)?,
        holder: read_text(row, 1)?,
        reason: read_text(row, 2)?,
        tries: tries.cast_unsigned(),
    })
}

fn read_task_result(row: &Row) -> Result<TaskResult, PgError> {
    Ok(TaskResult {
        position: Position(row.try_get(0)?),
        key: row.try_get(1)?,
        result: row.try_get(2)?,
    })
}

/// Decodes a name or a reason, which is UTF-8. It is stored as bytes, because text columns do not
/// allow a NUL.
fn read_text(row: &Row, column: usize) -> Result<String, PgError> {
    let bytes: &[u8] = row.try_get(column)?;
    Ok(String::from_utf8_lossy(bytes).into_owned())
}
