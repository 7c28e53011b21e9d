// SPDX-License-Identifier: MIT OR Apache-2.0
//! Leases: taken, renewed, ended. Each is one statement, which is one transaction.

use crate::{
    board::{Board, Value, count},
    connection::{CALL_LIMIT, Repeat},
    error::Error,
    extent::{
        ADD_COUNT_MAX, ADD_LEN_MAX, Job, KEY_LEN_MAX, Lease, NewExtent, RENEW_COUNT_MAX,
        RESULT_LEN_MAX, Renewed, TAKE_COUNT_MAX, Token, bounded, micros,
    },
};
use std::time::{Duration, Instant};
use tokio_postgres::{Error as Said, Row, types::Type};

impl Board {
    /// Takes up to `count` extents, in the order in which they were added: open ones, and those whose
    /// lease is over. `holder` names the one who takes, for [`standing`](Self::standing) and for what it
    /// gave back itself. Nothing if there is nothing to take now, or the job was forgotten.
    ///
    /// # Errors
    /// [`Error::TooLarge`] beyond [`TAKE_COUNT_MAX`], [`KEY_LEN_MAX`] and [`TTL_MAX`](crate::TTL_MAX), and those of the
    /// connection. After [`Error::Unreachable`] something may have been taken without us knowing: nobody
    /// has it until `ttl` is over.
    pub fn take(
        &self,
        job: Job,
        holder: &str,
        count: u32,
        ttl: Duration,
    ) -> Result<Vec<Lease>, Error> {
        bounded("a taking", count as usize, TAKE_COUNT_MAX as usize)?;
        bounded("a holder's name", holder.len(), KEY_LEN_MAX)?;
        let (ttl_us, limit) = (micros("a lease, in seconds,", ttl)?, i64::from(count));
        let holder = holder.as_bytes();
        let values: [Value<'_>; 4] = [
            (&job.0, Type::INT8),
            (&holder, Type::BYTEA),
            (&limit, Type::INT8),
            (&ttl_us, Type::INT8),
        ];
        let mut connection = self.lock();
        connection.revive()?;
        let mut taken = connection.call(Repeat::Never, CALL_LIMIT, async |client| {
            let until = Instant::now() + ttl;
            let rows = client.query_typed(TAKE, &values).await?;
            rows.iter()
                .map(|row| lease(row, until))
                .collect::<Result<Vec<_>, _>>()
        })?;
        taken.sort_by_key(|(id, _)| *id);
        Ok(taken.into_iter().map(|(_, lease)| lease).collect())
    }

