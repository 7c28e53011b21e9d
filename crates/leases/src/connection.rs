// SPDX-License-Identifier: MIT OR Apache-2.0
//! Connection to the server, opened again after a failure. Each call on it ends in bounded time.

use crate::{address, error::Error, tls};
use std::{path::Path, time::Duration};
use tokio::{
    runtime::{Builder, Runtime},
    task::JoinHandle,
    time::timeout,
};
use tokio_postgres::{
    Client, Config, Error as PgError,
    error::{DbError, Severity},
};
use tokio_postgres_rustls::MakeRustlsConnect;

/// Limit for connecting: name resolution, TLS, password and session settings.
pub(crate) const CONNECT_LIMIT: Duration = Duration::from_secs(10);
/// Limit for one call on an open connection.
pub(crate) const CALL_LIMIT: Duration = Duration::from_secs(20);

/// Settings of every session. The server gives up before [`CALL_LIMIT`], so that no statement runs
/// on there afterwards. It ends sessions of dead machines, whose locks would block others.
/// Acknowledged commits are on disk.
const SESSION: &str = "
SET statement_timeout = '15s';
SET lock_timeout = '10s';
SET idle_in_transaction_session_timeout = '15s';
SET tcp_keepalives_idle = 10;
SET tcp_keepalives_interval = 5;
SET tcp_keepalives_count = 3;
SET tcp_user_timeout = '25s';
SET default_transaction_isolation = 'read committed';
SET jit = off;
SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off';
";

/// Whether a call is repeated on a new connection when its connection breaks.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Retry {
    /// Repeat once: repeating does no harm.
    Once,
    /// Do not repeat: the call may have succeeded, and must not be done twice.
    Never,
}

/// Settings needed to connect.
#[derive(Clone)]
pub(crate) struct ConnectTarget {
    config: Config,
    tls: MakeRustlsConnect,
    pub(crate) label: String,
}

impl ConnectTarget {
    pub(crate) fn new(address: &str, authorities: Option<&Path>) -> Result<Self, Error> {
        let config = address::parse(address)?;
        Ok(Self {
            tls: tls::connector(&config, authorities)?,
            label: address::label(&config),
            config,
        })
    }
}

pub(crate) struct Connection {
    target: ConnectTarget,
    /// Event loop; always present until the drop, which does not wait for a hanging name
    /// resolution.
    runtime: Option<Runtime>,
    session: Option<Session>,
}

struct Session {
    client: Client,
    /// Task that transfers bytes while a call waits.
    io_task: JoinHandle<()>,
}

impl Drop for Session {
    fn drop(&mut self) {
        self.io_task.abort();
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.session = None;
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Connection {
    /// Prepares a connection. The first call connects.
    pub(crate) fn new(target: ConnectTarget) -> Result<Self, Error> {
        let runtime = Builder::new_current_thread().enable_all().build();
        Ok(Self {
            target,
            runtime: Some(runtime.map_err(Error::EventLoop)?),
            session: None,
        })
    }

    pub(crate) fn label(&self) -> &str {
        &self.target.label
    }

    /// Runs `work` within `limit`. Repeats it only if a connection that was open has broken.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "closures are written where they are used"
    )]
    pub(crate) fn call<T>(
        &mut self,
        repeat: Retry,
        limit: Duration,
        work: impl AsyncFn(&mut Client) -> Result<T, PgError>,
    ) -> Result<T, Error> {
        let was_open = self.session.is_some();
        let outcome = self.attempt(limit, &work);
        let has_broken = outcome.is_err() && self.session.is_none();
        match outcome {
            Err(CallError::Postgres(_)) if was_open && has_broken && repeat == Retry::Once => {
                self.attempt(limit, &work)
            }
            outcome => outcome,
        }
        .map_err(|failure| self.to_error(failure))
    }

    /// Checks the connection, and connects again if it is broken.
    pub(crate) fn reconnect_if_broken(&mut self) -> Result<(), Error> {
        self.call(Retry::Once, CALL_LIMIT, async |client| {
            client.check_connection().await
        })
    }

    fn attempt<T>(
        &mut self,
        limit: Duration,
        work: &impl AsyncFn(&mut Client) -> Result<T, PgError>,
    ) -> Result<T, CallError> {
        let mut session = match self.session.take() {
            Some(session) => session,
            None => self.connect()?,
        };
        let outcome = self.wait(limit, work(&mut session.client))?;
        let ended = outcome.as_ref().is_err_and(ends_session);
        if !ended && !session.client.is_closed() {
            self.session = Some(session);
        }
        outcome.map_err(CallError::Postgres)
    }

