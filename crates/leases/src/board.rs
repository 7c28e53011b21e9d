// SPDX-License-Identifier: MIT OR Apache-2.0
//! Jobs: made, joined, listed, forgotten.

use crate::{
    connection::{CALL_LIMIT, Connection, Repeat, Target},
    error::Error,
    extent::{Job, NAME_LEN_MAX, NewExtent, SPEC_LEN_MAX, bounded},
    schema,
};
use std::{
    path::Path,
    sync::{Mutex, PoisonError},
    time::Duration,
};
use tokio_postgres::{
    Client, Error as Said, Row,
    types::{ToSql, Type},
};

/// How long forgetting may take: a million extents go in seconds.
const FORGET_LIMIT: Duration = Duration::from_secs(310);
const FORGET_TIMEOUT: &str = "SET LOCAL statement_timeout = '300s'";
/// How often a job may be made and forgotten under our hands before we give up.
const JOIN_TRIES: u32 = 10;
/// Jobs that [`Board::jobs`] lists, the oldest first.
pub const JOBS_MAX: i64 = 1000;

/// Jobs of a database, over one connection. Any thread may use it; calls wait for each other, so who renews
/// while another thread adds a lot takes [`another`](Board::another). For threads, not for async tasks:
/// within an async runtime calls panic.
///
/// Calls end in bounded time (see the [crate]'s bounds), come what may. One whose connection had broken is made once more on a new
/// one where repeating does no harm, and otherwise fails; in either case the next call connects
/// again by itself.
pub struct Board {
    connection: Mutex<Connection>,
    target: Target,
}

/// A job in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// The job, to look at or to forget.
    pub job: Job,
    /// The name that it was made with.
    pub name: Vec<u8>,
    /// The spec that it was made with.
    pub spec: Vec<u8>,
    /// Since when it is there, to the microsecond.
    pub age: Duration,
    /// How long nobody has taken, renewed, added or ended anything in it.
    pub quiet: Duration,
    /// Extents, all told.
    pub extents: u64,
    /// Bytes of all extents, at most `u64::MAX`.
    pub bytes: u64,
}

impl Board {
    /// Connects to `address` (a URL `postgresql://USER:PASSWORD@HOST:PORT/DATABASE` or `key=value` words as
    /// libpq has them; several hosts: the one that takes writes) and makes the schema `longhaul` where it is missing.
    /// Over TCP with `sslmode=require` it is TLS or nothing; with `prefer`, which is what no word
    /// means, TLS wherever the server has it. In both, certificates are verified, against the system's
    /// authorities or those in the file that `SSL_CERT_FILE` names. Passwords come with the address: there is no `.pgpass`.
    ///
    /// # Errors
    /// [`Error::Address`]; [`Error::Unreachable`] and [`Error::Refused`] as the server is; [`Error::Format`]
    /// where another version of longhaul keeps its tables.
    pub fn open(address: &str) -> Result<Self, Error> {
        Self::prepared(Target::new(address, None)?)
    }

    /// As [`open`](Self::open), with the authorities in a PEM file instead of the system's.
    ///
    /// # Errors
    /// As [`open`](Self::open), and [`Error::Authorities`] for that file.
    pub fn open_trusting(address: &str, authorities: &Path) -> Result<Self, Error> {
        Self::prepared(Target::new(address, Some(authorities))?)
    }

    fn prepared(target: Target) -> Result<Self, Error> {
        let mut connection = Connection::new(target.clone())?;
        schema::prepare(&mut connection)?;
        let connection = Mutex::new(connection);
        Ok(Self { connection, target })
    }

    /// Another connection to the same database, which its first call makes.
    ///
    /// # Errors
    /// [`Error::EventLoop`]: no file descriptors are left.
    pub fn another(&self) -> Result<Self, Error> {
        let target = self.target.clone();
        let connection = Mutex::new(Connection::new(target.clone())?);
        Ok(Self { connection, target })
    }

    /// Hosts, ports and database, for messages: without user and password.
    pub fn label(&self) -> &str {
        &self.target.label
    }

