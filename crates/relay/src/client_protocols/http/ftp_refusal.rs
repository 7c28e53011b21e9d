// SPDX-License-Identifier: MIT OR Apache-2.0
//! Requests for `ftp://` URLs, in a build without the feature `ftp`.

use crate::client_protocols::http::proxy::{Body, ClientRequest, ErrorResponse, Proxy};
use hyper::{Response, StatusCode};
use longhaul_protocol::{destination::Destination, failure::Failure};

impl Proxy {
    /// Refuses the request.
    pub(super) async fn ftp(
        &self,
        _: ClientRequest,
        _: &Destination,
    ) -> Result<Response<Body>, ErrorResponse> {
        Err(ErrorResponse {
            status: StatusCode::NOT_IMPLEMENTED,
            error: Some(""),
            ..ErrorResponse::new(
                Failure::Other,
                "this relay was built without FTP (feature ftp)".to_owned(),
            )
        })
    }
}
