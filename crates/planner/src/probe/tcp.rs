// SPDX-License-Identifier: MIT OR Apache-2.0
//! Asks by opening connections, where nothing else is let through: a refusal takes a round trip too.

use super::{config::Config, report::Measured, rounds::Rounds, target::Target};
use anyhow::{Result, bail};
use longhaul_linux::clock;
use longhaul_units::Time;
use std::{
    io::ErrorKind,
    net::{SocketAddr, TcpStream},
    time::Duration,
};

/// Connections are dearer than packets for the far end.
const CONNECTIONS_MAX: u32 = 20;
/// A SYN is sent again after a second (RFC 6298 section 2): by then the first, or its answer, is lost.
const PATIENCE: Duration = Duration::from_millis(950);

pub(super) fn measure(target: &Target, address: SocketAddr, config: &Config) -> Result<Measured> {
    let sent = config.count.min(CONNECTIONS_MAX);
    let mut times = Vec::new();
    for _ in 0..sent {
        times.extend(opened(address)?);
        std::thread::sleep(config.interval.into());
    }
    if times.is_empty() {
        bail!("{address} answers neither UDP nor TCP");
    }
    Ok(Measured::new(target, "tcp", Rounds { sent, times }))
}

/// How long one took; `None` if a SYN was lost.
fn opened(address: SocketAddr) -> Result<Option<Time>> {
    let before = clock::now();
    let outcome = TcpStream::connect_timeout(&address, PATIENCE);
    let took = clock::now() - before;
    match outcome {
        Ok(_) => Ok(Some(took)),
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => Ok(Some(took)),
        Err(error) if error.kind() == ErrorKind::TimedOut => Ok(None),
        Err(error) => {
            Err(anyhow::Error::new(error).context(format!("cannot connect to {address}")))
        }
    }
}
