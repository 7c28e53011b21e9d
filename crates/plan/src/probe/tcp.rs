// SPDX-License-Identifier: MIT OR Apache-2.0
//! Probes by opening TCP connections, if nothing else passes firewalls: a refusal takes a round trip too.

use super::{config::Config, report::Measurement, rtt::RttSamples, target::Target};
use anyhow::{Result, bail};
use longhaul_linux::clock;
use longhaul_units::Time;
use std::{
    io::ErrorKind,
    net::{SocketAddr, TcpStream},
    time::Duration,
};

/// Most connections: they cost the remote host more than packets.
const CONNECTIONS_MAX: u32 = 20;
/// Timeout of a connection: a SYN is retransmitted after a second (RFC 6298 section 2), so one without a reply is lost.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(950);

pub(super) fn measure(
    target: &Target,
    address: SocketAddr,
    config: &Config,
) -> Result<Measurement> {
    let sent = config.count.min(CONNECTIONS_MAX);
    let mut times = Vec::new();
    for _ in 0..sent {
        times.extend(connect_time(address)?);
        std::thread::sleep(config.interval.into());
    }
    if times.is_empty() {
        bail!("{address} answers neither UDP nor TCP");
    }
    Ok(Measurement::new(target, "tcp", RttSamples { sent, times }))
}

/// Returns the time to open a connection; `None` if a SYN was lost.
fn connect_time(address: SocketAddr) -> Result<Option<Time>> {
    let before = clock::now();
    let outcome = TcpStream::connect_timeout(&address, CONNECT_TIMEOUT);
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
