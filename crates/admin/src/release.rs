// SPDX-License-Identifier: MIT OR Apache-2.0
//! Handover of the admin address from a draining relay to its successor. The draining relay serves the address
//! until then: its connections may last for hours, and operators want to see them. With both on one port
//! (SO_REUSEPORT) responses would alternate: counters would jump, and the health would flicker.

use super::record::{HealthStatus, Source};
use hyper::{Method, Request, StatusCode};
use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    time::{Duration, Instant},
};
use tokio::sync::watch;

/// Signal that a successor has requested the port.
#[derive(Debug, Clone)]
pub(super) struct Release(watch::Sender<bool>);

const RELEASE_PATH: &str = "/api/v1/release";
/// Header field of a successor. A browser sends no such field for a page of another origin without a CORS preflight,
/// which is never allowed.
const SUCCESSOR_FIELD: &str = "longhaul-successor";

impl Release {
    pub(super) fn new() -> Self {
        Self(watch::Sender::new(false))
    }

    /// Returns the response, if this is a request of a successor.
    pub(super) fn respond<B>(
        &self,
        request: &Request<B>,
        source: &impl Source,
    ) -> Option<(StatusCode, &'static str)> {
        let is_successor = request.method() == Method::POST && request.uri().path() == RELEASE_PATH;
        if !is_successor || !request.headers().contains_key(SUCCESSOR_FIELD) {
            return None;
        }
        if source.health().status != HealthStatus::Draining {
            return Some((StatusCode::CONFLICT, "this relay is not draining"));
        }
        self.0.send_replace(true);
        Some((StatusCode::OK, "the port is released"))
    }

    /// Returns once a successor has requested the port.
    pub(super) async fn requested(&self) {
        // An error would mean that the sender is gone, but `self` is the sender.
        let _ = self
            .0
            .subscribe()
            .wait_for(|is_requested| *is_requested)
            .await;
    }
}

/// Timeout of each step (connect, write, read) of the request to the owner of the port.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(1);
/// Longest wait after the response until the port is free.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(2);
const BIND_RETRY_INTERVAL: Duration = Duration::from_millis(20);

/// Binds `address`; if a draining relay has it, requests its release first.
pub(super) fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    match TcpListener::bind(address) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            if !request_release(address).unwrap_or(false) {
                return Err(error);
            }
            bind_with_retry(address)
        }
        bound => bound,
    }
}

fn request_release(address: SocketAddr) -> io::Result<bool> {
    let mut stream = TcpStream::connect_timeout(&address, RESPONSE_TIMEOUT)?;
    stream.set_read_timeout(Some(RESPONSE_TIMEOUT))?;
    stream.set_write_timeout(Some(RESPONSE_TIMEOUT))?;
    let request = format!(
        "POST {RELEASE_PATH} HTTP/1.1\r\nHost: {address}\r\n{SUCCESSOR_FIELD}: 1\r\nContent-Length: 0\r\n\
         Connection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes())?;
    let expected = b"HTTP/1.1 200 ";
    let mut status = [0; 13];
    stream.read_exact(&mut status)?;
    Ok(status == *expected)
}

fn bind_with_retry(address: SocketAddr) -> io::Result<TcpListener> {
    let begin = Instant::now();
    loop {
        match TcpListener::bind(address) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                if begin.elapsed() > RELEASE_TIMEOUT {
                    return Err(error);
                }
                std::thread::sleep(BIND_RETRY_INTERVAL);
            }
            bound => return bound,
        }
    }
}