    fn connect(&self) -> Result<Session, CallError> {
        let ConnectTarget { config, tls, .. } = &self.target;
        self.wait(CONNECT_LIMIT, async {
            let (client, connection) = config.connect(tls.clone()).await?;
            let io_task = tokio::spawn(async { drop(connection.await) });
            let session = Session { client, io_task };
            session.client.batch_execute(SESSION).await?;
            Ok(session)
        })?
        .map_err(CallError::Postgres)
    }

    fn wait<T>(&self, limit: Duration, work: impl Future<Output = T>) -> Result<T, CallError> {
        let runtime = self.runtime.as_ref().expect("present until the drop");
        runtime
            .block_on(async { timeout(limit, work).await })
            .map_err(|_| CallError::Timeout(limit))
    }

    fn to_error(&self, failure: CallError) -> Error {
        match failure {
            CallError::Postgres(error) => Error::from_postgres(&self.target.label, error),
            CallError::Timeout(limit) => Error::timed_out(&self.target.label, limit),
        }
    }
}

/// Whether the server reports that it closes the connection.
fn ends_session(error: &PgError) -> bool {
    let severity = error.as_db_error().and_then(DbError::parsed_severity);
    matches!(severity, Some(Severity::Fatal | Severity::Panic))
}

enum CallError {
    Postgres(PgError),
    Timeout(Duration),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{error::Cause, schema};
    use longhaul_testprograms::postgres::Server;

    const SHORT: Duration = Duration::from_millis(200);

    fn connection(server: &Server) -> Connection {
        let target = ConnectTarget::new(&server.create_database(), None).unwrap();
        Connection::new(target).unwrap()
    }

    fn ask(connection: &mut Connection, limit: Duration, sql: &str) -> Result<(), Error> {
        connection.call(Retry::Once, limit, async |client| {
            client.batch_execute(sql).await
        })
    }

    #[test]
    #[ignore = "needs PostgreSQL: make test-peers"]
    fn times_out_when_the_server_does_not_reply() {
        let mut connection = connection(Server::shared());
        let error = ask(&mut connection, SHORT, "SELECT pg_sleep(3600)").unwrap_err();
        assert!(
            matches!(&error, Error::Unreachable { source: Cause::Timeout(limit), .. } if *limit == SHORT)
        );
        ask(&mut connection, CALL_LIMIT, "SELECT 1").unwrap();
    }

    #[test]
    #[ignore = "needs PostgreSQL: make test-peers"]
    fn times_out_when_the_server_is_stopped() {
        let server = Server::start();
        let mut connection = connection(&server);
        schema::prepare(&mut connection).unwrap();
        server.pause();
        let error = ask(&mut connection, SHORT, "SELECT 1").unwrap_err();
        assert!(error.is_unreachable(), "{error:?}");
        server.resume();
        ask(&mut connection, CALL_LIMIT, "SELECT 1").unwrap();
    }

    #[test]
    #[ignore = "needs PostgreSQL: make test-peers"]
    fn repeats_only_calls_that_may_be_repeated() {
        let server = Server::shared();
        let mut connection = connection(server);
        let kill = "SELECT pg_terminate_backend(pg_backend_pid())";
        ask(&mut connection, CALL_LIMIT, "CREATE TABLE tried ()").unwrap();
        let count = "INSERT INTO tried DEFAULT VALUES";
        let both = async |client: &mut Client| {
            client.batch_execute(count).await?;
            client.batch_execute(kill).await
        };
        for (repeat, tries) in [(Retry::Never, 1), (Retry::Once, 2)] {
            connection.reconnect_if_broken().unwrap();
            let error = connection.call(repeat, CALL_LIMIT, both).unwrap_err();
            assert!(error.is_unreachable(), "{error:?}");
            let rows = connection.call(Retry::Once, CALL_LIMIT, async |client| {
                let rows = "DELETE FROM tried RETURNING 1";
                client.query_typed(rows, &[]).await
            });
            assert_eq!(rows.unwrap().len(), tries);
        }
    }

    /// A setting `off` of the administrator is changed to `on`; stronger settings stay.
    #[test]
    #[ignore = "needs PostgreSQL: make test-peers"]
    fn turns_synchronous_commit_on() {
        let server = Server::shared();
        let url = server.create_database();
        let name = url.rsplit('/').next().unwrap();
        for (set, found) in [("off", "on"), ("remote_apply", "remote_apply")] {
            server.run_sql(
                name,
                &format!("ALTER DATABASE {name} SET synchronous_commit = {set}"),
            );
            let mut connection = Connection::new(ConnectTarget::new(&url, None).unwrap()).unwrap();
            let show = "SELECT current_setting('synchronous_commit')";
            let row = connection.call(Retry::Once, CALL_LIMIT, async |client| {
                client.query_typed_one(show, &[]).await
            });
            assert_eq!(row.unwrap().get::<_, &str>(0), found);
        }
    }
}