    /// Lets leases end `ttl` from now. One that is over and that nobody has taken yet stands again: after
    /// the server was away, work goes on. Repeated names are fine.
    ///
    /// # Errors
    /// [`Error::TooLarge`] beyond [`RENEW_COUNT_MAX`] and [`TTL_MAX`](crate::TTL_MAX), and those of the connection. After them the
    /// old [`until`](Lease::until) holds.
    pub fn renew(&self, tokens: &[Token], ttl: Duration) -> Result<Renewed, Error> {
        bounded("a renewal", tokens.len(), RENEW_COUNT_MAX)?;
        let ttl_us = micros("a lease, in seconds,", ttl)?;
        let tokens = numbers(tokens);
        let values: [Value<'_>; 2] = [(&tokens, Type::INT8_ARRAY), (&ttl_us, Type::INT8)];
        let mut renewed = self.repeatable(async |client| {
            let until = Instant::now() + ttl;
            let rows = client.query_typed(RENEW, &values).await?;
            let tokens = rows.iter().map(|row| Ok(Token(row.try_get(0)?)));
            let tokens = tokens.collect::<Result<_, Said>>()?;
            Ok(Renewed { until, tokens })
        })?;
        renewed.tokens.sort_unstable();
        Ok(renewed)
    }

    /// Adds extents to the job of the extent that `token` has leased, all or none. How many were not there
    /// yet, or nothing if the token does not stand, and then nothing was added.
    ///
    /// # Errors
    /// [`Error::TooLarge`] beyond [`ADD_COUNT_MAX`], [`ADD_LEN_MAX`] and the bounds of extents, and those of
    /// the connection.
    pub fn add(&self, token: Token, extents: &[NewExtent]) -> Result<Option<u64>, Error> {
        check_all(extents)?;
        let keys: Vec<&[u8]> = extents.iter().map(|extent| &*extent.key).collect();
        let bodies: Vec<&[u8]> = extents.iter().map(|extent| &*extent.body).collect();
        let bytes: Vec<i64> = extents.iter().map(|e| e.bytes.cast_signed()).collect();
        let groups: Vec<_> = extents.iter().map(|e| e.group.as_deref()).collect();
        let afters: Vec<_> = extents.iter().map(|e| e.after.as_deref()).collect();
        let values: [Value<'_>; 6] = [
            (&token.0, Type::INT8),
            (&keys, Type::BYTEA_ARRAY),
            (&bodies, Type::BYTEA_ARRAY),
            (&bytes, Type::INT8_ARRAY),
            (&groups, Type::BYTEA_ARRAY),
            (&afters, Type::BYTEA_ARRAY),
        ];
        let (held, added): (bool, i64) = self.repeatable(async |client| {
            let row = client.query_typed_one(ADD, &values).await?;
            Ok((row.try_get(0)?, row.try_get(1)?))
        })?;
        Ok(held.then_some(count(added)))
    }

    /// The work is done and durable, with a result for whoever asks. False: somebody else has the extent
    /// now, or its job is gone, and this changed nothing. Saying it again with the same token is true again, and the
    /// first result stays.
    ///
    /// # Errors
    /// [`Error::TooLarge`] beyond [`RESULT_LEN_MAX`], and those of the connection.
    pub fn done(&self, token: Token, result: &[u8]) -> Result<bool, Error> {
        self.end(DONE, token, "a result", result, None)
    }

    /// The extent is open again: for others at once, for the same holder after `pause`, so that what
    /// one can't do finds its way to another where there is one. True and false as in [`done`](Self::done).
    ///
    /// # Errors
    /// [`Error::TooLarge`] beyond [`RESULT_LEN_MAX`] and [`TTL_MAX`](crate::TTL_MAX), and those of the connection.
    pub fn give_back(&self, token: Token, why: &str, pause: Duration) -> Result<bool, Error> {
        let pause = micros("a pause, in seconds,", pause)?;
        self.end(GIVE_BACK, token, "a reason", why.as_bytes(), Some(pause))
    }

    /// Nobody will do it: it, and what comes after its group, stays undone for good. True and false as in
    /// [`done`](Self::done). Who decides is the caller, by [`Lease::tries`].
    ///
    /// # Errors
    /// [`Error::TooLarge`] beyond [`RESULT_LEN_MAX`], and those of the connection.
    pub fn fail(&self, token: Token, why: &str) -> Result<bool, Error> {
        self.end(FAIL, token, "a reason", why.as_bytes(), None)
    }

    /// Opens what `holder` has leased in the job, all but `known`, and says how much that was: what was taken when the
    /// answer got lost, or what an earlier process of the same name had. Not while another thread takes
    /// by the same name: it would lose what it gets.
    ///
    /// # Errors
    /// [`Error::TooLarge`] beyond [`RENEW_COUNT_MAX`] and [`KEY_LEN_MAX`], and those of the connection.
    pub fn give_back_unknown(&self, job: Job, holder: &str, known: &[Token]) -> Result<u64, Error> {
        bounded("a holder's name", holder.len(), KEY_LEN_MAX)?;
        bounded("a list of tokens", known.len(), RENEW_COUNT_MAX)?;
        let (holder, known) = (holder.as_bytes(), numbers(known));
        let values: [Value<'_>; 3] = [
            (&job.0, Type::INT8),
            (&holder, Type::BYTEA),
            (&known, Type::INT8_ARRAY),
        ];
        self.repeatable(async |client| client.execute_typed(GIVE_BACK_UNKNOWN, &values).await)
    }

    fn end(
        &self,
        sql: &str,
        token: Token,
        what: &'static str,
        word: &[u8],
        pause: Option<i64>,
    ) -> Result<bool, Error> {
        bounded(what, word.len(), RESULT_LEN_MAX)?;
        let mut values: Vec<Value<'_>> = vec![(&token.0, Type::INT8), (&word, Type::BYTEA)];
        if let Some(pause) = &pause {
            values.push((pause, Type::INT8));
        }
        self.repeatable(async |client| Ok(client.execute_typed(sql, &values).await? > 0))
    }
}

fn numbers(tokens: &[Token]) -> Vec<i64> {
    tokens.iter().map(|token| token.0).collect()
}

/// What is chosen is chosen once, whatever the planner makes of it; a row that another taker is about to have
/// is passed over, and one that another had a moment ago is looked at afresh before it is locked.
const TAKE: &str = "
WITH chosen AS MATERIALIZED (
    SELECT id FROM longhaul.extent e
    WHERE job = $1 AND state < 2
        AND (state = 1 AND expires <= clock_timestamp()
            OR state = 0 AND (not_before IS NULL OR not_before <= clock_timestamp() OR holder <> $2))
        AND (after IS NULL OR NOT EXISTS (
            SELECT FROM longhaul.extent g
            WHERE g.job = e.job AND g.part_of = e.after AND g.state <> 2))
    ORDER BY id LIMIT $3
    FOR UPDATE OF e SKIP LOCKED
)
UPDATE longhaul.extent e SET state = 1, token = nextval('longhaul.token'), tries = tries + 1, holder = $2,
    since = clock_timestamp(), expires = clock_timestamp() + $4 * interval '1 microsecond',
    not_before = NULL, why = NULL, changed = clock_timestamp()
FROM chosen WHERE e.id = chosen.id
RETURNING e.id, e.token, e.tries, e.key, e.body, e.bytes";

const RENEW: &str = "
UPDATE longhaul.extent SET expires = clock_timestamp() + $2 * interval '1 microsecond', changed = clock_timestamp()
WHERE token = ANY ($1) AND state = 1
RETURNING token";

/// The planner's row stays locked until what it adds is there, so that nobody takes it in between.
const ADD: &str = "
WITH held AS MATERIALIZED (
    SELECT id, job FROM longhaul.extent WHERE token = $1 AND state = 1 FOR UPDATE
), sign AS (
    UPDATE longhaul.extent SET changed = clock_timestamp() WHERE id IN (SELECT id FROM held)
), added AS (
    INSERT INTO longhaul.extent (job, key, body, bytes, part_of, after)
    SELECT held.job, new.key, new.body, new.bytes, sha256(new.part_of), sha256(new.after)
    FROM held, unnest($2, $3, $4, $5, $6) WITH ORDINALITY
        AS new (key, body, bytes, part_of, after, number)
    ORDER BY new.number
    ON CONFLICT (job, sha256(key)) DO NOTHING
    RETURNING 1
)
SELECT EXISTS (SELECT FROM held), (SELECT count(*) FROM added)";

/// The second time, nothing is written over.
const DONE: &str = "
UPDATE longhaul.extent SET state = 2, result = CASE state WHEN 1 THEN $2 ELSE result END, changed = clock_timestamp()
WHERE token = $1 AND state IN (1, 2)";

const GIVE_BACK: &str = "
UPDATE longhaul.extent SET state = 0, why = CASE state WHEN 1 THEN $2 ELSE why END, changed = clock_timestamp(),
    not_before = CASE state WHEN 1 THEN clock_timestamp() + $3 * interval '1 microsecond' ELSE not_before END
WHERE token = $1 AND state IN (1, 0)";

const GIVE_BACK_UNKNOWN: &str = "
UPDATE longhaul.extent SET state = 0, changed = clock_timestamp()
WHERE job = $1 AND state < 2 AND state = 1 AND holder = $2 AND token <> ALL ($3)";

const FAIL: &str = "
UPDATE longhaul.extent SET state = 3, why = CASE state WHEN 1 THEN $2 ELSE why END, changed = clock_timestamp()
WHERE token = $1 AND state IN (1, 3)";

fn lease(row: &Row, until: Instant) -> Result<(i64, Lease), Said> {
    let tries: i32 = row.try_get(2)?;
    let lease = Lease {
        token: Token(row.try_get(1)?),
        until,
        tries: tries.cast_unsigned(),
        key: row.try_get(3)?,
        body: row.try_get(4)?,
        bytes: count(row.try_get(5)?),
    };
    Ok((row.try_get(0)?, lease))
}

fn check_all(extents: &[NewExtent]) -> Result<(), Error> {
    bounded("an addition", extents.len(), ADD_COUNT_MAX)?;
    extents.iter().try_for_each(NewExtent::check)?;
    let len = extents.iter().map(NewExtent::len).sum();
    bounded("an addition, in bytes,", len, ADD_LEN_MAX)
}
