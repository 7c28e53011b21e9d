// SPDX-License-Identifier: MIT OR Apache-2.0
//! Fields of message heads that an HTTP proxy reads and writes (RFC 9110 §7.6). No I/O.

use crate::destination::Destination;
use base64::{Engine as _, prelude::BASE64_STANDARD as STANDARD};
use hyper::{
    HeaderMap, Method, StatusCode, Uri, Version,
    header::{self, HeaderName, HeaderValue},
    http::{request, response, uri},
};

/// Returns the destination of a request.
///
/// # Errors
/// The reason why there is none, as a sentence for the client.
pub fn destination(method: &Method, uri: &Uri) -> Result<Destination, String> {
    let authority = uri
        .authority()
        .ok_or("this is a proxy: expected an absolute http:// URI")?;
    if *method == Method::CONNECT && (uri.scheme().is_some() || authority.as_str().contains('@')) {
        return Err("CONNECT takes HOST:PORT, without a scheme and a user".to_owned());
    }
    let host = authority
        .host()
        .trim_start_matches('[')
        .trim_end_matches(']');
    let port = match (method, authority.port_u16()) {
        (_, Some(0)) => return Err("port 0 can't be connected to".to_owned()),
        (_, Some(port)) => port,
        // RFC 9110 §9.3.6: CONNECT has no default port; a bad one is a bad request.
        (&Method::CONNECT, None) => return Err("CONNECT needs HOST:PORT".to_owned()),
        (_, None) if authority.as_str().ends_with(':') || !has_port(authority) => default_port(uri),
        (_, None) => return Err("the port is not 1 to 65535".to_owned()),
    };
    if *method != Method::CONNECT && uri.scheme() != Some(&uri::Scheme::HTTP) && !is_ftp(uri) {
        return Err("only http:// and ftp:// here; for https use CONNECT".to_owned());
    }
    Destination::from_host(host, port).map_err(|error| error.to_string())
}

const HTTP_PORT: u16 = 80;
/// The port of FTP.
pub const FTP_PORT: u16 = 21;

fn default_port(uri: &Uri) -> u16 {
    if is_ftp(uri) { FTP_PORT } else { HTTP_PORT }
}

/// Whether the scheme of this address is `ftp`.
pub fn is_ftp(uri: &Uri) -> bool {
    uri.scheme_str() == Some("ftp")
}

fn has_port(authority: &uri::Authority) -> bool {
    let after_host = authority
        .as_str()
        .rsplit(['@', ']'])
        .next()
        .unwrap_or_default();
    after_host.contains(':')
}

/// Why somebody else may read this head in another way, as a sentence for the client (RFC 9112 §3.2 and §6.1). The
/// target of CONNECT says all that Host would, and old scripts leave it out.
pub fn ambiguity(method: &Method, version: Version, headers: &HeaderMap) -> Option<&'static str> {
    let hosts = headers.get_all(header::HOST).iter().count();
    let codings = headers.get_all(header::TRANSFER_ENCODING).into_iter();
    let words = codings
        .filter_map(|v| v.to_str().ok())
        .flat_map(|v| v.split(','));
    let chunked = words.filter(|word| word.trim().eq_ignore_ascii_case("chunked"));
    match hosts {
        _ if chunked.count() > 1 => Some("Transfer-Encoding has chunked twice"),
        0 if version == Version::HTTP_11 && *method != Method::CONNECT => {
            Some("a request of HTTP/1.1 must have a Host field")
        }
        0 | 1 => None,
        _ => Some("the request has more than one Host field"),
    }
}

/// Returns the first transfer coding of a message that a proxy would have to decode, since it frames the body anew:
/// neither `chunked` nor `identity`, which stands for none (RFC 9112 §6.1 and §7).
pub fn unknown_coding(headers: &HeaderMap) -> Option<String> {
    let fields = headers.get_all(header::TRANSFER_ENCODING).into_iter();
    let words = fields.flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
    let words = words.map(|word| String::from_utf8_lossy(word.trim_ascii()).into_owned());
    let is_known =
        |word: &String| ["", "chunked", "identity"].contains(&word.to_ascii_lowercase().as_str());
    words.into_iter().find(|word| !is_known(word))
}