    /// The job of this name: made with `first` as its only extent (usually the one that plans the others)
    /// if there is none, else the one that is there, in which case `first` is not looked at. However
    /// many join at once, there is one.
    ///
    /// # Errors
    /// [`Error::OtherSpec`] if it was made with another `spec`, [`Error::TooLarge`] beyond [`NAME_LEN_MAX`],
    /// [`SPEC_LEN_MAX`] and the bounds of extents, [`Error::NoJob`] if others forget it as often as it is
    /// made, and those of the connection.
    pub fn join(&self, name: &[u8], spec: &[u8], first: &NewExtent) -> Result<Job, Error> {
        bounded("a job's name", name.len(), NAME_LEN_MAX)?;
        bounded("a job's spec", spec.len(), SPEC_LEN_MAX)?;
        first.check()?;
        for _ in 0..JOIN_TRIES {
            let found =
                self.repeatable(
                    async |client| match make(client, name, spec, first).await? {
                        Some(id) => Ok(Some((id, spec.to_vec()))),
                        None => find(client, name).await,
                    },
                )?;
            match found {
                Some((id, found)) if found == spec => return Ok(Job(id)),
                Some(_) => return Err(Error::OtherSpec),
                // Forgotten between the two.
                None => {}
            }
        }
        Err(Error::NoJob)
    }

    /// Removes the job and everything about it: no row stays. Holders of its leases find that none stands.
    /// False if it wasn't there.
    ///
    /// # Errors
    /// Those of the connection.
    pub fn forget(&self, job: Job) -> Result<bool, Error> {
        self.lock()
            .call(Repeat::Once, FORGET_LIMIT, async |client| {
                let sql = "DELETE FROM longhaul.job WHERE id = $1";
                let transaction = client.transaction().await?;
                transaction.batch_execute(FORGET_TIMEOUT).await?;
                let gone = transaction
                    .execute_typed(sql, &[(&job.0, Type::INT8)])
                    .await?;
                transaction.commit().await?;
                Ok(gone > 0)
            })
    }

    /// What is there, the oldest first, at most [`JOBS_MAX`]: for a person who cleans up.
    ///
    /// # Errors
    /// Those of the connection.
    pub fn jobs(&self) -> Result<Vec<Listed>, Error> {
        let sql = format!("{JOBS} LIMIT {JOBS_MAX}");
        self.rows(&sql, &[], listed)
    }

    pub(crate) fn lock(&self) -> std::sync::MutexGuard<'_, Connection> {
        // A panic in the middle of a call leaves a connection that the next one replaces.
        self.connection
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn repeatable<T>(
        &self,
        work: impl AsyncFn(&mut Client) -> Result<T, Said>,
    ) -> Result<T, Error> {
        self.lock().call(Repeat::Once, CALL_LIMIT, work)
    }

    /// What a statement that may be repeated answers.
    pub(crate) fn rows<T>(
        &self,
        sql: &str,
        values: &[Value<'_>],
        read: fn(&Row) -> Result<T, Said>,
    ) -> Result<Vec<T>, Error> {
        self.repeatable(async |client| {
            let rows = client.query_typed(sql, values).await?;
            rows.iter().map(read).collect()
        })
    }
}

/// A statement's value and its type there.
pub(crate) type Value<'a> = (&'a (dyn ToSql + Sync), Type);

const MAKE: &str = "
WITH made AS (
    INSERT INTO longhaul.job (name, spec) VALUES ($1, $2) ON CONFLICT (name) DO NOTHING RETURNING id
), first AS (
    INSERT INTO longhaul.extent (job, key, body, bytes, part_of, after)
    SELECT id, $3, $4, $5, sha256($6), sha256($7) FROM made
)
SELECT id FROM made";

async fn make(
    client: &Client,
    name: &[u8],
    spec: &[u8],
    first: &NewExtent,
) -> Result<Option<i64>, Said> {
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
    let row = client.query_typed_opt(MAKE, &values).await?;
    row.map(|row| row.try_get(0)).transpose()
}

async fn find(client: &Client, name: &[u8]) -> Result<Option<(i64, Vec<u8>)>, Said> {
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

fn listed(row: &Row) -> Result<Listed, Said> {
    Ok(Listed {
        job: Job(row.try_get(0)?),
        name: row.try_get(1)?,
        spec: row.try_get(2)?,
        age: duration(row.try_get(3)?),
        quiet: duration(row.try_get(4)?),
        extents: count(row.try_get(5)?),
        bytes: count(row.try_get(6)?),
    })
}

/// Of the server's microseconds, which a clock that was set back makes negative.
pub(crate) fn duration(micros: i64) -> Duration {
    Duration::from_micros(count(micros))
}

pub(crate) fn count(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}
