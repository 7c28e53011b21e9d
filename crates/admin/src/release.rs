// SPDX-License-Identifier: MIT OR Apache-2.0
//! How a relay that drains gives its admin address to the one that follows it. It goes on to answer
//! until then: its connections may take hours, and somebody wants to see them. Both on one port at
//! once (SO_REUSEPORT) would mix their answers: counters that jump, a health that flickers.

use super::record::{HealthStatus, Source};
use hyper::{Method, Request, StatusCode};
use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    time::{Duration, Instant},
};
use tokio::sync::watch;

/// Whether the port is to be given up.
#[derive(Debug, Clone)]
pub(super) struct Release(watch::Sender<bool>);

const PATH: &str = "/api/v1/release";
/// A browser sends no such field for a page of another origin without asking first, and it is never
/// allowed to.
const FIELD: &str = "longhaul-successor";

impl Release {
    pub(super) fn new() -> Self {
        Self(watch::Sender::new(false))
    }

    /// The answer, if this is a request of a successor.
    pub(super) fn answer<B>(
        &self,
        request: &Request<B>,
        source: &impl Source,
    ) -> Option<(StatusCode, &'static str)> {
        let is_successor = request.method() == Method::POST && request.uri().path() == PATH;
        if !is_successor || !request.headers().contains_key(FIELD) {
            return None;
        }
        if source.health().status != HealthStatus::Draining {
            return Some((StatusCode::CONFLICT, "this relay does not drain"));
        }
        self.0.send_replace(true);
        Some((StatusCode::OK, "the port is given up"))
    }

    /// Returns once it was asked for.
    pub(super) async fn asked(&self) {
        // An error would mean that the sender is gone, but `self` is the sender.
        let _ = self.0.subscribe().wait_for(|asked| *asked).await;
    }
}

/// For each step of the conversation with whoever has the port.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);
/// After the answer, until the port is free.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(20);

/// Binds `address`; if a relay that drains has it, that one gives it up.
pub(super) fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    match TcpListener::bind(address) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            if !is_released(address).unwrap_or(false) {
                return Err(error);
            }
            bind_soon(address)
        }
        bound => bound,
    }
}

fn is_released(address: SocketAddr) -> io::Result<bool> {
    let mut stream = TcpStream::connect_timeout(&address, ANSWER_TIMEOUT)?;
    stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
    stream.set_write_timeout(Some(ANSWER_TIMEOUT))?;
    let request = format!(
        "POST {PATH} HTTP/1.1\r\nHost: {address}\r\n{FIELD}: 1\r\nContent-Length: 0\r\n\
         Connection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes())?;
    let want = b"HTTP/1.1 200 ";
    let mut status = [0; 13];
    stream.read_exact(&mut status)?;
    Ok(status == *want)
}

fn bind_soon(address: SocketAddr) -> io::Result<TcpListener> {
    let begin = Instant::now();
    loop {
        match TcpListener::bind(address) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                if begin.elapsed() > RELEASE_TIMEOUT {
                    return Err(error);
                }
                std::thread::sleep(PAUSE);
            }
            bound => return bound,
        }
    }
}