/// Whether the message has passed the proxy called `pseudonym` before (RFC 9110 §7.6.3).
pub fn has_passed(headers: &HeaderMap, pseudonym: &str) -> bool {
    let via = headers.get_all(header::VIA).into_iter();
    let mut entries = via
        .filter_map(|v| v.to_str().ok())
        .flat_map(|v| v.split(','));
    entries.any(|entry| entry.split_whitespace().nth(1) == Some(pseudonym))
}

/// Turns a client's request into the one for the origin: origin-form, Host from the URI (RFC 9112
/// §3.2.2), without hop-by-hop fields, with Via.
pub fn forward_request(head: &mut request::Parts, pseudonym: &str) {
    let trailers = takes_trailers(&head.headers);
    let protocols = upgrade(head.version, &head.headers);
    strip_hop_by_hop(&mut head.headers);
    head.headers.remove(header::PROXY_AUTHORIZATION);
    if trailers {
        hop_by_hop(
            &mut head.headers,
            header::TE,
            HeaderValue::from_static("trailers"),
        );
    }
    if let Some(protocols) = protocols {
        hop_by_hop(&mut head.headers, header::UPGRADE, protocols);
    }
    if let Some(left) = max_forwards(&head.method, &head.headers) {
        let left = HeaderValue::from(left.saturating_sub(1));
        head.headers.insert(header::MAX_FORWARDS, left);
    }
    add_via(&mut head.headers, head.version, pseudonym);
    if let Some(host) = head.uri.authority().and_then(host_field) {
        head.headers.insert(header::HOST, host);
    }
    if head.version == Version::HTTP_10 {
        // RFC 9110 §10.1.1: it must be ignored, since no 100 may be the answer.
        head.headers.remove(header::EXPECT);
    }
    head.uri = origin_form(head);
    head.version = Version::HTTP_11;
}

/// Turns an origin's response into the one for the client.
pub fn forward_response(head: &mut response::Parts, pseudonym: &str) {
    let protocol = upgrade(head.version, &head.headers);
    if is_framed_twice(&head.headers) {
        head.headers.remove(header::CONTENT_LENGTH);
    }
    merge_lengths(&mut head.headers);
    strip_hop_by_hop(&mut head.headers);
    if let (Some(protocol), StatusCode::SWITCHING_PROTOCOLS) = (protocol, head.status) {
        hop_by_hop(&mut head.headers, header::UPGRADE, protocol);
    }
    add_via(&mut head.headers, head.version, pseudonym);
    head.version = Version::HTTP_11;
}

/// Makes one field of a Content-Length that is given more than once (RFC 9110 §8.6). Lengths that differ say nothing:
/// only a response without a body gets here with them.
fn merge_lengths(headers: &mut HeaderMap) {
    let fields = headers.get_all(header::CONTENT_LENGTH).into_iter();
    let lengths = fields.flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
    let mut lengths: Vec<_> = lengths.map(|length| length.trim_ascii().to_vec()).collect();
    if lengths.len() < 2 {
        return;
    }
    lengths.dedup();
    headers.remove(header::CONTENT_LENGTH);
    if let ([length], headers) = (&lengths[..], headers)
        && let Ok(length) = HeaderValue::from_bytes(length)
    {
        headers.insert(header::CONTENT_LENGTH, length);
    }
}

/// Whether a message's length is said in two ways: the chunks count, and its connection takes no further message (RFC
/// 9112 §6.3).
pub fn is_framed_twice(headers: &HeaderMap) -> bool {
    headers.contains_key(header::TRANSFER_ENCODING) && headers.contains_key(header::CONTENT_LENGTH)
}

