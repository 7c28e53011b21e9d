// SPDX-License-Identifier: MIT OR Apache-2.0
//! Requests for `ftp://` URLs.

use crate::client_protocols::{
    ftp::{self, gateway_error::GatewayError},
    http::{
        exchange::{CONTINUE, Exchange},
        proxy::{Body, ClientRequest, ErrorResponse, Proxy},
        response_timeout::RequestBody,
    },
};
use http_body_util::Either;
use hyper::{Method, Response, StatusCode, header};
use longhaul_protocol::{destination::Destination, failure::Failure, proxy_headers::credentials};
use std::sync::Arc;

impl Proxy {
    /// Gets the file or the directory, or stores the file.
    pub(super) async fn ftp(
        &self,
        request: ClientRequest,
        server: &Destination,
    ) -> Result<Response<Body>, ErrorResponse> {
        let bad = |reason| ErrorResponse::new(Failure::BadRequest, reason);
        let (head, body) = request.into_parts();
        let given = credentials(&head.headers, header::AUTHORIZATION);
        let url = ftp::Url::new(&head.uri, given).map_err(bad)?;
        let headers = &head.headers;
        let outcome = match head.method {
            Method::GET | Method::HEAD => {
                let only_head = head.method == Method::HEAD;
                ftp::get(&self.session, server, &url, headers, only_head).await
            }
            Method::PUT => {
                let memory = &self.session.http;
                let upload = RequestBody::new(body, &Arc::default(), &self.exchange, memory);
                let invite = || request_body(&self.exchange);
                ftp::put(&self.session, server, &url, headers, upload, invite).await
            }
            _ => return Err(bad("ftp:// supports GET, HEAD and PUT".to_owned())),
        };
        match outcome {
            Ok(response) => {
                self.session.stop_request_timer();
                Ok(response.map(Either::Right))
            }
            Err(GatewayError {
                fault: Some(fault), ..
            }) => Err(fault.into()),
            Err(GatewayError { status, reason, .. }) => {
                let reason = format!("{}: {reason}", head.uri.path());
                let (failure, error) = match status {
                    StatusCode::GATEWAY_TIMEOUT => (Failure::TimedOut, "http_response_timeout"),
                    _ => (Failure::Other, ""),
                };
                Err(ErrorResponse {
                    status,
                    error: Some(error),
                    ..ErrorResponse::new(failure, reason)
                })
            }
        }
    }
}

/// Asks the client to send its body, if it waits for 100 (Continue).
fn request_body(exchange: &Exchange) {
    if exchange.awaits_continue() {
        exchange.queue_interim(CONTINUE);
    }
}
