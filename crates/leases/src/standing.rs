// SPDX-License-Identifier: MIT OR Apache-2.0
//! How far a job is, and what came of it.

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

/// Holders that a [`Standing`] names, those with most extents first.
pub const HOLDERS_MAX: i64 = 1000;
/// Failed extents that a [`Standing`] names, in the order in which they were added.
pub const FAILURES_MAX: i64 = 100;
/// Results that one [`Board::results`] returns, at most.
pub const RESULTS_MAX: u32 = 1000;

/// Extents and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// How many.
    pub extents: u64,
    /// Their bytes, at most 2⁶³ − 1.
    pub bytes: u64,
}

/// How far a job is, all at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// May be taken, at once or after the pause of one that was given back.
    pub open: Amount,
    /// Wait for a group.
    pub waiting: Amount,
    /// Taken; those whose lease is over are among them until somebody takes them.
    pub leased: Amount,
    /// Done.
    pub done: Amount,
    /// Failed for good.
    pub failed: Amount,
    /// Who has what, at most [`HOLDERS_MAX`].
    pub holders: Vec<Holder>,
    /// What failed and why, at most [`FAILURES_MAX`].
    pub failures: Vec<Failure>,
}

/// One who has leases.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The name it took them by.
    pub name: String,
    /// What it has.
    pub has: Amount,
    /// How long it has had the oldest.
    pub since: Duration,
    /// Of what it has, what is over: it has not renewed in time.
    pub over: u64,
}

/// An extent that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Its key.
    pub key: Vec<u8>,
    /// Who said so.
    pub holder: String,
    /// Why.
    pub why: String,
    /// How often it was taken.
    pub tries: u32,
}

/// An extent that is done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Where in the job's order it is: what the next question for results begins after.
    pub position: Position,
    /// Its key.
    pub key: Vec<u8>,
    /// What was said with [`Board::done`].
    pub result: Vec<u8>,
}

/// A place in a job's order of extents; the default is before the first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position(i64);

impl Standing {
    /// Whether nothing will happen any more: all is done, has failed, or waits for what failed.
    pub fn is_over(&self) -> bool {
        self.open.extents == 0 && self.leased.extents == 0
    }

    /// Whether all is done.
    pub fn is_done(&self) -> bool {
        self.is_over() && self.failed.extents == 0 && self.waiting.extents == 0
    }
}

impl Board {
    /// How far the job is. With 100,000 extents some tenth of a second of the server's time.
    ///
    /// # Errors
    /// [`Error::NoJob`] if it was forgotten, and those of the connection.
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

    /// Whether the job is in the database: it was not forgotten. One row is looked up.
    ///
    /// # Errors
    /// Those of the connection.
    pub fn has(&self, job: Job) -> Result<bool, Error> {
        self.repeatable(async |client| is_there(client, job).await)
    }

    /// Results of what is done, in the order in which the extents were added, from after `position` on.
    /// Fewer than `limit` are all there are now; what is done later may be at an earlier place, so ask again from the
    /// beginning when the job is over.
    ///
    /// # Errors
    /// [`Error::TooLarge`] beyond [`RESULTS_MAX`], and those of the connection.
    pub fn results(&self, job: Job, position: Position, limit: u32) -> Result<Vec<Outcome>, Error> {
        bounded(
            "a question for results",
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
    /// As [`AMOUNTS`] calls them.
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

/// States as they are kept, and 4 for what is open and waits. Unfinished groups are looked for once, not for each
/// extent.
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

/// Names and reasons are kept as bytes, which have no forbidden ones; what came from us is UTF-8.
fn text(row: &Row, column: usize) -> Result<String, Said> {
    let bytes: &[u8] = row.try_get(column)?;
    Ok(String::from_utf8_lossy(bytes).into_owned())
}
