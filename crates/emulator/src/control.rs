// SPDX-License-Identifier: MIT OR Apache-2.0
//! Changes while a link runs: one JSON line asks, one JSON line answers.
//!
//! The socket has an abstract name, so that nothing stays in the file system when the link is
//! killed; it is reached from the network namespace in which `longhaul link` was started, by the
//! same user or root.

use super::{
    config,
    counters::{Direction, DirectionState},
    link::RunningLink,
};
use anyhow::{Context, Result};
use longhaul_command::exit::Refusal;
use longhaul_command::outln;
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeSet,
    io::{self, BufRead, BufReader, Read, Write},
    os::{
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr, UnixListener, UnixStream},
    },
    time::Duration,
};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt};

/// What is asked.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum Request {
    /// Change a setting.
    Set {
        key: String,
        value: String,
        /// Only this direction.
        direction: Option<Direction>,
    },
    /// Tell the counters.
    Show {},
}

/// What is answered.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Response {
    /// Done.
    Done,
    /// Refused, and why.
    Refused(String),
    /// What is set, and the newest counters.
    States(Vec<DirectionState>),
}

/// Longest request, in bytes; longer ones are refused.
const REQUEST_MAX: u64 = 4_096;
/// A client that says nothing for so long is let go.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(5);

/// Names of the sockets begin so.
const PREFIX: &str = "longhaul/link/";

/// Links that are named to who asks for another.
const NAMES_SHOWN_MAX: usize = 50;

/// Abstract names of sockets are no longer, in bytes (unix(7)).
const SOCKET_NAME_MAX: usize = 107;

fn address(link: &str) -> Result<SocketAddr> {
    SocketAddr::from_abstract_name(format!("{PREFIX}{link}")).map_err(|_| {
        let most = SOCKET_NAME_MAX - PREFIX.len();
        Refusal::usage(format!(
            "the name {link:?} is too long: at most {most} bytes"
        ))
    })
}

/// Names of the links that run in this network namespace.
fn running_links() -> BTreeSet<String> {
    // Without /proc, no other link is named.
    let names = longhaul_linux::socket::abstract_names(PREFIX).unwrap_or_default();
    names.into_iter().collect()
}

fn unknown_link(link: &str) -> anyhow::Error {
    let names: Vec<_> = running_links().into_iter().take(NAMES_SHOWN_MAX).collect();
    let advice = match names.is_empty() {
        true => "ask from the namespace in which `longhaul link` was started".to_owned(),
        false => format!("there are: {}", names.join(", ")),
    };
    Refusal::usage(format!(
        "no link named {link:?} runs in this network namespace; {advice}"
    ))
}

/// Takes the link's name. A name that is taken means that such a link runs already.
pub(super) fn listen(link: &str) -> Result<UnixListener> {
    let listener = UnixListener::bind_addr(&address(link)?).map_err(|_| {
        Refusal::usage(format!(
            "a link named {link:?} runs here already; give another --name"
        ))
    })?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Answers one client after the other.
pub(super) async fn serve(listener: UnixListener, link: &RunningLink) -> Result<()> {
    let listener = tokio::net::UnixListener::from_std(listener)?;
    loop {
        let (stream, _) = listener.accept().await?;
        let peer = stream.peer_cred()?.uid();
        let own = longhaul_linux::process::user();
        if peer == 0 || peer == own {
            // A client that breaks off has nobody left to be told.
            drop(tokio::time::timeout(RESPONSE_TIMEOUT, handle_client(stream, link)).await);
        }
    }
}

async fn handle_client(mut stream: tokio::net::UnixStream, link: &RunningLink) -> Result<()> {
    let (input, mut output) = stream.split();
    let mut line = String::new();
    tokio::io::BufReader::new(input.take(REQUEST_MAX))
        .read_line(&mut line)
        .await?;
    let answer = match serde_json::from_str(&line) {
        Ok(request) => execute(request, link),
        Err(error) => Response::Refused(format!("not a request: {error}")),
    };
    output
        .write_all(&[serde_json::to_vec(&answer)?, b"\n".to_vec()].concat())
        .await?;
    Ok(())
}

fn execute(request: Request, link: &RunningLink) -> Response {
    match request {
        Request::Show {} => Response::States(link.states()),
        Request::Set {
            key,
            value,
            direction,
        } => {
            let result = config::parse_change(&key, &value).and_then(|s| link.set(&s, direction));
            result.map_or_else(
                |error| Response::Refused(error.to_string()),
                |()| Response::Done,
            )
        }
    }
}

/// `longhaul link set`.
pub(super) fn set(
    link: &str,
    key: String,
    value: String,
    direction: Option<Direction>,
) -> Result<()> {
    send_request(
        link,
        &Request::Set {
            key,
            value,
            direction,
        },
    )
    .map(drop)
}

/// `longhaul link show`.
pub(super) fn show(link: &str, as_json: bool) -> Result<()> {
    if let Response::States(states) = send_request(link, &Request::Show {})? {
        for state in states {
            match as_json {
                true => outln!("{}", state.to_json()?),
                false => outln!("{state}"),
            }
        }
    }
    Ok(())
}

/// The answer's line. A link that belongs to another user ends the connection without one.
fn exchange(stream: &mut UnixStream, request: &Request) -> io::Result<String> {
    stream.write_all(&[serde_json::to_vec(request)?, b"\n".to_vec()].concat())?;
    let mut line = String::new();
    BufReader::new(stream.take(1 << 20)).read_line(&mut line)?;
    match line.is_empty() {
        true => Err(io::ErrorKind::ConnectionReset.into()),
        false => Ok(line),
    }
}

fn send_request(link: &str, request: &Request) -> Result<Response> {
    let stream = UnixStream::connect_addr(&address(link)?);
    let mut stream = stream.map_err(|error| match error.kind() {
        io::ErrorKind::ConnectionRefused => unknown_link(link),
        _ => anyhow::Error::new(error).context(format!("cannot ask link {link:?}")),
    })?;
    stream.set_read_timeout(Some(RESPONSE_TIMEOUT))?;
    let line = exchange(&mut stream, request).map_err(|error| match error.kind() {
        io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => Refusal::unsupported(
            format!("link {link:?} belongs to another user: ask as that user, or as root"),
        ),
        _ => anyhow::Error::new(error).context(format!("link {link:?} did not answer")),
    })?;
    match serde_json::from_str(&line).context("the link did not answer; see its own output")? {
        Response::Refused(reason) => Err(Refusal::usage(reason)),
        answer => Ok(answer),
    }
}
