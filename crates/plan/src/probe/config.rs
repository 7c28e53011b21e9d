// SPDX-License-Identifier: MIT OR Apache-2.0
//! Validated configuration of `plan measure`.

use super::target::{Method, Target};
use longhaul_units::{BitRate, Time};
use std::net::SocketAddr;

/// Task of the command.
#[derive(Debug)]
pub(crate) enum Task {
    Measure(Config),
    Serve(Service),
}

/// Configuration of a responder for others' probes.
#[derive(Debug)]
pub(crate) struct Service {
    pub(super) address: SocketAddr,
    /// Greatest rate of all replies together, IP bytes.
    pub(super) limit: BitRate,
    /// Time after which it ends.
    pub(super) duration: Option<Time>,
}

/// Configuration of measurements.
#[derive(Debug)]
pub(crate) struct Config {
    pub(super) targets: Vec<Target>,
    pub(super) name: String,
    pub(super) method: Method,
    pub(super) count: u32,
    pub(super) interval: Time,
    pub(super) trains: u32,
    pub(super) train_length: u32,
    pub(super) json: bool,
}

impl Config {
    /// Returns the method for a target; `auto` without a port is ICMP.
    pub(super) fn method(&self, target: &Target) -> Method {
        match (self.method, target.port) {
            (Method::Auto, None) => Method::Icmp,
            (method, _) => method,
        }
    }
}
