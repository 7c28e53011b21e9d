// SPDX-License-Identifier: MIT OR Apache-2.0
//! Failures of FTP commands, each with the step at which it happened: the same code means different things in each.

use crate::faults::fault::Fault;
use longhaul_protocol::{
    destination::Destination,
    ftp::{Reply, ReplyError},
};
use std::{io, time::Duration};
use tokio::time::timeout;

/// Purpose of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// The greeting, USER and PASS.
    Login,
    /// CWD, LIST and RETR.
    Read,
    /// STOR.
    Write,
    /// All other commands.
    Other,
}

/// Failure of a command.
#[derive(Debug, thiserror::Error)]
pub(super) enum FtpError {
    /// The server refused, or gave a reply that the command does not have.
    #[error("{}", .1.summary())]
    Refused(Step, Reply),
    /// The server speaks another protocol.
    #[error("{0}")]
    Reply(#[from] ReplyError),
    /// The server closed the control connection.
    #[error("the control connection is closed")]
    Closed,
    /// A connection failed, or a step took too long.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The control connection was not established.
    #[error("{0}")]
    NotConnected(Fault),
    /// The data connection was not established.
    #[error("no data connection to {0}: {1}")]
    NoData(Destination, Fault),
}

impl From<Fault> for FtpError {
    fn from(fault: Fault) -> Self {
        Self::NotConnected(fault)
    }
}

impl FtpError {
    /// Whether the server has no file of this name.
    pub(super) fn is_missing_file(&self) -> bool {
        matches!(self, Self::Refused(Step::Read, reply) if reply.code == 550)
    }

    /// Whether the server gave no reply or no data in time.
    pub(super) fn is_timeout(&self) -> bool {
        matches!(self, Self::Io(error) if error.kind() == io::ErrorKind::TimedOut)
    }

    /// Whether the server could not use the data connection, and no byte was sent over it.
    pub(super) fn is_data_connection_failure(&self) -> bool {
        matches!(self, Self::Refused(_, reply) if matches!(reply.code, 421 | 425 | 426))
    }

    /// Whether the control connection is gone.
    pub(super) fn is_closed(&self) -> bool {
        matches!(self, Self::Closed) || matches!(self, Self::Io(_)) && !self.is_timeout()
    }
}

/// Runs one step of the protocol, with a time-out of `limit`.
pub(super) async fn with_limit<T, E: Into<FtpError>>(
    limit: Duration,
    step: impl Future<Output = Result<T, E>>,
) -> Result<T, FtpError> {
    let ended = timeout(limit, step).await;
    let outcome = ended.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?;
    outcome.map_err(Into::into)
}
