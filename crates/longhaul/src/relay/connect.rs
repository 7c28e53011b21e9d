// SPDX-License-Identifier: MIT OR Apache-2.0
//! Opening a leg: resolve, connect, and say why not.

use super::{
    failure::Failure,
    profile::Profile,
    shortage::{patiently, resolve, within},
};
use host::socket::{self, Options};
use std::{io, net::SocketAddr, time::Duration};
use tokio::net::{TcpSocket, TcpStream};
use wire::destination::Destination;

/// A leg, and the address at its other end.
type Connected = (TcpStream, SocketAddr);

/// Connects to `destination` within `limit`, resolution included. A name's addresses are tried in
/// the resolver's order, those only that `permits` allows; the last one's failure is reported.
pub(crate) async fn connect(
    destination: &Destination,
    source: Option<SocketAddr>,
    profile: &Profile,
    limit: Duration,
    permits: impl Fn(SocketAddr) -> bool,
) -> Result<Connected, Failure> {
    let options = Options {
        transparent: source.is_some(),
        ..profile.options.clone()
    };
    let attempt = async {
        match destination {
            Destination::Address(address) => connect_to(*address, source, &options).await,
            Destination::Name(name, port) => {
                let name = (name.as_str(), *port);
                Box::pin(by_name(name, source, &options, permits)).await
            }
        }
    };
    within(limit, attempt).await
}

async fn by_name(
    name: (&str, u16),
    source: Option<SocketAddr>,
    options: &Options,
    permits: impl Fn(SocketAddr) -> bool,
) -> Result<Connected, Failure> {
    let addresses = resolve(name.0, name.1).await;
    let addresses = addresses.map_err(|_| Failure::NameNotFound)?;
    let mut outcome = Err(Failure::NameNotFound);
    for address in addresses.take(ADDRESSES_MAX) {
        if !permits(address) {
            outcome = Err(Failure::NotAllowed);
            continue;
        }
        outcome = connect_to(address, source, options).await;
        if outcome.is_ok() {
            break;
        }
    }
    outcome
}

/// Addresses of one name that are tried.
const ADDRESSES_MAX: usize = 8;

/// With a source, the port is kept if it can be: an earlier connection between the same four
/// (address and port, twice) may still be in TIME-WAIT,
/// and connect(2) notices it where bind(2) does not.
async fn connect_to(
    address: SocketAddr,
    source: Option<SocketAddr>,
    options: &Options,
) -> Result<Connected, Failure> {
    let outcome = match (attempt(address, source, options).await, source) {
        (Err(error), Some(source)) if error.kind() == io::ErrorKind::AddrNotAvailable => {
            attempt(address, Some((source.ip(), 0).into()), options).await
        }
        (outcome, _) => outcome,
    };
    let connected = |stream| (stream, address);
    outcome
        .map(connected)
        .map_err(|error| Failure::from_connect(&error))
}

async fn attempt(
    address: SocketAddr,
    source: Option<SocketAddr>,
    options: &Options,
) -> io::Result<TcpStream> {
    let socket = patiently(async || socket::outgoing(address, source, options)).await?;
    TcpSocket::from_std_stream(socket).connect(address).await
}
