// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the client gets where the server gives nothing.

use crate::faults::fault::Fault;
use hyper::StatusCode;
use longhaul_protocol::failure::Failure;
use std::{io, time::Duration};
use suppaftp::FtpError;
use tokio::time::timeout;

/// What the client gets instead.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) status: StatusCode,
    pub(crate) reason: String,
    /// There is no connection to the server.
    pub(crate) fault: Option<Fault>,
}

impl Refusal {
    pub(crate) fn new(status: StatusCode, reason: impl Into<String>) -> Self {
        let reason = reason.into();
        Self {
            status,
            reason,
            fault: None,
        }
    }
}

impl From<Failure> for Refusal {
    fn from(failure: Failure) -> Self {
        Fault::from(failure).into()
    }
}

impl From<Fault> for Refusal {
    fn from(fault: Fault) -> Self {
        Self {
            fault: Some(fault.clone()),
            ..Self::new(fault.failure.http(), fault.to_string())
        }
    }
}

/// RFC 959 §4.2.
impl From<FtpError> for Refusal {
    fn from(error: FtpError) -> Self {
        if is_late(&error) {
            return Self::new(StatusCode::GATEWAY_TIMEOUT, "the FTP server is silent");
        }
        let status = match code(&error) {
            Some(332 | 430 | 530 | 532) => StatusCode::UNAUTHORIZED,
            Some(550) => StatusCode::NOT_FOUND,
            Some(552) => StatusCode::INSUFFICIENT_STORAGE,
            Some(553) => StatusCode::FORBIDDEN,
            Some(421 | 425 | 426 | 450 | 451 | 452) => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::BAD_GATEWAY,
        };
        Self::new(status, format!("the FTP server: {}", words(&error)))
    }
}

/// What the server said, with its code.
fn words(error: &FtpError) -> String {
    match error {
        FtpError::UnexpectedResponse(reply) => {
            String::from_utf8_lossy(&reply.body).trim().to_owned()
        }
        error => error.to_string(),
    }
}

pub(crate) fn code(error: &FtpError) -> Option<u32> {
    match error {
        FtpError::UnexpectedResponse(response) => Some(response.status.code()),
        _ => None,
    }
}

/// Servers without EPSV (RFC 2428) have PASV.
pub(crate) fn lacks_epsv(error: &FtpError) -> bool {
    matches!(code(error), Some(500..=504 | 522))
}

/// A step of the protocol that a server has `limit` for.
pub(crate) async fn in_time<T>(
    limit: Duration,
    step: impl Future<Output = Result<T, FtpError>>,
) -> Result<T, FtpError> {
    let late = |_| Err(FtpError::ConnectionError(io::ErrorKind::TimedOut.into()));
    timeout(limit, step).await.unwrap_or_else(late)
}

fn is_late(error: &FtpError) -> bool {
    matches!(error, FtpError::ConnectionError(error) if error.kind() == io::ErrorKind::TimedOut)
}

/// What a server may leave out, but not by silence.
pub(crate) fn if_known<T>(outcome: Result<T, FtpError>) -> Result<Option<T>, FtpError> {
    match outcome {
        Err(error) if is_late(&error) => Err(error),
        outcome => Ok(outcome.ok()),
    }
}
