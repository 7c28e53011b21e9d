// SPDX-License-Identifier: MIT OR Apache-2.0
//! Minimal HTTP client for admin endpoints.

use longhaul_testnet::relay_process::{Relay, TEST_TIMEOUT, connect};
use serde_json::Value;
use std::{
    io::{Read, Write},
    net::SocketAddr,
    time::{Duration, Instant},
};

/// Response of an endpoint.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

/// Sends a request and reads the response to the end of the connection.
pub(crate) fn send(address: SocketAddr, request: &str) -> Answer {
    let mut stream = connect(address);
    stream.write_all(request.as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").expect("a whole head");
    Answer {
        status: head.split(' ').nth(1).unwrap().parse().unwrap(),
        head: head.to_lowercase(),
        body: body.to_owned(),
    }
}

/// Admin endpoint of a running relay.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Endpoint(pub(crate) SocketAddr);

impl Endpoint {
    pub(crate) fn of(relay: &Relay) -> Self {
        Self(relay.address("admin"))
    }

    pub(crate) fn get(self, path: &str) -> Answer {
        self.get_with(path, "")
    }

    /// Sends a GET with further header fields, each of which ends with CRLF.
    pub(crate) fn get_with(self, path: &str, fields: &str) -> Answer {
        let request =
            format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{fields}Connection: close\r\n\r\n");
        send(self.0, &request)
    }

    pub(crate) fn json(self, path: &str) -> Value {
        let answer = self.get(path);
        serde_json::from_str(&answer.body).unwrap_or_else(|error| panic!("{answer:?}: {error}"))
    }

    /// Polls `path` until `wanted` returns a value; only a failure takes long.
    pub(crate) fn until<T>(self, path: &str, wanted: impl Fn(&Value) -> Option<T>) -> T {
        let start = Instant::now();
        loop {
            let answer = self.json(path);
            if let Some(found) = wanted(&answer) {
                return found;
            }
            assert!(start.elapsed() < TEST_TIMEOUT, "{path} stays at {answer:#}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}
