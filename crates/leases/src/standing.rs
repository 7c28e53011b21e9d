// SPDX-License-Identifier: MIT OR Apache-2.0
//! Progress and results of a job.

use crate::{
    board::{Board, Value, count, duration},
    error::Error,
    extent::{Job, bounded},
};
use std::time::Duration;
use tokio_postgres::{
    Error as Said, GenericClient, IsolationLevel, Row,
    types::{ToSql, Type},
};

/// Maximum number of holders in a [`Standing`], those with most tasks first.
pub const HOLDERS_MAX: i64 = 1000;
/// Maximum number of failed tasks in a [`Standing`], in the order in which they were added.
pub const FAILURES_MAX: i64 = 100;
/// Maximum number of results that a call of [`Board::results`] returns.
pub const RESULTS_MAX: u32 = 1000;

/// Number of tasks, and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// Number of tasks.
    pub extents: u64,
    /// Bytes of the tasks, at most 2⁶³ − 1.
    pub bytes: u64,
}

/// Progress of a job at one point in time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// Tasks that can be acquired, at once or after the pause of a release.
    pub open: Amount,
    /// Tasks that wait for a group.
    pub waiting: Amount,
    /// Leased tasks, including expired ones that no other holder has acquired.
    pub leased: Amount,
    /// Completed tasks.
    pub done: Amount,
    /// Tasks that failed permanently.
    pub failed: Amount,
    /// Holders with their leases, at most [`HOLDERS_MAX`].
    pub holders: Vec<Holder>,
    /// Failed tasks with the reasons, at most [`FAILURES_MAX`].
    pub failures: Vec<Failure>,
}

/// Holder of leases.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Name given when the tasks were acquired.
    pub name: String,
    /// Tasks that the holder has leased.
    pub has: Amount,
    /// Time since its oldest acquisition.
    pub since: Duration,
    /// Number of its leases that have expired because they were not renewed in time.
    pub over: u64,
}

/// Task that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Key of the task.
    pub key: Vec<u8>,
    /// Holder that reported the failure.
    pub holder: String,
    /// Reason.
    pub why: String,
    /// Number of acquisitions.
    pub tries: u32,
}

/// Task that is done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Position in the job's order, from which the next call for results continues.
    pub position: Position,
    /// Key of the task.
    pub key: Vec<u8>,
    /// Result passed to [`Board::done`].
    pub result: Vec<u8>,
}

/// Position in a job's order of tasks. The default is before the first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position(i64);

impl Standing {
    /// Whether the job has ended: every task is done, has failed, or waits for one that failed.
    pub fn is_over(&self) -> bool {
        self.open.extents == 0 && self.leased.extents == 0
    }

    /// Whether every task is done.
    pub fn is_done(&self) -> bool {
        self.is_over() && self.failed.extents == 0 && self.waiting.extents == 0
    }
}

impl Board {
    /// Progress of the job. With 100,000 tasks it takes about a tenth of a second of the server's
    /// time.
    ///
    /// # Errors
    /// [`Error::NoJob`] if the job was deleted, and errors of the connection.
    pub fn standing(&self, job: Job) -> Result<Standing, Error> {
        let found = self.repeatable(async |client| {
            let snapshot = client
                .build_transaction()
                .isolation_level(IsolationLevel::RepeatableRead)
                .read_only(true)
                .start()
                .await?;
            if !is_there(&snapshot, job).await? {
                return Ok(None);
            }
            let mut standing = Standing::default();
            for row in ask(&snapshot, AMOUNTS, &job.0).await? {
                *standing.amount(row.try_get(0)?) = amount(&row, 1)?;
            }
            standing.holders = read(&snapshot, HOLDERS, job, HOLDERS_MAX, holder).await?;
            standing.failures = read(&snapshot, FAILURES, job, FAILURES_MAX, failure).await?;
            Ok(Some(standing))
        })?;
        found.ok_or(Error::NoJob)
    }

    /// Whether the job exists. Reads one row.
    ///
    /// # Errors
    /// Errors of the connection.
    pub fn has(&self, job: Job) -> Result<bool, Error> {
        self.repeatable(async |client| is_there(client, job).await)
    }

    /// Results of completed tasks after `position`, in the order in which the tasks were added.
    /// Fewer than `limit` means that there are no more now. Tasks that complete later may have
    /// earlier positions, so read all results again when the job has ended.
    ///
    /// # Errors
    /// [`Error::TooLarge`] beyond [`RESULTS_MAX`], and errors of the connection.
    pub fn results(&self, job: Job, position: Position, limit: u32) -> Result<Vec<Outcome>, Error> {
        bounded(
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
        self.rows(RESULTS, &values, outcome)
    }
}

impl Standing {
    /// Total for a `kind` of [`AMOUNTS`].
    fn amount(&mut self, kind: i32) -> &mut Amount {
        match kind {
            0 => &mut self.open,
            1 => &mut self.leased,
            2 => &mut self.done,
            3 => &mut self.failed,
            _ => &mut self.waiting,
        }
    }
}

/// Counts tasks by the stored state; 4 stands for open tasks that wait. Unfinished groups are read
/// once, not for each task.
const AMOUNTS: &str = "
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

async fn is_there(client: &impl GenericClient, job: Job) -> Result<bool, Said> {
    let sql = "SELECT FROM longhaul.job WHERE id = $1";
    Ok(!ask(client, sql, &job.0).await?.is_empty())
}

async fn ask(
    client: &impl GenericClient,
    sql: &str,
    job: &(dyn ToSql + Sync),
) -> Result<Vec<Row>, Said> {
    client.query_typed(sql, &[(job, Type::INT8)]).await
}

async fn read<T>(
    client: &impl GenericClient,
    sql: &str,
    job: Job,
    limit: i64,
    read: fn(&Row) -> Result<T, Said>,
) -> Result<Vec<T>, Said> {
    let values: [Value<'_>; 2] = [(&job.0, Type::INT8), (&limit, Type::INT8)];
    client
        .query_typed(sql, &values)
        .await?
        .iter()
        .map(read)
        .collect()
}

fn amount(row: &Row, from: usize) -> Result<Amount, Said> {
    Ok(Amount {
        extents: count(row.try_get(from)?),
        bytes: count(row.try_get(from + 1)?),
    })
}

fn holder(row: &Row) -> Result<Holder, Said> {
    Ok(Holder {
        name: text(row, 0)?,
        has: amount(row, 1)?,
        since: duration(row.try_get(3)?),
        over: count(row.try_get(4)?),
    })
}

fn failure(row: &Row) -> Result<Failure, Said> {
    let tries: i32 = row.try_get(3)?;
    Ok(Failure {
        key: row.try_get(0)?,
        holder: text(row, 1)?,
        why: text(row, 2)?,
        tries: tries.cast_unsigned(),
    })
}

fn outcome(row: &Row) -> Result<Outcome, Said> {
    Ok(Outcome {
        position: Position(row.try_get(0)?),
        key: row.try_get(1)?,
        result: row.try_get(2)?,
    })
}

/// Decodes a name or a reason, which is UTF-8. It is stored as bytes, because text columns do not
/// allow a NUL.
fn text(row: &Row, column: usize) -> Result<String, Said> {
    let bytes: &[u8] = row.try_get(column)?;
    Ok(String::from_utf8_lossy(bytes).into_owned())
}
