// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checked configuration of `longhaul udt`.

use crate::port::UdtCongestionControl;
use longhaul_units::{Bytes, Time};
use std::{net::SocketAddr, path::PathBuf};

/// Task of `longhaul udt`.
#[derive(Debug)]
pub(super) enum Config {
    Send(SendConfig),
    Receive(ReceiveConfig),
    Bench(BenchConfig),
    Serve(ServeConfig),
}

/// A file to send.
#[derive(Debug)]
pub(super) struct SendConfig {
    /// `-` is standard input.
    pub(super) file: PathBuf,
    pub(super) to: SocketAddr,
    pub(super) port: Port,
    pub(super) json: bool,
}

/// A file to receive.
#[derive(Debug)]
pub(super) struct ReceiveConfig {
    /// `-` is standard output.
    pub(super) file: PathBuf,
    pub(super) listen: SocketAddr,
    pub(super) port: Port,
    pub(super) json: bool,
}

/// A benchmark to run as the client.
#[derive(Debug)]
pub(super) struct BenchConfig {
    pub(super) to: SocketAddr,
    pub(super) time: Time,
    /// Total bytes to send, instead of sending for a time.
    pub(super) bytes: Option<Bytes>,
    /// Number of parallel connections.
    pub(super) streams: u16,
    /// Whether the server sends to the client.
    pub(super) reverse: bool,
    /// Length of the reported intervals.
    pub(super) interval: Option<Time>,
    pub(super) port: Port,
    pub(super) json: bool,
}

/// A benchmark server.
#[derive(Debug)]
pub(super) struct ServeConfig {
    pub(super) listen: SocketAddr,
    pub(super) port: Port,
}

/// Options of the connections of a port.
#[derive(Debug)]
pub(super) struct Port {
    pub(super) udt: longhaul_udt::Config,
    pub(super) control: UdtCongestionControl,
}