/// The protocols that a message offers or takes for the rest of its connection (RFC 9110 §7.8). `h2c` is none: it has
/// gone (RFC 9113 §3.1), and the settings that it needs are for one hop only.
pub fn upgrade(version: Version, headers: &HeaderMap) -> Option<HeaderValue> {
    if version != Version::HTTP_11 || !lists(headers, header::CONNECTION, "upgrade") {
        return None;
    }
    let offered = headers.get_all(header::UPGRADE).into_iter();
    let words = offered
        .filter_map(|v| v.to_str().ok())
        .flat_map(|v| v.split(','));
    let words = words.map(str::trim);
    let kept: Vec<_> = words
        .filter(|word| !word.is_empty() && !word.eq_ignore_ascii_case("h2c"))
        .collect();
    HeaderValue::from_str(&kept.join(", "))
        .ok()
        .filter(|_| !kept.is_empty())
}

/// Whether the client of this request waits for 100 before its body (RFC 9110 §10.1.1).
pub fn waits_for_100(version: Version, headers: &HeaderMap) -> bool {
    version == Version::HTTP_11 && lists(headers, header::EXPECT, "100-continue")
}

/// An interim response (1xx), whole, as it goes on to the client.
pub fn interim_response(status: StatusCode, headers: &HeaderMap, pseudonym: &str) -> Vec<u8> {
    let mut headers = headers.clone();
    strip_hop_by_hop(&mut headers);
    if status != StatusCode::CONTINUE {
        add_via(&mut headers, Version::HTTP_11, pseudonym);
    }
    [
        format!("HTTP/1.1 {status}\r\n").as_bytes(),
        &fields(&headers),
        b"\r\n",
    ]
    .concat()
}

/// Returns the end of a chunked message with these trailers (RFC 9112 §7.1.2). Fields that may not be trailers are left
/// out: those for framing, routing, authentication and content (RFC 9110 §6.5.1).
pub fn end_with_trailers(trailers: &HeaderMap) -> Vec<u8> {
    const NEVER: [HeaderName; 12] = [
        header::AUTHORIZATION,
        header::CACHE_CONTROL,
        header::CONTENT_ENCODING,
        header::CONTENT_LENGTH,
        header::CONTENT_RANGE,
        header::CONTENT_TYPE,
        header::EXPECT,
        header::HOST,
        header::MAX_FORWARDS,
        header::PROXY_AUTHORIZATION,
        header::SET_COOKIE,
        header::TRAILER,
    ];
    let mut trailers = trailers.clone();
    strip_hop_by_hop(&mut trailers);
    NEVER.iter().for_each(|name| drop(trailers.remove(name)));
    [b"0\r\n", &fields(&trailers)[..], b"\r\n"].concat()
}

