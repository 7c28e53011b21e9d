// SPDX-License-Identifier: MIT OR Apache-2.0
//! Hosts and a way to ask them, or where others' probes are answered.

use super::target::{Method, Target};
use longhaul_units::{BitRate, Time};
use std::net::SocketAddr;

/// What to do, checked.
#[derive(Debug)]
pub(crate) enum Task {
    Measure(Config),
    Serve(Service),
}

/// A responder for others' probes.
#[derive(Debug)]
pub(crate) struct Service {
    pub(super) address: SocketAddr,
    /// The most that all answers together come to, IP bytes.
    pub(super) limit: BitRate,
    /// After which time it ends.
    pub(super) span: Option<Time>,
}

/// Hosts to measure the paths to.
#[derive(Debug)]
pub(crate) struct Config {
    pub(super) targets: Vec<Target>,
    pub(super) here: String,
    pub(super) method: Method,
    pub(super) count: u32,
    pub(super) interval: Time,
    pub(super) trains: u32,
    pub(super) train: u32,
    pub(super) json: bool,
}

impl Config {
    /// `auto` without a port is ICMP.
    pub(super) fn method(&self, target: &Target) -> Method {
        match (self.method, target.port) {
            (Method::Auto, None) => Method::Icmp,
            (method, _) => method,
        }
    }
}
