// SPDX-License-Identifier: MIT OR Apache-2.0
//! What an HTTP proxy reads from and writes into message heads (RFC 9110 §7.6). No I/O.

use hyper::{
    HeaderMap, Method, Uri, Version,
    header::{self, HeaderName, HeaderValue},
    http::{request, response, uri},
};
use wire::destination::Destination;

/// Where a request goes, or why it can't, as a sentence for the client.
pub(crate) fn destination(method: &Method, uri: &Uri) -> Result<Destination, String> {
    let authority = uri
        .authority()
        .ok_or("this is a proxy: want an absolute http:// URI")?;
    let host = authority
        .host()
        .trim_start_matches('[')
        .trim_end_matches(']');
    let port = match (method, authority.port_u16()) {
        (_, Some(0)) => return Err("port 0 can't be connected to".to_owned()),
        (_, Some(port)) => port,
        // RFC 9110 §9.3.6: CONNECT has no default port; a bad one is a bad request.
        (&Method::CONNECT, None) => return Err("CONNECT needs HOST:PORT".to_owned()),
        (_, None) if authority.as_str().ends_with(':') || !has_port(authority) => HTTP_PORT,
        (_, None) => return Err("the port is not 1 to 65535".to_owned()),
    };
    if *method != Method::CONNECT && uri.scheme() != Some(&uri::Scheme::HTTP) {
        return Err("only http:// here; for https use CONNECT".to_owned());
    }
    Destination::from_host(host, port).map_err(|error| error.to_string())
}

const HTTP_PORT: u16 = 80;

fn has_port(authority: &uri::Authority) -> bool {
    let after_host = authority
        .as_str()
        .rsplit(['@', ']'])
        .next()
        .unwrap_or_default();
    after_host.contains(':')
}

/// Whether the message has passed the proxy called `pseudonym` before (RFC 9110 §7.6.3).
pub(crate) fn has_passed(headers: &HeaderMap, pseudonym: &str) -> bool {
    let via = headers.get_all(header::VIA).into_iter();
    let mut entries = via
        .filter_map(|v| v.to_str().ok())
        .flat_map(|v| v.split(','));
    entries.any(|entry| entry.split_whitespace().nth(1) == Some(pseudonym))
}

/// Turns a client's request into the one for the origin: origin-form, Host from the URI (RFC 9112
/// §3.2.2), without hop-by-hop fields, with Via.
pub(crate) fn onward_request(head: &mut request::Parts, pseudonym: &str) {
    strip_hop_by_hop(&mut head.headers);
    head.headers.remove(header::PROXY_AUTHORIZATION);
    add_via(&mut head.headers, head.version, pseudonym);
    if let Some(host) = head.uri.authority().and_then(host_field) {
        head.headers.insert(header::HOST, host);
    }
    head.uri = origin_form(head);
    head.version = Version::HTTP_11;
}

/// Turns an origin's response into the one for the client.
pub(crate) fn onward_response(head: &mut response::Parts, pseudonym: &str) {
    strip_hop_by_hop(&mut head.headers);
    add_via(&mut head.headers, head.version, pseudonym);
    head.version = Version::HTTP_11;
}

fn host_field(authority: &uri::Authority) -> Option<HeaderValue> {
    let without_user = authority.as_str().rsplit('@').next()?;
    HeaderValue::from_str(without_user).ok()
}

/// RFC 9112 §3.2.4: `OPTIONS http://host` without a path is `OPTIONS *`.
fn origin_form(head: &request::Parts) -> Uri {
    let bare = |p: &uri::PathAndQuery| p.as_str() == "/" && !head.uri.to_string().ends_with('/');
    match head.uri.path_and_query() {
        Some(path) if head.method == Method::OPTIONS && bare(path) => Uri::from_static("*"),
        Some(path) => path.clone().into(),
        None => Uri::from_static("/"),
    }
}

