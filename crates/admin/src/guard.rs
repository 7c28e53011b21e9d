// SPDX-License-Identifier: MIT OR Apache-2.0
//! Access checks. Every local client may read, but a page of another origin in a browser on this host
//! must not.

use hyper::{Method, Request, StatusCode, header, http::uri::Authority};
use std::net::IpAddr;

/// Status and text of a response that refuses a request.
pub(super) type Rejection = (StatusCode, &'static str);

/// Allows GET and HEAD if the request is addressed to this host. For other methods, `respond_to_successor`
/// returns the response if a successor of this process sent the request.
pub(super) fn check<B>(
    request: &Request<B>,
    respond_to_successor: impl FnOnce() -> Option<Rejection>,
) -> Result<Option<Rejection>, Rejection> {
    if matches!(*request.method(), Method::GET | Method::HEAD) {
        return check_host(request).map(|()| None);
    }
    let only_reading = (
        StatusCode::METHOD_NOT_ALLOWED,
        "only GET and HEAD are served here",
    );
    check_host(request).map_err(|_| only_reading)?;
    respond_to_successor().map(Some).ok_or(only_reading)
}

/// Prevents DNS rebinding. A page of `evil.example` may change its DNS record to 127.0.0.1 after it was loaded.
/// A browser then lets it read from this endpoint, as from its own origin. Its requests still carry the name
/// `evil.example`.
fn check_host<B>(request: &Request<B>) -> Result<(), Rejection> {
    let field = request.headers().get(header::HOST);
    // RFC 9112 §3.2.2: an absolute target overrides the field.
    let authority = match request.uri().authority() {
        Some(authority) => Some(authority.clone()),
        None => field.and_then(|value| value.to_str().ok()?.parse().ok()),
    };
    if authority.as_ref().is_some_and(is_loopback) {
        Ok(())
    } else {
        Err((
            StatusCode::MISDIRECTED_REQUEST,
            "the Host field must be localhost or a loopback address, also from a reverse proxy",
        ))
    }
}

fn is_loopback(authority: &Authority) -> bool {
    let host = authority.host();
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let address = bare.parse::<IpAddr>();
    host.eq_ignore_ascii_case("localhost")
        || address.is_ok_and(|ip| ip.to_canonical().is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(method: &str, target: &str, host: Option<&str>) -> Option<u16> {
        let mut request = Request::builder().method(method).uri(target);
        if let Some(host) = host {
            request = request.header(header::HOST, host);
        }
        let outcome = check(&request.body(()).unwrap(), || None);
        outcome.err().map(|(status, _)| status.as_u16())
    }

    #[test]
    fn serves_own_names() {
        for host in [
            "localhost",
            "LocalHost:9100",
            "127.0.0.1:9100",
            "127.8.8.8",
            "[::1]:9100",
            "[::ffff:127.0.0.1]",
        ] {
            assert_eq!(status("GET", "/", Some(host)), None, "{host}");
            assert_eq!(status("HEAD", "/", Some(host)), None, "{host}");
        }
    }

    #[test]
    fn rejects_other_names() {
        for host in [
            "evil.example",
            "localhost.evil.example:9100",
            "127.0.0.1.evil.example",
            "192.0.2.1:9100",
            "0.0.0.0:9100",
            "2130706433",
            "[::]:9100",
            "",
            "local host",
        ] {
            assert_eq!(status("GET", "/", Some(host)), Some(421), "{host}");
        }
        assert_eq!(status("GET", "/", None), Some(421));
    }

    #[test]
    fn absolute_target_overrides_host_field() {
        let evil = "http://evil.example/metrics";
        assert_eq!(status("GET", evil, Some("localhost")), Some(421));
    }

    #[test]
    fn rejects_other_methods() {
        for method in ["POST", "PUT", "DELETE", "OPTIONS", "CONNECT", "TRACE"] {
            assert_eq!(
                status(method, "/", Some("localhost")),
                Some(405),
                "{method}"
            );
        }
    }
}