/// Header fields, a line each.
fn fields(headers: &HeaderMap) -> Vec<u8> {
    let line = |(name, value): (&HeaderName, &HeaderValue)| {
        [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"].concat()
    };
    headers.iter().flat_map(line).collect()
}

/// Trailers that the recipient must have reach only clients that say so (RFC 9110 §6.5.1): what a client says of it
/// goes on.
fn takes_trailers(headers: &HeaderMap) -> bool {
    lists(headers, header::TE, "trailers")
}

/// Relays that a TRACE or OPTIONS request may still pass (RFC 9110 §7.6.2).
pub fn max_forwards(method: &Method, headers: &HeaderMap) -> Option<u32> {
    if ![Method::TRACE, Method::OPTIONS].contains(method) {
        return None;
    }
    headers
        .get(header::MAX_FORWARDS)?
        .to_str()
        .ok()?
        .parse()
        .ok()
}

/// User and password of an Authorization or Proxy-Authorization field (RFC 7617 §2).
pub fn credentials(headers: &HeaderMap, field: HeaderName) -> Option<(Vec<u8>, Vec<u8>)> {
    let field = headers.get(field)?.to_str().ok()?;
    let (scheme, encoded) = field.split_once(' ')?;
    let decoded = scheme
        .eq_ignore_ascii_case("basic")
        .then(|| STANDARD.decode(encoded.trim()))?
        .ok()?;
    let colon = decoded.iter().position(|byte| *byte == b':')?;
    Some((decoded[..colon].to_vec(), decoded[colon + 1..].to_vec()))
}

/// The request as it came, without what is nobody else's business (RFC 9110 §9.3.8).
pub fn trace_response(method: &Method, uri: &Uri, headers: &HeaderMap) -> Vec<u8> {
    const PRIVATE: [HeaderName; 3] = [
        header::AUTHORIZATION,
        header::COOKIE,
        header::PROXY_AUTHORIZATION,
    ];
    let mut text = format!("{method} {uri} HTTP/1.1\r\n").into_bytes();
    let mut public = headers.clone();
    PRIVATE.iter().for_each(|name| drop(public.remove(name)));
    text.extend(fields(&public));
    text.extend(b"\r\n");
    text
}

/// Whether one of a field's comma-separated words is this one.
fn lists(headers: &HeaderMap, field: HeaderName, word: &str) -> bool {
    let values = headers.get_all(field).into_iter();
    let mut words = values
        .filter_map(|v| v.to_str().ok())
        .flat_map(|v| v.split(','));
    words.any(|found| found.trim().eq_ignore_ascii_case(word))
}

/// Puts a field in for the next hop only (RFC 9110 §7.6.1).
fn hop_by_hop(headers: &mut HeaderMap, name: HeaderName, value: HeaderValue) {
    headers.append(header::CONNECTION, HeaderValue::from(name.clone()));
    headers.insert(name, value);
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
    const OF_OLD: [&str; 3] = ["http2-settings", "keep-alive", "proxy-connection"];
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
        assert_eq!(
            goes_to(&Method::GET, "ftp://h.test/a").unwrap(),
            "h.test:21"
        );
        assert_eq!(goes_to(&Method::CONNECT, "[::1]:443").unwrap(), "[::1]:443");
    }

    #[test]
    fn rejects_unsupported_requests() {
        for (method, uri) in [
            (Method::GET, "/origin-form"),
            (Method::GET, "https://h.test/"),
            (Method::GET, "gopher://h.test/"),
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
        forward_request(&mut head, "me");
        head
    }

    #[test]
    fn removes_hop_by_hop_fields_and_adds_via() {
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
        assert_eq!(head.headers["te"], "trailers");
        assert_eq!(head.headers["connection"], "te");
        assert_eq!(names.len(), 6, "{names:?}");
        assert!(has_passed(&head.headers, "me"));
    }

    #[test]
    fn forwards_upgrades_that_the_client_requested() {
        let offer = |connection: &str| {
            let request = Request::get("http://h.test/")
                .header("connection", connection)
                .header("upgrade", "websocket");
            onward(request.body(()).unwrap()).headers
        };
        let meant = offer("keep-alive, Upgrade");
        assert_eq!(meant["upgrade"], "websocket");
        assert_eq!(meant["connection"], "upgrade");
        assert!(!offer("keep-alive").contains_key("upgrade"));
    }

    #[test]
    fn drops_h2c_upgrades() {
        for (offered, kept) in [
            ("h2c", None),
            ("h2c, websocket", Some("websocket")),
            ("H2C,,a/1", Some("a/1")),
        ] {
            let request = Request::get("http://h.test/")
                .header("connection", "Upgrade, HTTP2-Settings")
                .header("http2-settings", "AAMAAABkAAQAoAAAAAIAAAAA")
                .header("upgrade", offered);
            let headers = onward(request.body(()).unwrap()).headers;
            let upgrade = headers.get("upgrade").map(|value| value.to_str().unwrap());
            assert_eq!(upgrade, kept, "{offered}");
            assert_eq!(headers.contains_key("connection"), kept.is_some());
            assert!(!headers.contains_key("http2-settings"));
        }
    }

    #[test]
    fn sends_no_100_to_http_1_0_clients() {
        for (version, kept) in [(Version::HTTP_10, false), (Version::HTTP_11, true)] {
            let request = Request::put("http://h.test/").version(version);
            let request = request.header("expect", "100-Continue").body(()).unwrap();
            assert_eq!(waits_for_100(version, request.headers()), kept);
            assert_eq!(onward(request).headers.contains_key("expect"), kept);
        }
    }

    #[test]
    fn removes_hop_by_hop_fields_of_interim_responses_and_trailers() {
        let headers = HeaderMap::from_iter([
            (header::LINK, HeaderValue::from_static("</a.css>")),
            (header::CONNECTION, HeaderValue::from_static("x-hop")),
            (
                HeaderName::from_static("x-hop"),
                HeaderValue::from_static("1"),
            ),
            (header::CONTENT_LENGTH, HeaderValue::from_static("7")),
        ]);
        let hints = interim_response(StatusCode::EARLY_HINTS, &headers, "me");
        let hints = String::from_utf8(hints).unwrap();
        assert!(hints.starts_with("HTTP/1.1 103 Early Hints\r\n"), "{hints}");
        assert!(
            hints.contains("link: </a.css>\r\n") && hints.contains("via: 1.1 me\r\n"),
            "{hints}"
        );
        assert!(
            !hints.contains("hop") && hints.ends_with("\r\n\r\n"),
            "{hints}"
        );
        assert_eq!(end_with_trailers(&headers), b"0\r\nlink: </a.css>\r\n\r\n");
        assert_eq!(end_with_trailers(&HeaderMap::new()), b"0\r\n\r\n");
    }

    #[test]
    fn finds_transfer_codings_that_are_lost_without_decoding() {
        let coding = |fields: &[&str]| {
            let fields = fields.iter().map(|value| {
                (
                    header::TRANSFER_ENCODING,
                    HeaderValue::from_str(value).unwrap(),
                )
            });
            unknown_coding(&HeaderMap::from_iter(fields))
        };
        for known in [&["chunked"][..], &["Chunked, identity"], &["identity"], &[]] {
            assert_eq!(coding(known), None, "{known:?}");
        }
        let twice = {
            let mut headers = HeaderMap::new();
            headers.append(header::TRANSFER_ENCODING, HeaderValue::from_static("br"));
            headers.append(
                header::TRANSFER_ENCODING,
                HeaderValue::from_static("chunked"),
            );
            unknown_coding(&headers)
        };
        assert_eq!(twice.as_deref(), Some("br"));
        assert_eq!(coding(&["gzip, chunked"]).as_deref(), Some("gzip"));
        assert_eq!(coding(&["deflate;q=1"]).as_deref(), Some("deflate;q=1"));
    }

    #[test]
    fn identical_lengths_of_a_response_are_one() {
        for (given, want) in [
            (&["3, 3"][..], Some("3")),
            (&["3", "3"], Some("3")),
            (&["3"], Some("3")),
            (&["3", "4"], None),
            (&[], None),
        ] {
            let mut headers = HeaderMap::new();
            for value in given {
                headers.append(header::CONTENT_LENGTH, HeaderValue::from_static(value));
            }
            merge_lengths(&mut headers);
            let left: Vec<_> = headers.get_all(header::CONTENT_LENGTH).iter().collect();
            assert_eq!(left, want.into_iter().collect::<Vec<_>>(), "{given:?}");
        }
    }

    #[test]
    fn counts_max_forwards_down_for_trace_and_options() {
        for (method, left) in [("OPTIONS", "4"), ("TRACE", "4"), ("GET", "5")] {
            let request = Request::builder().method(method).uri("http://h.test/");
            let head = onward(request.header("max-forwards", "5").body(()).unwrap());
            assert_eq!(head.headers["max-forwards"], left, "{method}");
        }
    }

    #[test]
    fn splits_credentials_at_the_first_colon() {
        let given = |field: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::PROXY_AUTHORIZATION, field.parse().unwrap());
            credentials(&headers, header::PROXY_AUTHORIZATION)
        };
        let pair = (b"me".to_vec(), b"a:b".to_vec());
        assert_eq!(given("basic bWU6YTpi"), Some(pair));
        for bad in ["Basic bWU", "Basic ?", "Bearer bWU6YTpi", "Basic"] {
            assert_eq!(given(bad), None, "{bad}");
        }
    }

    #[test]
    fn detects_loops_in_via() {
        let request = Request::get("http://h.test/").header("via", "1.0 other, 1.1 me (note)");
        let head = request.body(()).unwrap().into_parts().0;
        assert!(has_passed(&head.headers, "me"));
        assert!(!has_passed(&head.headers, "m"));
    }
}