/// RFC 9110 §7.6.1: the fields that Connection names, and those that never pass a proxy.
/// Transfer-Encoding goes too: the body is framed anew.
fn strip_hop_by_hop(headers: &mut HeaderMap) {
    const ALWAYS: [HeaderName; 5] = [
        header::CONNECTION,
        header::PROXY_AUTHENTICATE,
        header::TE,
        header::TRANSFER_ENCODING,
        header::UPGRADE,
    ];
    const OF_OLD: [&str; 2] = ["keep-alive", "proxy-connection"];
    for name in named_by_connection(headers) {
        headers.remove(name);
    }
    ALWAYS.iter().for_each(|name| drop(headers.remove(name)));
    OF_OLD.iter().for_each(|name| drop(headers.remove(*name)));
}

fn named_by_connection(headers: &HeaderMap) -> Vec<HeaderName> {
    let fields = headers.get_all(header::CONNECTION).into_iter();
    let names = fields
        .filter_map(|v| v.to_str().ok())
        .flat_map(|v| v.split(','));
    names
        .filter_map(|name| name.trim().parse().ok())
        // A client must not be able to remove the fields that frame or address the message.
        .filter(|name| ![header::CONTENT_LENGTH, header::HOST].contains(name))
        .collect()
}

fn add_via(headers: &mut HeaderMap, received: Version, pseudonym: &str) {
    let protocol = match received {
        Version::HTTP_10 => "1.0",
        _ => "1.1",
    };
    if let Ok(entry) = HeaderValue::from_str(&format!("{protocol} {pseudonym}")) {
        headers.append(header::VIA, entry);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::Request;

    fn goes_to(method: &Method, uri: &str) -> Result<String, String> {
        destination(method, &uri.parse().unwrap()).map(|d| d.to_string())
    }

    #[test]
    fn finds_the_destination() {
        assert_eq!(
            goes_to(&Method::GET, "http://h.test/a").unwrap(),
            "h.test:80"
        );
        assert_eq!(
            goes_to(&Method::GET, "http://u:p@h.test:81/").unwrap(),
            "h.test:81"
        );
        assert_eq!(
            goes_to(&Method::PUT, "http://[2001:db8::1]/").unwrap(),
            "[2001:db8::1]:80"
        );
        assert_eq!(goes_to(&Method::CONNECT, "[::1]:443").unwrap(), "[::1]:443");
    }

    #[test]
    fn refuses_what_it_can_t_serve() {
        for (method, uri) in [
            (Method::GET, "/origin-form"),
            (Method::GET, "https://h.test/"),
            (Method::GET, "ftp://h.test/"),
            (Method::GET, "http://h.test:0/"),
            (Method::GET, "http://h.test:70000/"),
            (Method::CONNECT, "h.test"),
            (Method::CONNECT, "h.test:0"),
            (Method::CONNECT, "h.test:70000"),
        ] {
            assert!(goes_to(&method, uri).is_err(), "{method} {uri}");
        }
    }

    fn onward(request: Request<()>) -> request::Parts {
        let mut head = request.into_parts().0;
        onward_request(&mut head, "me");
        head
    }

    #[test]
    fn request_loses_hop_by_hop_fields_and_gains_via() {
        let request = Request::get("http://h.test:81/a?b")
            .header("connection", "x-private, keep-alive, content-length")
            .header("x-private", "1")
            .header("keep-alive", "5")
            .header("proxy-authorization", "Basic eA==")
            .header("te", "trailers")
            .header("content-length", "3")
            .header("x-public", "2")
            .header("host", "liar.test");
        let head = onward(request.body(()).unwrap());
        let names: Vec<_> = head.headers.keys().map(HeaderName::as_str).collect();
        assert_eq!(head.uri, "/a?b");
        assert_eq!(head.headers["host"], "h.test:81");
        assert_eq!(head.headers["via"], "1.1 me");
        assert_eq!(names.len(), 4, "{names:?}");
        assert!(has_passed(&head.headers, "me"));
    }

    #[test]
    fn via_finds_loops_among_other_proxies() {
        let request = Request::get("http://h.test/").header("via", "1.0 other, 1.1 me (note)");
        let head = request.body(()).unwrap().into_parts().0;
        assert!(has_passed(&head.headers, "me"));
        assert!(!has_passed(&head.headers, "m"));
    }
}
