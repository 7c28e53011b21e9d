// SPDX-License-Identifier: MIT OR Apache-2.0
//! Jobs in the database: creating, joining, listing and deleting them.

use crate::{
    connection::{CALL_LIMIT, ConnectTarget, Connection, Retry},
    error::Error,
    schema,
    task::{Job, NAME_LEN_MAX, NewTask, SPEC_LEN_MAX, check_bound},
};
use std::{
    path::Path,
    sync::{Mutex, PoisonError},
    time::Duration,
};
use tokio_postgres::{
    Client, Error as PgError, Row,
    types::{ToSql, Type},
};

/// Time limit for deleting a job. A job of a million tasks takes seconds.
const DELETE_LIMIT: Duration = Duration::from_secs(310);
const DELETE_TIMEOUT: &str = "SET LOCAL statement_timeout = '300s'";
/// Maximum number of attempts to join a job while others create and delete it.
const JOIN_TRIES: u32 = 10;
/// Maximum number of jobs that [`JobStore::jobs`] lists, the oldest first.
pub const JOBS_MAX: i64 = 1000;

/// Jobs in a database, over one connection. Any thread may use it, but calls wait for each other. A
/// thread that renews leases while another adds many tasks should use a connection of its own
/// ([`new_connection`](JobStore::new_connection)). Calls block: within an async runtime they panic.
///
/// Every call ends in bounded time (see the [crate]'s bounds). If its connection was broken, a call
/// that is safe to repeat is repeated once on a new connection. Any other call fails. In either
/// case the next call connects again.
pub struct JobStore {
    connection: Mutex<Connection>,
    target: ConnectTarget,
}

/// Job in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobSummary {
    /// Handle of the job.
    pub job: Job,
    /// Name that the job was created with.
    pub name: Vec<u8>,
    /// Spec that the job was created with.
    pub spec: Vec<u8>,
    /// Time since the job was created, to the microsecond.
    pub age: Duration,
    /// Time since a task of the job was last acquired, renewed, added or ended.
    pub idle: Duration,
    /// Number of tasks.
    pub tasks: u64,
    /// Bytes of all tasks, at most 2⁶³ − 1.
    pub bytes: u64,
}

impl JobStore {
    /// Connects to the database at `address`, and creates the schema `longhaul` if it is missing.
    ///
    /// The address is a URL `postgresql://USER:PASSWORD@HOST:PORT/DATABASE`, or `key=value` words
    /// as in libpq. Of several hosts, the one that accepts writes is used. Passwords come from the
    /// address; `.pgpass` is not read.
    ///
    /// Over TCP, `sslmode=require` demands TLS. The default, `prefer`, uses TLS if the server
    /// offers it. Both verify certificates against the system's authorities, or those in the file
    /// that `SSL_CERT_FILE` names.
    ///
    /// # Errors
    /// [`Error::Address`]; [`Error::Unreachable`] or [`Error::Refused`] from the server;
    /// [`Error::Format`] if another version of longhaul created the tables.
    pub fn open(address: &str) -> Result<Self, Error> {
        Self::prepare(ConnectTarget::new(address, None)?)
    }

    /// Connects as [`open`](Self::open) does, with the authorities in a PEM file instead of the
    /// system's.
    ///
    /// # Errors
    /// As [`open`](Self::open), and [`Error::Authorities`] for that file.
    pub fn open_with_authorities(address: &str, authorities: &Path) -> Result<Self, Error> {
        Self::prepare(ConnectTarget::new(address, Some(authorities))?)
    }

    fn prepare(target: ConnectTarget) -> Result<Self, Error> {
        let mut connection = Connection::new(target.clone())?;
        schema::prepare(&mut connection)?;
        let connection = Mutex::new(connection);
        Ok(Self { connection, target })
    }

    /// Prepares a further connection to the same database. Its first call connects.
    ///
    /// # Errors
    /// [`Error::EventLoop`]: no file descriptors are left.
    pub fn new_connection(&self) -> Result<Self, Error> {
        let target = self.target.clone();
        let connection = Mutex::new(Connection::new(target.clone())?);
        Ok(Self { connection, target })
    }

    /// Returns hosts, ports and database for messages, without user and password.
    pub fn label(&self) -> &str {
        &self.target.label
    }

    /// Joins the job of this name. If there is none, creates it with `first` as its only task,
    /// usually the one that plans the others. If the job exists, `first` is ignored. Concurrent
    /// calls create one job.
    ///
    /// # Errors
    /// [`Error::SpecMismatch`] if the job has another `spec`. [`Error::TooLarge`] beyond
    /// [`NAME_LEN_MAX`], [`SPEC_LEN_MAX`] and the bounds of tasks. [`Error::JobNotFound`] if others
    /// delete the job during every attempt. Errors of the connection.
    pub fn join(&self, name: &[u8], spec: &[u8], first: &NewTask) -> Result<Job, Error> {
        check_bound("the length of a job's name", name.len(), NAME_LEN_MAX)?;
        check_bound("the length of a job's spec", spec.len(), SPEC_LEN_MAX)?;
        first.check()?;
        for _ in 0..JOIN_TRIES {
            let found = self.call_with_retry(async |client| {
                match create_job(client, name, spec, first).await? {
                    Some(id) => Ok(Some((id, spec.to_vec()))),
                    None => find_job(client, name).await,
                }
            })?;
            match found {
                Some((id, found)) if found == spec => return Ok(Job(id)),
                Some(_) => return Err(Error::SpecMismatch),
                // Deleted between the two statements.
                None => {}
            }
        }
        Err(Error::JobNotFound)
    }

