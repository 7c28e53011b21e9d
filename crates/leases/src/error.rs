// SPDX-License-Identifier: MIT OR Apache-2.0
//! Errors of the job store, and whether the same call may succeed later.

use std::{io, time::Duration};
use tokio_postgres::error::{DbError, SqlState};

/// Error of a [`JobStore`](crate::JobStore).
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address is invalid.
    #[error(
        "not an address of a PostgreSQL server (postgresql://USER@HOST:PORT/DATABASE, or \
         'host=… port=… user=… dbname=…'; sslmode is disable, prefer or require)"
    )]
    Address(#[source] tokio_postgres::Error),
    /// The certificates of the trusted authorities cannot be read.
    #[error("certificates of authorities: {0}")]
    Authorities(String),
    /// The server cannot be reached, is starting or stopping, is a standby, is overloaded, or was
    /// too slow. The same call may succeed later. Whether this call had an effect is unknown.
    #[error("PostgreSQL at {server} cannot be reached")]
    Unreachable {
        /// Hosts, ports and database.
        server: String,
        /// Error that occurred.
        #[source]
        source: Cause,
    },
    /// The server refuses, or cannot be trusted. Repeating the call does not help.
    #[error("PostgreSQL at {server} refuses")]
    Refused {
        /// Hosts, ports and database.
        server: String,
        /// Reason.
        #[source]
        source: Cause,
    },
    /// The tables were created by another version of longhaul.
    #[error(
        "the schema longhaul at {server} has format {found}, this longhaul knows format {known}: \
         use another database, or one version of longhaul on all machines"
    )]
    Format {
        /// Hosts, ports and database.
        server: String,
        /// Format of the tables.
        found: i32,
        /// Format that this version supports.
        known: i32,
    },
    /// A job of this name exists with another spec.
    #[error("a job of this name exists already, started with other arguments")]
    SpecMismatch,
    /// The job does not exist; it may have been deleted.
    #[error("the job does not exist any more: it was deleted")]
    JobNotFound,
    /// A value is larger than its limit.
    #[error("{quantity} is {len}, which exceeds the maximum of {max}")]
    TooLarge {
        /// Name of the value.
        quantity: &'static str,
        /// Its length or number.
        len: u64,
        /// Limit.
        max: u64,
    },
    /// The event loop for the connection's timers and sockets cannot be created.
    #[error("the connection's event loop cannot be created")]
    EventLoop(#[source] io::Error),
}

/// Reason why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum Cause {
    /// No reply within this time.
    #[error("no answer within {} s", .0.as_secs())]
    Timeout(Duration),
    /// Error of the server or of the network.
    #[error(transparent)]
    Postgres(#[from] tokio_postgres::Error),
}

impl Error {
    /// Whether the same call may succeed later without any change.
    pub fn is_unreachable(&self) -> bool {
        matches!(self, Self::Unreachable { .. })
    }

    pub(crate) fn from_postgres(server: &str, error: tokio_postgres::Error) -> Self {
        let (server, passes) = (server.to_owned(), is_transient(&error));
        let source = Cause::Postgres(error);
        if passes {
            Self::Unreachable { server, source }
        } else {
            Self::Refused { server, source }
        }
    }

    pub(crate) fn timed_out(server: &str, limit: Duration) -> Self {
        Self::Unreachable {
            server: server.to_owned(),
            source: Cause::Timeout(limit),
        }
    }
}

/// Whether the same call may succeed later although it failed with this error.
fn is_transient(error: &tokio_postgres::Error) -> bool {
    if let Some(error) = error.as_db_error() {
        return is_transient_state(error);
    }
    match std::error::Error::source(error) {
        None => true,
        Some(source) => source.downcast_ref().is_some_and(is_transient_io),
    }
}

/// Whether an error from the server is temporary, by its code (PostgreSQL manual, appendix A).
fn is_transient_state(error: &DbError) -> bool {
    let code = error.code();
    let class = &code.code()[..2];
    // Connection exception, transaction rollback (deadlock), insufficient resources.
    ["08", "40", "53"].contains(&class)
        || [
            SqlState::ADMIN_SHUTDOWN,
            SqlState::CRASH_SHUTDOWN,
            SqlState::CANNOT_CONNECT_NOW,
            SqlState::IDLE_SESSION_TIMEOUT,
            SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT,
            SqlState::LOCK_NOT_AVAILABLE,
            SqlState::QUERY_CANCELED,
            // A standby, which may be about to take over.
            SqlState::READ_ONLY_SQL_TRANSACTION,
        ]
        .contains(code)
}

/// Whether an error of the connection is temporary. Invalid data is not: the peer is not
/// PostgreSQL, or its certificate is not trusted. Missing permission for a Unix socket is not
/// either.
fn is_transient_io(error: &io::Error) -> bool {
    match error.kind() {
        io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput => false,
        // Without an errno, it comes from tokio-postgres, and means that the server is a standby.
        io::ErrorKind::PermissionDenied => error.raw_os_error().is_none(),
        _ => true,
    }
}
