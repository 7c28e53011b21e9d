// SPDX-License-Identifier: MIT OR Apache-2.0
//! Opening a leg: resolve, connect, and say why not.

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

/// A leg, and the address at its other end.
type Connected = (TcpStream, SocketAddr);

/// How a leg is to be opened.
pub(crate) struct Departure<'a> {
    /// Address and port to leave with, if not the relay's own.
    pub(crate) source: Option<SocketAddr>,
    pub(crate) profile: &'a Profile,
    /// Resolution included.
    pub(crate) limit: Duration,
    /// Who a lookup counts for, if it is a client.
    pub(crate) lookup_quota: Option<LookupQuota<'a>>,
    /// The client's DSCP, if the profile has none.
    pub(crate) dscp: u8,
}

/// Connects to `destination`. Each address that is tried passes `permits` first, whether it was
/// given or a name led to it.
pub(crate) async fn connect(
    destination: &Destination,
    departure: Departure<'_>,
    permits: impl Fn(SocketAddr) -> bool,
) -> Result<Connected, Failure> {
    let source = departure.source;
    let options = Options {
        transparent: source.is_some(),
        dscp: departure
            .profile
            .options
            .dscp
            .or((departure.dscp != 0).then_some(departure.dscp)),
        ..departure.profile.options.clone()
    };
    let (options, profile, permits) = (&options, departure.profile, &permits);
    let attempt = |address| -> BoxFuture<'_, _> {
        match permits(address) {
            true => Box::pin(connect_to(address, source, options, profile)),
            false => Box::pin(ready(Err(Failure::NotAllowed))),
        }
    };
    let attempts = async {
        let candidates = Candidates::of(destination, departure.lookup_quota).await?;
        race(candidates, attempt).await
    };
    with_timeout(departure.limit, Box::pin(attempts)).await
}

/// Time between two attempts (RFC 8305 §5, Connection Attempt Delay).
const ATTEMPT_DELAY: Duration = Duration::from_millis(250);

/// Happy Eyeballs (RFC 8305 §5): makes an attempt with each address, the next when one has failed or
/// has not succeeded for a while. The first that succeeds ends the others; the last failure is the
/// failure of all.
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
            () = candidates.more(), if candidates.is_pending() => {}
            else => return outcome,
        }
    }
}

/// With a source, the port is kept if it can be: an earlier connection between the same four
/// (address and port, twice) may still be in TIME-WAIT,
/// and connect(2) notices it where bind(2) does not.
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
