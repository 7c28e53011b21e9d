// SPDX-License-Identifier: MIT OR Apache-2.0
//! Opens a TCP leg: resolves, connects, and classifies failures.

use crate::{
    config::profile::Profile,
    leg::{candidates::Candidates, profile::set_initial_window},
};
use futures_util::{StreamExt as _, future::BoxFuture, stream::FuturesUnordered};
use longhaul_admission::{
    exhaustion::{retry_on_exhaustion, with_timeout},
    lookups::LookupQuota,
};
use longhaul_linux::socket::{self, Options};
use longhaul_protocol::destination::Destination;
use longhaul_protocol::failure::Failure;
use std::{future::ready, io, net::SocketAddr, time::Duration};
use tokio::{
    net::{TcpSocket, TcpStream},
    select,
    time::{Instant, sleep_until},
};

/// A connected socket and its remote address.
type Connected = (TcpStream, SocketAddr);

/// Options for opening a leg.
pub(crate) struct ConnectOptions<'a> {
    /// Source address and port, if not the relay's own.
    pub(crate) source: Option<SocketAddr>,
    pub(crate) profile: &'a Profile,
    /// Time limit, resolution included.
    pub(crate) timeout: Duration,
    /// Quota that a lookup counts against, if it is for a client.
    pub(crate) lookup_quota: Option<LookupQuota<'a>>,
    /// DSCP of the client, used if the profile has none.
    pub(crate) dscp: u8,
}

/// Connects to `destination`. Each address must pass `is_allowed` first, whether it was given or
/// resolved.
pub(crate) async fn connect(
    destination: &Destination,
    options: ConnectOptions<'_>,
    is_allowed: impl Fn(SocketAddr) -> bool,
) -> Result<Connected, Failure> {
    let source = options.source;
    let socket_options = Options {
        transparent: source.is_some(),
        dscp: options
            .profile
            .options
            .dscp
            .or((options.dscp != 0).then_some(options.dscp)),
        ..options.profile.options.clone()
    };
    let (socket_options, profile, is_allowed) = (&socket_options, options.profile, &is_allowed);
    let attempt = |address| -> BoxFuture<'_, _> {
        if is_allowed(address) {
            Box::pin(connect_to(address, source, socket_options, profile))
        } else {
            Box::pin(ready(Err(Failure::NotAllowed)))
        }
    };
    let attempts = async {
        let candidates = Candidates::resolve(destination, options.lookup_quota).await?;
        race(candidates, attempt).await
    };
    with_timeout(options.timeout, Box::pin(attempts)).await
}

/// Time between two attempts (RFC 8305 §5, Connection Attempt Delay).
const ATTEMPT_DELAY: Duration = Duration::from_millis(250);

/// Happy Eyeballs (RFC 8305 §5). Starts an attempt with each address: the next one when an attempt
/// has failed or the attempt delay has passed. The first success cancels the others. If all fail,
/// returns the last failure.
pub(crate) async fn race<'a, T>(
    mut candidates: Candidates<'_>,
    attempt: impl Fn(SocketAddr) -> BoxFuture<'a, Result<T, Failure>>,
) -> Result<T, Failure> {
    let mut attempts = FuturesUnordered::new();
    let mut outcome = Err(Failure::NameNotFound);
    let mut next_at = Instant::now();
    loop {
        if Instant::now() >= next_at
            && let Some(address) = candidates.next()
        {
            attempts.push(attempt(address));
            next_at = Instant::now() + ATTEMPT_DELAY;
        }
        select! {
            Some(ended) = attempts.next() => match ended {
                Ok(connected) => return Ok(connected),
                Err(failure) => {
                    outcome = Err(failure);
                    next_at = Instant::now();
                }
            },
            () = sleep_until(next_at), if candidates.has_next() => {}
            () = candidates.await_lookup(), if candidates.is_pending() => {}
            else => return outcome,
        }
    }
}

/// Connects from `source`, with its port if possible. An earlier connection with the same addresses
/// and ports may still be in TIME-WAIT, which connect(2) notices and bind(2) does not; then the
/// kernel chooses the port.
async fn connect_to(
    address: SocketAddr,
    source: Option<SocketAddr>,
    options: &Options,
    profile: &Profile,
) -> Result<Connected, Failure> {
    let outcome = match (attempt(address, source, options, profile).await, source) {
        (Err(error), Some(source)) if error.kind() == io::ErrorKind::AddrNotAvailable => {
            attempt(address, Some((source.ip(), 0).into()), options, profile).await
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
    profile: &Profile,
) -> io::Result<TcpStream> {
    let socket = retry_on_exhaustion(async || socket::outgoing(address, source, options)).await?;
    set_initial_window(profile, &socket)?;
    TcpSocket::from_std_stream(socket).connect(address).await
}
