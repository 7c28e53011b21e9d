// SPDX-License-Identifier: MIT OR Apache-2.0
//! Leases: acquiring, renewing and ending them. Each call is one statement in one transaction.

use crate::{
    connection::{CALL_LIMIT, Retry},
    error::Error,
    job_store::{JobStore, Value, to_u64},
    task::{
        ACQUIRE_COUNT_MAX, ADD_COUNT_MAX, ADD_LEN_MAX, Job, KEY_LEN_MAX, Lease, NewTask,
        RENEW_COUNT_MAX, RESULT_LEN_MAX, Renewal, Token, check_bound, to_micros,
    },
};
use std::time::{Duration, Instant};
use tokio_postgres::{Error as PgError, Row, types::Type};

impl JobStore {
    /// Acquires up to `count` tasks, in the order in which they were added: open tasks, and those
    /// whose lease has expired. `holder` names the caller, for [`status`](Self::status) and for
    /// the pause after a release. Returns an empty list if no task is available now, or the job was
    /// deleted.
    ///
    /// # Errors
    /// [`Error::TooLarge`] beyond [`ACQUIRE_COUNT_MAX`], [`KEY_LEN_MAX`] and
    /// [`TTL_MAX`](crate::TTL_MAX), and errors of the connection. After [`Error::Unreachable`],
    /// tasks may have been acquired without a reply. They stay leased until `ttl` has passed.
    pub fn acquire(
        &self,
        job: Job,
        holder: &str,
        count: u32,
        ttl: Duration,
    ) -> Result<Vec<Lease>, Error> {
        check_bound(
            "the number of tasks to acquire",
            count as usize,
            ACQUIRE_COUNT_MAX as usize,
        )?;
        check_bound("the length of a holder's name", holder.len(), KEY_LEN_MAX)?;
        let (ttl_us, limit) = (
            to_micros("the time of a lease, in seconds,", ttl)?,
            i64::from(count),
        );
        let holder = holder.as_bytes();
        let values: [Value<'_>; 4] = [
            (&job.0, Type::INT8),
            (&holder, Type::BYTEA),
            (&limit, Type::INT8),
            (&ttl_us, Type::INT8),
        ];
        let mut connection = self.lock();
        connection.reconnect_if_broken()?;
        let mut acquired = connection.call(Retry::Never, CALL_LIMIT, async |client| {
            let until = Instant::now() + ttl;
            let rows = client.query_typed(ACQUIRE, &values).await?;
            rows.iter()
                .map(|row| read_lease(row, until))
                .collect::<Result<Vec<_>, _>>()
        })?;
        acquired.sort_by_key(|(id, _)| *id);
        Ok(acquired.into_iter().map(|(_, lease)| lease).collect())
    }