    /// Deletes the job with all its rows. Its leases are no longer valid. Returns false if there
    /// was no such job.
    ///
    /// # Errors
    /// Errors of the connection.
    pub fn delete_job(&self, job: Job) -> Result<bool, Error> {
        self.lock().call(Retry::Once, DELETE_LIMIT, async |client| {
            let sql = "DELETE FROM longhaul.job WHERE id = $1";
            let transaction = client.transaction().await?;
            transaction.batch_execute(DELETE_TIMEOUT).await?;
            let deleted = transaction
                .execute_typed(sql, &[(&job.0, Type::INT8)])
                .await?;
            transaction.commit().await?;
            Ok(deleted > 0)
        })
    }

    /// Lists jobs for cleaning up, the oldest first, at most [`JOBS_MAX`].
    ///
    /// # Errors
    /// Errors of the connection.
    pub fn jobs(&self) -> Result<Vec<JobSummary>, Error> {
        let sql = format!("{JOBS} LIMIT {JOBS_MAX}");
        self.rows(&sql, &[], read_job_summary)
    }

    pub(crate) fn lock(&self) -> std::sync::MutexGuard<'_, Connection> {
        // After a panic during a call, the next call replaces the connection.
        self.connection
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn call_with_retry<T>(
        &self,
        work: impl AsyncFn(&mut Client) -> Result<T, PgError>,
    ) -> Result<T, Error> {
        self.lock().call(Retry::Once, CALL_LIMIT, work)
    }

    /// Runs a statement that is safe to repeat, and returns its rows.
    pub(crate) fn rows<T>(
        &self,
        sql: &str,
        values: &[Value<'_>],
        read: fn(&Row) -> Result<T, PgError>,
    ) -> Result<Vec<T>, Error> {
        self.call_with_retry(async |client| {
            let rows = client.query_typed(sql, values).await?;
            rows.iter().map(read).collect()
        })
    }
}

/// Parameter of a statement, with its SQL type.
pub(crate) type Value<'a> = (&'a (dyn ToSql + Sync), Type);

const CREATE_JOB: &str = "
WITH made AS (
    INSERT INTO longhaul.job (name, spec) VALUES ($1, $2) ON CONFLICT (name) DO NOTHING RETURNING id
), first AS (
    INSERT INTO longhaul.extent (job, key, body, bytes, part_of, after)
    SELECT id, $3, $4, $5, sha256($6), sha256($7) FROM made
)
SELECT id FROM made";

async fn create_job(
    client: &Client,
    name: &[u8],
    spec: &[u8],
    first: &NewTask,
) -> Result<Option<i64>, PgError> {
    let bytes = first.bytes.cast_signed();
    let values: [Value<'_>; 7] = [
        (&name, Type::BYTEA),
        (&spec, Type::BYTEA),
        (&first.key, Type::BYTEA),
        (&first.body, Type::BYTEA),
        (&bytes, Type::INT8),
        (&first.group, Type::BYTEA),
        (&first.after, Type::BYTEA),
    ];
    let row = client.query_typed_opt(CREATE_JOB, &values).await?;
    row.map(|row| row.try_get(0)).transpose()
}

async fn find_job(client: &Client, name: &[u8]) -> Result<Option<(i64, Vec<u8>)>, PgError> {
    let sql = "SELECT id, spec FROM longhaul.job WHERE name = $1";
    let row = client.query_typed_opt(sql, &[(&name, Type::BYTEA)]).await?;
    row.map(|row| Ok((row.try_get(0)?, row.try_get(1)?)))
        .transpose()
}

const JOBS: &str = "
SELECT j.id, j.name, j.spec, (extract(epoch FROM clock_timestamp() - j.made) * 1000000)::bigint,
    (extract(epoch FROM clock_timestamp() - greatest(j.made, e.changed)) * 1000000)::bigint, e.extents, e.bytes
FROM longhaul.job j
CROSS JOIN LATERAL (
    SELECT count(*) AS extents, least(coalesce(sum(bytes), 0), 9223372036854775807)::bigint AS bytes, max(changed) AS changed
    FROM longhaul.extent WHERE job = j.id
) e
ORDER BY j.id";

fn read_job_summary(row: &Row) -> Result<JobSummary, PgError> {
    Ok(JobSummary {
        job: Job(row.try_get(0)?),
        name: row.try_get(1)?,
        spec: row.try_get(2)?,
        age: to_duration(row.try_get(3)?),
        idle: to_duration(row.try_get(4)?),
        tasks: to_u64(row.try_get(5)?),
        bytes: to_u64(row.try_get(6)?),
    })
}

/// Converts the server's microseconds. Negative ones, after its clock was set back, become zero.
pub(crate) fn to_duration(micros: i64) -> Duration {
    Duration::from_micros(to_u64(micros))
}

pub(crate) fn to_u64(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}
