// SPDX-License-Identifier: MIT OR Apache-2.0
//! `longhaul plan measure`: measures the paths from this host, or answers the probes of other hosts.

mod args;
mod capacity;
mod config;
mod icmp;
mod message;
mod path_mtu;
mod report;
mod responder;
mod rtt;
mod serve;
mod target;
mod tcp;
mod udp;

pub(super) use args::Args;

use anyhow::Result;
use config::{Config, Service, Task};
use longhaul_command::outln;
use report::Measurement;
use target::{Method, Target};

/// Runs the command.
pub(super) fn run(task: Task) -> Result<()> {
    match task {
        Task::Measure(config) => measure_all(&config),
        Task::Serve(Service {
            address,
            limit,
            duration,
        }) => serve::run(address, limit, duration, &mut |text| outln!("{text}")),
    }
}

fn measure_all(config: &Config) -> Result<()> {
    let mut all = Vec::with_capacity(config.targets.len());
    for target in &config.targets {
        let found = measure(target, config)?;
        if !config.json {
            outln!("{}", report::text(&config.name, &found));
        }
        all.push(found);
    }
    if config.json {
        outln!("{}", report::json(config, &all)?);
    }
    Ok(())
}

fn measure(target: &Target, config: &Config) -> Result<Measurement> {
    let address = target.resolve()?;
    match config.method(target) {
        Method::Icmp => icmp::measure(target, address.ip(), config),
        Method::Tcp => tcp::measure(target, address, config),
        Method::Udp => udp::measure(target, address, config),
        Method::Auto => match udp::measure(target, address, config) {
            Err(error) if error.is::<udp::NoReply>() => tcp::measure(target, address, config),
            outcome => outcome,
        },
    }
}
