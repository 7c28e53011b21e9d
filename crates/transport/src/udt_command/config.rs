// SPDX-License-Identifier: MIT OR Apache-2.0
//! What was asked for, checked.

use crate::port::Control;
use longhaul_units::{Bytes, Time};
use std::{net::SocketAddr, path::PathBuf};

/// One thing to do.
#[derive(Debug)]
pub(super) enum Config {
    Send(Send),
    Receive(Receive),
    Bench(Bench),
    Serve(Serve),
}

/// A file to send.
#[derive(Debug)]
pub(super) struct Send {
    /// `-` is standard input.
    pub(super) file: PathBuf,
    pub(super) to: SocketAddr,
    pub(super) port: Port,
    pub(super) json: bool,
}

/// A file to receive.
#[derive(Debug)]
pub(super) struct Receive {
    /// `-` is standard output.
    pub(super) file: PathBuf,
    pub(super) at: SocketAddr,
    pub(super) port: Port,
    pub(super) json: bool,
}

/// A bench to ask for.
#[derive(Debug)]
pub(super) struct Bench {
    pub(super) to: SocketAddr,
    pub(super) time: Time,
    /// Instead of a time, in all.
    pub(super) bytes: Option<Bytes>,
    /// Connections at a time.
    pub(super) parallel: u16,
    /// From there to here.
    pub(super) reverse: bool,
    /// How long each interval is that is to be told of.
    pub(super) interval: Option<Time>,
    pub(super) port: Port,
    pub(super) json: bool,
}

/// Benches to serve.
#[derive(Debug)]
pub(super) struct Serve {
    pub(super) at: SocketAddr,
    pub(super) port: Port,
}

/// What the connections of a port are like.
#[derive(Debug)]
pub(super) struct Port {
    pub(super) udt: longhaul_udt::Config,
    pub(super) control: Control,
}
