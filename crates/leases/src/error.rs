// SPDX-License-Identifier: MIT OR Apache-2.0
//! What can go wrong, and whether trying again may help.

use std::{io, time::Duration};
use tokio_postgres::error::{DbError, SqlState};

/// What can go wrong with a [`Board`](crate::Board).
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address can't be used.
    #[error(
        "this is no address of a PostgreSQL server (postgresql://USER@HOST:PORT/DATABASE, or \
         'host=… port=… user=… dbname=…'; sslmode is disable, prefer or require)"
    )]
    Address(#[source] tokio_postgres::Error),
    /// Certificates of authorities can't be read.
    #[error("certificates of authorities: {0}")]
    Authorities(String),
    /// The server can't be reached, is starting or stopping, is a standby, has no room, or was too
    /// slow. The same call may succeed later; what became of this one is unknown.
    #[error("PostgreSQL at {server} can't be reached")]
    Unreachable {
        /// Hosts, ports and database.
        server: String,
        /// What was seen.
        #[source]
        source: Cause,
    },
    /// The server was reached and refuses, or can't be trusted. Trying again won't help.
    #[error("PostgreSQL at {server} refuses")]
    Refused {
        /// Hosts, ports and database.
        server: String,
        /// What it says.
        #[source]
        source: Cause,
    },
    /// Another version of longhaul made the tables.
    #[error(
        "the schema longhaul at {server} has format {found}, this longhaul knows format {known}: \
         use another database, or one version of longhaul on all machines"
    )]
    Format {
        /// Hosts, ports and database.
        server: String,
        /// The number found.
        found: i32,
        /// The number known.
        known: i32,
    },
    /// A job of this name is there and is to do something else.
    #[error("a job of this name is there already and was started with other arguments")]
    OtherSpec,
    /// The job is not there (any more): it was forgotten.
    #[error("the job is not there any more: somebody took it away")]
    NoJob,
    /// Something is larger than its bound.
    #[error("{what} is {len}, at most {max} is possible")]
    TooLarge {
        /// What it is.
        what: &'static str,
        /// Its length or number.
        len: u64,
        /// The bound.
        max: u64,
    },
    /// No thread of its own for the connection's timers and sockets could be set up.
    #[error("the connection's event loop can't be made")]
    EventLoop(#[source] io::Error),
}

/// Why a server didn't do what it was asked for.
#[derive(Debug, thiserror::Error)]
pub enum Cause {
    /// It said nothing for so long.
    #[error("no answer within {} s", .0.as_secs())]
    Silence(Duration),
    /// It, or the network, said so.
    #[error(transparent)]
    Said(#[from] tokio_postgres::Error),
}

impl Error {
    /// Whether the same call may succeed later without anybody changing anything.
    pub fn is_unreachable(&self) -> bool {
        matches!(self, Self::Unreachable { .. })
    }

    pub(crate) fn said(server: &str, error: tokio_postgres::Error) -> Self {
        let (server, passes) = (server.to_owned(), passes(&error));
        let source = Cause::Said(error);
        if passes {
            Self::Unreachable { server, source }
        } else {
            Self::Refused { server, source }
        }
    }

    pub(crate) fn silence(server: &str, limit: Duration) -> Self {
        Self::Unreachable {
            server: server.to_owned(),
            source: Cause::Silence(limit),
        }
    }
}

/// Whether this may be otherwise later.
fn passes(error: &tokio_postgres::Error) -> bool {
    if let Some(said) = error.as_db_error() {
        return condition_passes(said);
    }
    match std::error::Error::source(error) {
        None => true,
        Some(source) => source.downcast_ref().is_some_and(network_passes),
    }
}

/// PostgreSQL's appendix A.
fn condition_passes(said: &DbError) -> bool {
    let code = said.code();
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

/// What is wrong with bytes (no PostgreSQL there, a certificate that nobody vouches for) or with rights
/// to a Unix socket stays wrong.
fn network_passes(error: &io::Error) -> bool {
    match error.kind() {
        io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput => false,
        // Without a number it is the library's word for a standby.
        io::ErrorKind::PermissionDenied => error.raw_os_error().is_none(),
        _ => true,
    }
}
