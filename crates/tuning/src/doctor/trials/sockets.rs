// SPDX-License-Identifier: MIT OR Apache-2.0
//! Trials of features for any user, on sockets of this network namespace.

use super::attempt::{Failure, new_trial};
use crate::doctor::facts::Trial;
use longhaul_linux::{
    sock_diag::SockDiag,
    socket::{self, Options},
    splice::Pipe,
    timestamps::TimestampSocket,
};
use std::{
    io::{self, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    os::unix::net::UnixStream,
    time::Duration,
};

pub(super) fn all() -> Vec<Trial> {
    vec![
        new_trial("relay", "", try_relay()),
        new_trial("plan measure --method icmp", "", try_icmp()),
        new_trial("decp --dry-run", "", try_socket_list()),
    ]
}

/// Any port on loopback.
const LOOPBACK: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// Tries the socket options of a profile, and splice(2).
fn try_relay() -> Result<(), Failure> {
    let options = Options {
        pacing_rate: Some(1_000_000_000),
        notsent_lowat: Some(131_072),
        keepalive: Some(Duration::from_secs(40)),
        user_timeout: Some(Duration::from_secs(30)),
        mss: Some(1400),
        dscp: Some(8),
        send_buffer: Some(1 << 20),
        receive_buffer: Some(1 << 20),
        ..Options::default()
    };
    socket::outgoing(LOOPBACK, None, &options)?;
    // Loopback may be down.
    let (mut near, far) = UnixStream::pair()?;
    near.write_all(b"bytes")?;
    let mut pipe = Pipe::with_capacity(1 << 16)?;
    Ok(pipe.fill(&far, 1 << 16).map(drop)?)
}

/// Opens a connection of this process with itself, which leaves no TIME_WAIT behind.
pub(super) fn connected_pair() -> io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind(LOOPBACK)?;
    let near = TcpStream::connect(listener.local_addr()?)?;
    socket::reset_on_close(&near)?;
    Ok((near, listener.accept()?.0))
}

/// Tries ICMP sockets. Errors other than missing rights are about the address, not about ICMP.
fn try_icmp() -> Result<(), Failure> {
    match TimestampSocket::icmp(LOOPBACK.ip()) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Err(Failure::Fails(
            format!("{error}: sysctl -w net.ipv4.ping_group_range='0 2147483647' allows it"),
        )),
        _ => Ok(()),
    }
}

fn try_socket_list() -> Result<(), Failure> {
    Ok(SockDiag::here()?.connections().map(drop)?)
}
