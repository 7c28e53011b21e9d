// SPDX-License-Identifier: MIT OR Apache-2.0
//! Control of a running link. A request is one line of JSON, and so is its response.
//!
//! The socket has an abstract name, so that nothing remains in the file system when the link is killed. The same user
//! or root can reach it from the network namespace in which `longhaul link` was started.

use super::{
    config,
    counters::{Direction, DirectionState},
    link::RunningLink,
};
use anyhow::Result;
use longhaul_command::exit::Refusal;
use longhaul_command::{errln, outln};
use longhaul_netem::Setting;
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeSet,
    io::{self, BufRead, BufReader, Read, Write},
    os::{
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr, UnixListener, UnixStream},
    },
    path::Path,
    time::Duration,
};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt};

/// Request to a link.
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
    /// Return settings and counters.
    Show {},
}

/// Response of a link.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Response {
    /// Done.
    Done,
    /// Done, with warnings of the new settings.
    Warned(BTreeSet<String>),
    /// Refused, with the reason.
    Refused(String),
    /// Settings and newest counters of each direction.
    States(Vec<DirectionState>),
}

/// Longest request, bytes; longer ones are refused.
const REQUEST_MAX: u64 = 4_096;
/// Longest wait for a request or a response. After that the connection is closed.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(5);

/// Prefix of the sockets' names.
const PREFIX: &str = "longhaul/link/";

/// Most links that an error about an unknown link lists.
const NAMES_SHOWN_MAX: usize = 50;

/// Longest abstract name of a socket, bytes (unix(7)).
const SOCKET_NAME_MAX: usize = 107;

fn address(link: &str) -> Result<SocketAddr> {
    SocketAddr::from_abstract_name(format!("{PREFIX}{link}")).map_err(|_| {
        let most = SOCKET_NAME_MAX - PREFIX.len();
        Refusal::usage(format!(
            "the name {link:?} is too long: at most {most} bytes"
        ))
    })
}

/// Returns the names of the links that run in this network namespace.
fn running_links() -> BTreeSet<String> {
    // Without /proc the list is empty.
    let names = longhaul_linux::socket::abstract_names(PREFIX).unwrap_or_default();
    names.into_iter().collect()
}

fn unknown_link(link: &str) -> anyhow::Error {
    let advice = links_to_name(&running_links());
    Refusal::usage(format!(
        "no link named {link:?} runs in this network namespace; {advice}"
    ))
}

/// Returns the name of the only link that runs in this network namespace.
fn only_link() -> Result<String> {
    let names = running_links();
    match names.first() {
        Some(name) if names.len() == 1 => Ok(name.clone()),
        first => {
            let count = first.map_or("no link runs", |_| "several links run");
            let advice = links_to_name(&names);
            Err(Refusal::usage(format!(
                "{count} in this network namespace; {advice}"
            )))
        }
    }
}

fn links_to_name(names: &BTreeSet<String>) -> String {
    if names.is_empty() {
        return "run this in the namespace in which `longhaul link` was started".to_owned();
    }
    let shown: Vec<_> = names
        .iter()
        .take(NAMES_SHOWN_MAX)
        .map(String::as_str)
        .collect();
    format!("there are: {}", shown.join(", "))
}

/// Binds the socket of the link. If the name is in use, a link of that name is running.
pub(super) fn listen(link: &str) -> Result<UnixListener> {
    let listener = UnixListener::bind_addr(&address(link)?).map_err(|_| {
        Refusal::usage(format!(
            "a link named {link:?} runs here already; give another --name"
        ))
    })?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Serves one client after the other.
pub(super) async fn serve(listener: UnixListener, link: &RunningLink) -> Result<()> {
    let listener = tokio::net::UnixListener::from_std(listener)?;
    loop {
        let (stream, _) = listener.accept().await?;
        let peer = stream.peer_cred()?.uid();
        let own_uid = longhaul_linux::process::user();
        if peer == 0 || peer == own_uid {
            // An error or timeout concerns only this client, so it is ignored.
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
    let response = match serde_json::from_str(&line) {
        Ok(request) => execute(request, link),
        Err(error) => Response::Refused(format!("not a request: {error}")),
    };
    output
        .write_all(&[serde_json::to_vec(&response)?, b"\n".to_vec()].concat())
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
            let setting = Setting::read(&key, &value, &config::reader(Path::new(".")));
            match setting
                .map_err(Refusal::usage)
                .and_then(|setting| link.set(&setting, direction))
            {
                Ok(warnings) if warnings.is_empty() => Response::Done,
                Ok(warnings) => Response::Warned(warnings),
                Err(error) => Response::Refused(error.to_string()),
            }
        }
    }
}

/// Runs `longhaul link set`.
pub(super) fn set(
    link: &str,
    key: String,
    value: String,
    direction: Option<Direction>,
) -> Result<()> {
    let response = send_request(
        link,
        &Request::Set {
            key,
            value,
            direction,
        },
    )?;
    if let Response::Warned(warnings) = refusal_to_error(response)? {
        warnings
            .iter()
            .for_each(|warning| errln!("warning: {warning}"));
    }
    Ok(())
}

/// Runs `longhaul link show`. Without a name it shows the only link.
pub(super) fn show(link: Option<&str>, as_json: bool) -> Result<()> {
    let link = link.map_or_else(only_link, |name| Ok(name.to_owned()))?;
    if let Response::States(states) = refusal_to_error(send_request(&link, &Request::Show {})?)? {
        for state in states {
            if as_json {
                outln!("{}", state.to_json()?);
            } else {
                outln!("{state}");
            }
        }
    }
    Ok(())
}

/// Sends a request and returns the line of the response. A link of another user closes the connection without one.
fn exchange(stream: &mut UnixStream, request: &Request) -> io::Result<String> {
    stream.write_all(&[serde_json::to_vec(request)?, b"\n".to_vec()].concat())?;
    let mut line = String::new();
    BufReader::new(stream.take(1 << 20)).read_line(&mut line)?;
    if line.is_empty() {
        Err(io::ErrorKind::ConnectionReset.into())
    } else {
        Ok(line)
    }
}

fn send_request(link: &str, request: &Request) -> Result<Response> {
    let stream = UnixStream::connect_addr(&address(link)?);
    let mut stream = stream.map_err(|error| match error.kind() {
        io::ErrorKind::ConnectionRefused => unknown_link(link),
        _ => anyhow::Error::new(error).context(format!("cannot query link {link:?}")),
    })?;
    stream.set_read_timeout(Some(RESPONSE_TIMEOUT))?;
    let line = exchange(&mut stream, request).map_err(|error| match error.kind() {
        io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => Refusal::unsupported(
            format!("link {link:?} belongs to another user: run this as that user, or as root"),
        ),
        io::ErrorKind::WouldBlock => anyhow::anyhow!(
            "link {link:?} did not respond within {} s; a change takes effect when it runs again",
            RESPONSE_TIMEOUT.as_secs()
        ),
        _ => anyhow::Error::new(error).context(format!("link {link:?} did not respond")),
    })?;
    serde_json::from_str(&line).map_err(|error| {
        Refusal::unsupported(format!(
            "cannot read the response of link {link:?}: {error}; if it runs another version of longhaul, restart it"
        ))
    })
}

/// Returns the response, or the reason of a refusal as an error.
fn refusal_to_error(response: Response) -> Result<Response> {
    match response {
        Response::Refused(reason) => Err(Refusal::usage(reason)),
        response => Ok(response),
    }
}
