// SPDX-License-Identifier: MIT OR Apache-2.0
//! HTTP errors for failures of the FTP server.

use crate::{
    client_protocols::ftp::error::{FtpError, Step},
    faults::fault::Fault,
};
use hyper::StatusCode;
use longhaul_protocol::failure::Failure;

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

impl From<FtpError> for GatewayError {
    fn from(error: FtpError) -> Self {
        let reason = format!("the FTP server: {error}");
        match error {
            FtpError::NotConnected(fault) => fault.into(),
            FtpError::NoData(_, fault) => Self::new(fault.failure.http(), reason),
            FtpError::Refused(step, reply) => Self::new(status(step, reply.code), reason),
            error if error.is_timeout() => {
                Self::new(StatusCode::GATEWAY_TIMEOUT, "the FTP server does not reply")
            }
            _ => Self::new(StatusCode::BAD_GATEWAY, reason),
        }
    }
}

/// Maps the code of a refusal (RFC 959 §4.2) to the status that tells an HTTP client what to do. A code speaks of the
/// step that got it: 550 is a missing file only where a file was named.
fn status(step: Step, code: u16) -> StatusCode {
    match (step, code) {
        (_, 430 | 530 | 532) => StatusCode::UNAUTHORIZED,
        (_, 400..=499) => StatusCode::SERVICE_UNAVAILABLE,
        // Not a wrong password, but a command that the server does not know.
        (Step::Login, 500..=504) => StatusCode::BAD_GATEWAY,
        // 331 and 332 ask for more than user and password.
        (Step::Login, 300..=399 | 505..=599) => StatusCode::UNAUTHORIZED,
        (Step::Read, 550) => StatusCode::NOT_FOUND,
        (Step::Write, 550) | (Step::Read | Step::Write, 553) => StatusCode::FORBIDDEN,
        (Step::Write, 552) => StatusCode::INSUFFICIENT_STORAGE,
        _ => StatusCode::BAD_GATEWAY,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_means_what_it_means_for_its_step() {
        for (step, code, want) in [
            (Step::Login, 430, 401),
            (Step::Login, 530, 401),
            (Step::Login, 332, 401),
            (Step::Login, 550, 401),
            (Step::Login, 421, 503),
            (Step::Login, 500, 502),
            (Step::Read, 550, 404),
            (Step::Read, 450, 503),
            (Step::Read, 530, 401),
            (Step::Write, 550, 403),
            (Step::Write, 553, 403),
            (Step::Write, 532, 401),
            (Step::Write, 552, 507),
            (Step::Write, 452, 503),
            (Step::Other, 550, 502),
            (Step::Other, 522, 502),
        ] {
            assert_eq!(status(step, code).as_u16(), want, "{step:?} {code}");
        }
    }
}
