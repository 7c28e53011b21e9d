// SPDX-License-Identifier: MIT OR Apache-2.0
//! Descriptors or memory have run out. To wait is better than to refuse: the first one that comes
//! free would go to the next client, only for that one to be refused as well.

use super::failure::Failure;
use rustix::io::Errno;
use std::{fs::File, io, net::SocketAddr, time::Duration};
use tokio::{net::lookup_host, time::sleep};

/// How long to wait for a descriptor or memory to come free.
pub(crate) const PAUSE: Duration = Duration::from_millis(100);

/// Whether the process or the system has run out of what every socket takes (accept(2),
/// socket(2)).
pub(crate) fn is_shortage(error: &io::Error) -> bool {
    use Errno as E;
    let scarce = [E::MFILE, E::NFILE, E::NOBUFS, E::NOMEM];
    Errno::from_io_error(error).is_some_and(|errno| scarce.contains(&errno))
}

/// Opens what takes descriptors or memory, as often as there are none. The caller bounds the time.
pub(crate) async fn patiently<T, F>(mut open: impl FnMut() -> F) -> io::Result<T>
where
    F: Future<Output = io::Result<T>>,
{
    loop {
        match open().await {
            Err(error) if is_shortage(&error) => sleep(PAUSE).await,
            outcome => return outcome,
        }
    }
}

/// The addresses of a name, in the resolver's order. Without descriptors it knows no name and has
/// its own errors for that.
pub(crate) async fn resolve(
    name: &str,
    port: u16,
) -> io::Result<impl Iterator<Item = SocketAddr> + use<>> {
    let addresses = patiently(async || {
        let found = lookup_host((name, port)).await;
        found.map_err(|error| missing().unwrap_or(error))
    });
    Ok(addresses.await?.collect::<Vec<_>>().into_iter())
}

/// What it means that the time for opening something is over.
pub(crate) fn late() -> Failure {
    match missing() {
        Some(_) => Failure::Exhausted,
        None => Failure::TimedOut,
    }
}

/// The error of whoever wants a descriptor now.
fn missing() -> Option<io::Error> {
    File::open("/dev/null").err().filter(is_shortage)
}
