// SPDX-License-Identifier: MIT OR Apache-2.0
//! From flags to hosts and a way to ask them.

use super::{
    args::Args,
    target::{Method, Target},
};
use anyhow::Result;
use longhaul_command::exit::Refusal;
use longhaul_units::Time;

/// The flags, checked.
#[derive(Debug)]
pub(super) struct Config {
    pub(super) targets: Vec<Target>,
    pub(super) here: String,
    method: Method,
    pub(super) count: u32,
    pub(super) interval: Time,
    pub(super) trains: u32,
    pub(super) train: u32,
}

/// Hosts of one command.
const HOSTS_MAX: usize = 100;

impl Config {
    pub(super) fn read(args: &Args) -> Result<Self> {
        if args.hosts.len() > HOSTS_MAX {
            return Err(Refusal::usage(format!("more than {HOSTS_MAX} hosts")));
        }
        if !(Time::from_millis(1)..=Time::from_secs(1)).contains(&args.interval) {
            return Err(Refusal::usage(format!(
                "--interval {} is not within 1ms and 1s",
                args.interval
            )));
        }
        let targets = args
            .hosts
            .iter()
            .map(|text| Target::read(text, args.method));
        Ok(Self {
            targets: targets.collect::<Result<_>>()?,
            here: args.here.clone().unwrap_or_else(host_name),
            method: args.method,
            count: args.count,
            interval: args.interval,
            trains: args.trains,
            train: args.train,
        })
    }

    /// `auto` without a port is ICMP.
    pub(super) fn method(&self, target: &Target) -> Method {
        match (self.method, target.port) {
            (Method::Auto, None) => Method::Icmp,
            (method, _) => method,
        }
    }
}

fn host_name() -> String {
    let name = rustix::system::uname();
    name.nodename().to_string_lossy().into_owned()
}
