// SPDX-License-Identifier: MIT OR Apache-2.0
//! Records in the common log format, which log analysers of web servers and of squid read: `CLIENT - USER [TIME]
//! "REQUEST" STATUS BYTES`.

use jiff::Timestamp;
use longhaul_admin::relay_record::{ConnectionRecord, EndReason, Record, RequestRecord};
use longhaul_protocol::failure::Failure;
use std::net::SocketAddr;

/// Stands for an unknown value.
const UNKNOWN: &str = "-";

/// Returns the line of a record, without its end; counters have none.
pub(super) fn line(record: &Record) -> Option<String> {
    match record {
        Record::Request(request) => Some(of_request(request)),
        Record::Connection(connection) => Some(of_connection(connection)),
        Record::Relay(_) => None,
    }
}

fn of_request(record: &RequestRecord) -> String {
    let word = |value: &Option<String>| value.clone().unwrap_or(UNKNOWN.to_owned());
    let words = [&record.method, &record.target, &record.protocol].map(word);
    entry(
        record.client,
        record.user.as_deref(),
        record.time,
        &words.join(" "),
        record.status,
        record.bytes_down,
    )
}

/// A connection without HTTP appears as a request of its listener's kind, with the status that HTTP would have.
fn of_connection(record: &ConnectionRecord) -> String {
    let destination = record.destination.as_deref().unwrap_or(UNKNOWN);
    let request = format!("{} {destination} {UNKNOWN}", record.kind.to_uppercase());
    entry(
        record.client,
        record.user.as_deref(),
        record.time,
        &request,
        status(record),
        record.bytes_down,
    )
}

fn status(record: &ConnectionRecord) -> u16 {
    if record.ended != EndReason::Failed {
        return 200;
    }
    let cause = record.cause.as_deref().unwrap_or_default();
    let is_cause = |failure: &Failure| cause.starts_with(&failure.to_string());
    let failure = Failure::ALL.into_iter().find(is_cause);
    failure.unwrap_or(Failure::Other).http().as_u16()
}

fn entry(
    client: SocketAddr,
    user: Option<&str>,
    time: Timestamp,
    request: &str,
    status: u16,
    bytes: u64,
) -> String {
    let client = client.ip().to_canonical();
    let user = escape(user.unwrap_or(UNKNOWN)).replace(' ', "\\x20");
    let time = time.strftime("%d/%b/%Y:%H:%M:%S %z");
    let request = escape(request);
    format!("{client} - {user} [{time}] \"{request}\" {status} {bytes}")
}

/// Escapes what would end a quoted field or a line.
fn escape(text: &str) -> String {
    let escaped = text.chars().map(|c| match c {
        '"' | '\\' => format!("\\{c}"),
        c if c.is_control() => format!("\\x{:02x}", u32::from(c)),
        c => c.to_string(),
    });
    escaped.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request() -> RequestRecord {
        RequestRecord {
            time: Timestamp::UNIX_EPOCH,
            listener: ([127, 0, 0, 1], 3128).into(),
            client: ([192, 0, 2, 7], 1000).into(),
            user: Some("me".to_owned()),
            method: Some("GET".to_owned()),
            target: Some("http://h.test/a".to_owned()),
            protocol: Some("HTTP/1.1".to_owned()),
            status: 403,
            next_hop: None,
            peer: None,
            bytes_up: 1,
            bytes_down: 2,
            response_s: 0.0,
            duration_s: 0.0,
            ended: EndReason::Failed,
            cause: None,
        }
    }

    #[test]
    fn request_is_a_line() {
        let want =
            r#"192.0.2.7 - me [01/Jan/1970:00:00:00 +0000] "GET http://h.test/a HTTP/1.1" 403 2"#;
        assert_eq!(of_request(&request()), want);
    }

    #[test]
    fn no_value_ends_its_field() {
        let record = RequestRecord {
            user: Some("a \"b\n".to_owned()),
            target: Some("x\" \\".to_owned()),
            method: None,
            ..request()
        };
        let line = of_request(&record);
        assert!(line.starts_with(r#"192.0.2.7 - a\x20\"b\x0a ["#), "{line}");
        assert!(line.contains(r#""- x\" \\ HTTP/1.1" 403"#), "{line}");
    }

    #[test]
    fn connection_has_the_status_that_http_would_have() {
        let record = |ended, cause: Option<&str>| ConnectionRecord {
            time: Timestamp::UNIX_EPOCH,
            kind: "socks5".to_owned(),
            listener: ([127, 0, 0, 1], 1080).into(),
            client: ([192, 0, 2, 7], 1000).into(),
            user: Some("me".to_owned()),
            destination: Some("h.test:1".to_owned()),
            next_hop: None,
            bytes_up: 1,
            bytes_down: 2,
            duration_s: 0.0,
            ended,
            cause: cause.map(str::to_owned),
            downstream: None,
            upstream: None,
            downstream_streams: Vec::new(),
            upstream_streams: Vec::new(),
        };
        let line = of_connection(&record(EndReason::Finished, None));
        assert!(line.starts_with("192.0.2.7 - me ["), "{line}");
        assert!(line.ends_with(r#""SOCKS5 h.test:1 -" 200 2"#), "{line}");
        let denied = Failure::NotAllowed.to_string();
        assert_eq!(status(&record(EndReason::Failed, Some(&denied))), 403);
        assert_eq!(status(&record(EndReason::Failed, Some("?"))), 502);
    }
}