    /// Extends leases to `ttl` from now. An expired lease that no other holder has acquired becomes
    /// current again, so work continues after an outage of the server. Duplicate tokens are
    /// allowed.
    ///
    /// # Errors
    /// [`Error::TooLarge`] beyond [`RENEW_COUNT_MAX`] and [`TTL_MAX`](crate::TTL_MAX), and errors
    /// of the connection. After an error the former [`until`](Lease::until) applies.
    pub fn renew(&self, tokens: &[Token], ttl: Duration) -> Result<Renewal, Error> {
        check_bound(
            "the number of tokens to renew",
            tokens.len(),
            RENEW_COUNT_MAX,
        )?;
        let ttl_us = to_micros("the time of a lease, in seconds,", ttl)?;
        let tokens = token_numbers(tokens);
        let values: [Value<'_>; 2] = [(&tokens, Type::INT8_ARRAY), (&ttl_us, Type::INT8)];
        let mut renewed = self.call_with_retry(async |client| {
            let until = Instant::now() + ttl;
            let rows = client.query_typed(RENEW, &values).await?;
            let tokens = rows.iter().map(|row| Ok(Token(row.try_get(0)?)));
            let tokens = tokens.collect::<Result<_, PgError>>()?;
            Ok(Renewal { until, tokens })
        })?;
        renewed.tokens.sort_unstable();
        Ok(renewed)
    }

    /// Adds tasks to the job of the task that `token` has leased, all or none. Returns the number
    /// of new keys, or `None` if the token is not valid, and then adds nothing.
    ///
    /// # Errors
    /// [`Error::TooLarge`] beyond [`ADD_COUNT_MAX`], [`ADD_LEN_MAX`] and the limits of tasks, and
    /// errors of the connection.
    pub fn add_tasks(&self, token: Token, tasks: &[NewTask]) -> Result<Option<u64>, Error> {
        check_tasks(tasks)?;
        let keys: Vec<&[u8]> = tasks.iter().map(|task| &*task.key).collect();
        let bodies: Vec<&[u8]> = tasks.iter().map(|task| &*task.body).collect();
        let bytes: Vec<i64> = tasks.iter().map(|task| task.bytes.cast_signed()).collect();
        let groups: Vec<_> = tasks.iter().map(|task| task.group.as_deref()).collect();
        let after_groups: Vec<_> = tasks.iter().map(|task| task.after.as_deref()).collect();
        let values: [Value<'_>; 6] = [
            (&token.0, Type::INT8),
            (&keys, Type::BYTEA_ARRAY),
            (&bodies, Type::BYTEA_ARRAY),
            (&bytes, Type::INT8_ARRAY),
            (&groups, Type::BYTEA_ARRAY),
            (&after_groups, Type::BYTEA_ARRAY),
        ];
        let (held, added): (bool, i64) = self.call_with_retry(async |client| {
            let row = client.query_typed_one(ADD, &values).await?;
            Ok((row.try_get(0)?, row.try_get(1)?))
        })?;
        Ok(held.then_some(to_u64(added)))
    }

    /// Completes a task whose work is durable, with a result for other machines. Returns false,
    /// without effect, if another holder has the task now or the job was deleted. A repeated call
    /// with the same token returns true, and the first result stays.
    ///
    /// # Errors
    /// [`Error::TooLarge`] beyond [`RESULT_LEN_MAX`], and errors of the connection.
    pub fn complete(&self, token: Token, result: &[u8]) -> Result<bool, Error> {
        self.end_lease(COMPLETE, token, "the length of a result", result, None)
    }

    /// Releases a task: others can acquire it at once, the same holder after `pause`. So a task
    /// that one holder cannot do reaches another, if there is one. Returns as
    /// [`complete`](Self::complete) does.
    ///
    /// # Errors
    /// [`Error::TooLarge`] beyond [`RESULT_LEN_MAX`] and [`TTL_MAX`](crate::TTL_MAX), and errors of
    /// the connection.
    pub fn release(&self, token: Token, reason: &str, pause: Duration) -> Result<bool, Error> {
        let pause = to_micros("the time of a pause, in seconds,", pause)?;
        self.end_lease(
            RELEASE,
            token,
            "the length of a reason",
            reason.as_bytes(),
            Some(pause),
        )
    }

    /// Fails a task permanently: neither it nor the tasks that wait for its group will be done.
    /// Returns as [`complete`](Self::complete) does. The caller decides after how many
    /// [`tries`](Lease::tries) it gives up.
    ///
    /// # Errors
    /// [`Error::TooLarge`] beyond [`RESULT_LEN_MAX`], and errors of the connection.
    pub fn fail(&self, token: Token, reason: &str) -> Result<bool, Error> {
        self.end_lease(
            FAIL,
            token,
            "the length of a reason",
            reason.as_bytes(),
            None,
        )
    }

    /// Releases all leases of `holder` in the job except `known`, and returns their number. Such
    /// leases come from a reply that was lost, or from an earlier process of the same name. No
    /// other thread may acquire by the same name meanwhile: it would lose its leases.
    ///
    /// # Errors
    /// [`Error::TooLarge`] beyond [`RENEW_COUNT_MAX`] and [`KEY_LEN_MAX`], and errors of the
    /// connection.
    pub fn release_unknown(&self, job: Job, holder: &str, known: &[Token]) -> Result<u64, Error> {
        check_bound("the length of a holder's name", holder.len(), KEY_LEN_MAX)?;
        check_bound("the number of tokens", known.len(), RENEW_COUNT_MAX)?;
        let (holder, known) = (holder.as_bytes(), token_numbers(known));
        let values: [Value<'_>; 3] = [
            (&job.0, Type::INT8),
            (&holder, Type::BYTEA),
            (&known, Type::INT8_ARRAY),
        ];
        self.call_with_retry(async |client| client.execute_typed(RELEASE_UNKNOWN, &values).await)
    }

    fn end_lease(
        &self,
        sql: &str,
        token: Token,
        quantity: &'static str,
        text: &[u8],
        pause: Option<i64>,
    ) -> Result<bool, Error> {
        check_bound(quantity, text.len(), RESULT_LEN_MAX)?;
        let mut values: Vec<Value<'_>> = vec![(&token.0, Type::INT8), (&text, Type::BYTEA)];
        if let Some(pause) = &pause {
            values.push((pause, Type::INT8));
        }
        self.call_with_retry(async |client| Ok(client.execute_typed(sql, &values).await? > 0))
    }
}

fn token_numbers(tokens: &[Token]) -> Vec<i64> {
    tokens.iter().map(|token| token.0).collect()
}

/// Acquires tasks. MATERIALIZED makes PostgreSQL choose the rows once, whatever its query planner does. Rows
/// that another holder is about to acquire are skipped. Rows that another holder has just changed are
/// checked again before they are locked.
const ACQUIRE: &str = "
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

/// Adds tasks. The row of the task that the token has leased stays locked until they are added, so
/// that no other holder acquires it meanwhile.
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

/// Completes a task. A repeated call does not overwrite the result.
const COMPLETE: &str = "
UPDATE longhaul.extent SET state = 2, result = CASE state WHEN 1 THEN $2 ELSE result END, changed = clock_timestamp()
WHERE token = $1 AND state IN (1, 2)";

const RELEASE: &str = "
UPDATE longhaul.extent SET state = 0, why = CASE state WHEN 1 THEN $2 ELSE why END, changed = clock_timestamp(),
    not_before = CASE state WHEN 1 THEN clock_timestamp() + $3 * interval '1 microsecond' ELSE not_before END
WHERE token = $1 AND state IN (1, 0)";

const RELEASE_UNKNOWN: &str = "
UPDATE longhaul.extent SET state = 0, changed = clock_timestamp()
WHERE job = $1 AND state < 2 AND state = 1 AND holder = $2 AND token <> ALL ($3)";

const FAIL: &str = "
UPDATE longhaul.extent SET state = 3, why = CASE state WHEN 1 THEN $2 ELSE why END, changed = clock_timestamp()
WHERE token = $1 AND state IN (1, 3)";

fn read_lease(row: &Row, until: Instant) -> Result<(i64, Lease), PgError> {
    let tries: i32 = row.try_get(2)?;
    let lease = Lease {
        token: Token(row.try_get(1)?),
        until,
        tries: tries.cast_unsigned(),
        key: row.try_get(3)?,
        body: row.try_get(4)?,
        bytes: to_u64(row.try_get(5)?),
    };
    Ok((row.try_get(0)?, lease))
}

fn check_tasks(tasks: &[NewTask]) -> Result<(), Error> {
    check_bound("the number of tasks to add", tasks.len(), ADD_COUNT_MAX)?;
    tasks.iter().try_for_each(NewTask::check)?;
    let len = tasks.iter().map(NewTask::len).sum();
    check_bound("the size of the tasks to add, in bytes,", len, ADD_LEN_MAX)
}
