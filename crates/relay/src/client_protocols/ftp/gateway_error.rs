// SPDX-License-Identifier: MIT OR Apache-2.0
//! HTTP errors for failures of the FTP server.

use crate::faults::fault::Fault;
use hyper::StatusCode;
use longhaul_protocol::failure::Failure;
use std::{io, time::Duration};
use suppaftp::FtpError;
use tokio::time::timeout;

/// HTTP error response for a failed FTP request.
#[derive(Debug)]
pub(crate) struct GatewayError {
    pub(crate) status: StatusCode,
    pub(crate) reason: String,
    /// Set if the connection to the server failed.
    pub(crate) fault: Option<Fault>,
}

impl GatewayError {
    pub(crate) fn new(status: StatusCode, reason: impl Into<String>) -> Self {
        let reason = reason.into();
        Self {
            status,
            reason,
            fault: None,
        }
    }
}

impl From<Failure> for GatewayError {
    fn from(failure: Failure) -> Self {
        Fault::from(failure).into()
    }
}

impl From<Fault> for GatewayError {
    fn from(fault: Fault) -> Self {
        Self {
            fault: Some(fault.clone()),
            ..Self::new(fault.failure.http(), fault.to_string())
        }
    }
}

/// Maps FTP reply codes (RFC 959 §4.2) to HTTP status codes.
impl From<FtpError> for GatewayError {
    fn from(error: FtpError) -> Self {
        if is_timeout(&error) {
            return Self::new(StatusCode::GATEWAY_TIMEOUT, "the FTP server does not reply");
        }
        let status = match reply_code(&error) {
            Some(332 | 430 | 530 | 532) => StatusCode::UNAUTHORIZED,
            Some(550) => StatusCode::NOT_FOUND,
            Some(552) => StatusCode::INSUFFICIENT_STORAGE,
            Some(553) => StatusCode::FORBIDDEN,
            Some(421 | 425 | 426 | 450 | 451 | 452) => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::BAD_GATEWAY,
        };
        Self::new(status, format!("the FTP server: {}", reply_text(&error)))
    }
}

/// Reply of the server, with its code.
fn reply_text(error: &FtpError) -> String {
    match error {
        FtpError::UnexpectedResponse(reply) => {
            String::from_utf8_lossy(&reply.body).trim().to_owned()
        }
        error => error.to_string(),
    }
}

pub(crate) fn reply_code(error: &FtpError) -> Option<u32> {
    match error {
        FtpError::UnexpectedResponse(response) => Some(response.status.code()),
        _ => None,
    }
}

/// Whether the server does not support EPSV (RFC 2428); PASV is the fallback.
pub(crate) fn lacks_epsv(error: &FtpError) -> bool {
    matches!(reply_code(error), Some(500..=504 | 522))
}

/// Runs one step of the protocol, with a time-out of `limit`.
pub(crate) async fn with_limit<T>(
    limit: Duration,
    step: impl Future<Output = Result<T, FtpError>>,
) -> Result<T, FtpError> {
    let timed_out = |_| Err(FtpError::ConnectionError(io::ErrorKind::TimedOut.into()));
    timeout(limit, step).await.unwrap_or_else(timed_out)
}

fn is_timeout(error: &FtpError) -> bool {
    matches!(error, FtpError::ConnectionError(error) if error.kind() == io::ErrorKind::TimedOut)
}

/// Makes an optional step's failure `None`, except a time-out.
pub(crate) fn optional<T>(outcome: Result<T, FtpError>) -> Result<Option<T>, FtpError> {
    match outcome {
        Err(error) if is_timeout(&error) => Err(error),
        outcome => Ok(outcome.ok()),
    }
}
