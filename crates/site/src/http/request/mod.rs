// SPDX-License-Identifier: MIT OR Apache-2.0
//! Parts of requests: lines, targets, conditional headers, ranges, and bodies, which are XML.

pub(super) mod conditions;
pub(super) mod line;
pub(super) mod properties;
pub(super) mod ranges;
pub(super) mod target;
pub mod xml;

use super::response::{Outcome, Rejection};
use bytes::Bytes;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Incoming;
use std::time::Duration;
use tokio::time::timeout;

/// Longest time to receive the body of a request other than PUT.
const BODY_TIMEOUT: Duration = Duration::from_secs(20);

/// Reads the whole body of a request.
pub(super) async fn collect_body(body: &mut Incoming) -> Outcome<Bytes> {
    let body = Limited::new(body, xml::BODY_LEN_MAX).collect();
    match timeout(BODY_TIMEOUT, body).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => {
            Err(Rejection(413, "the body is too long"))
        }
        Ok(Err(_)) => Err(Rejection(400, "the body is incomplete")),
        Err(_) => Err(Rejection(408, "the body is too slow")),
    }
}
