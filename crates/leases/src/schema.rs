// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tables, created by the first machine that connects.

use crate::{
    connection::{CALL_LIMIT, Connection, Retry},
    error::Error,
};
use tokio_postgres::{Client, Error as PgError};

/// Format number, increased when the tables change.
pub(crate) const FORMAT: i32 = 1;

/// Statements that create the tables. They are sent together, so they run in one transaction. The
/// lock's number is the word "longhaul" in ASCII.
///
/// A row of `extent` is a task. `state`: 0 open, 1 leased, 2 done, 3 failed. `token` and `holder` are those of the last
/// acquisition. Names of groups are stored as digests, because an index cannot hold long values.
/// For the same reason, keys are unique by their digests.
const TABLES: &str = "
SELECT pg_advisory_xact_lock(x'6c6f6e676861756c'::bigint);
CREATE SCHEMA IF NOT EXISTS longhaul;
CREATE TABLE IF NOT EXISTS longhaul.format (number integer NOT NULL);
CREATE SEQUENCE IF NOT EXISTS longhaul.token;
CREATE TABLE IF NOT EXISTS longhaul.job (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name bytea NOT NULL UNIQUE,
    spec bytea NOT NULL,
    made timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE TABLE IF NOT EXISTS longhaul.extent (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    job bigint NOT NULL REFERENCES longhaul.job ON DELETE CASCADE,
    key bytea NOT NULL,
    body bytea NOT NULL,
    bytes bigint NOT NULL CHECK (bytes >= 0),
    part_of bytea,
    after bytea,
    state smallint NOT NULL DEFAULT 0 CHECK (state BETWEEN 0 AND 3),
    tries integer NOT NULL DEFAULT 0,
    token bigint,
    holder bytea,
    since timestamptz,
    expires timestamptz,
    not_before timestamptz,
    result bytea,
    why bytea,
    changed timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE UNIQUE INDEX IF NOT EXISTS extent_key ON longhaul.extent (job, sha256(key));
CREATE UNIQUE INDEX IF NOT EXISTS extent_token ON longhaul.extent (token);
CREATE INDEX IF NOT EXISTS extent_to_do ON longhaul.extent (job, id) WHERE state < 2;
CREATE INDEX IF NOT EXISTS extent_unfinished ON longhaul.extent (job, part_of) WHERE state <> 2 AND part_of IS NOT NULL;
INSERT INTO longhaul.format SELECT 1 WHERE NOT EXISTS (SELECT FROM longhaul.format);
";

/// Creates the tables if they are missing. If they exist, the user needs no right to create tables.
///
/// # Errors
/// [`Error::Format`] for tables of another format, [`Error::Refused`] without the rights.
pub(crate) fn prepare(connection: &mut Connection) -> Result<(), Error> {
    let found = connection.call(Retry::Once, CALL_LIMIT, async |client| {
        if !has_tables(client).await? {
            client.batch_execute(TABLES).await?;
        }
        read_format(client).await
    })?;
    if found != FORMAT {
        let server = connection.label().to_owned();
        return Err(Error::Format {
            server,
            found,
            known: FORMAT,
        });
    }
    Ok(())
}

async fn has_tables(client: &Client) -> Result<bool, PgError> {
    let sql = "SELECT to_regclass('longhaul.format') IS NOT NULL";
    client.query_typed_one(sql, &[]).await?.try_get(0)
}

async fn read_format(client: &Client) -> Result<i32, PgError> {
    let sql = "SELECT coalesce(min(number), 0) FROM longhaul.format";
    client.query_typed_one(sql, &[]).await?.try_get(0)
}
