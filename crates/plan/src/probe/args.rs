// SPDX-License-Identifier: MIT OR Apache-2.0
//! Command line of `longhaul plan measure`.
#![allow(
    rustdoc::broken_intra_doc_links,
    reason = "help texts are printed as they stand"
)]

use super::{
    config::{Config, Service, Task},
    target::{Method, Target},
};
use anyhow::Result;
use clap::{ValueEnum, builder::PossibleValue};
use longhaul_command::exit::Refusal;
use longhaul_units::{BitRate, Time};
use std::net::SocketAddr;

const EXAMPLES: &str = "\
Examples:
  Let others measure the path to this host, for ten minutes:
    longhaul plan measure --serve 192.0.2.7:5990 --duration 10min
  Round trip, loss, path MTU and capacity to it from here:
    longhaul plan measure osaka=192.0.2.7:5990
  By ICMP echo, to a host without longhaul (no capacity):
    longhaul plan measure 192.0.2.7
  Input of longhaul plan split; run it at each site with all later ones as hosts:
    longhaul plan measure --name tokyo --json osaka=192.0.2.7:5990 kobe=192.0.2.8:5990 >tokyo.json

A probe of one host takes some ten seconds and at most 2,000 packets. With an MTU of 1,500 bytes
that is 1 MB besides the trains. The responder never sends more bytes than it received, and at most
--limit; only clients that returned its cookie get full replies.";

/// Arguments of `longhaul plan measure`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Hosts to measure the path to: [NAME=]HOST[:PORT], with the PORT of plan measure --serve
    #[arg(
        value_name = "HOST",
        required_unless_present = "serve",
        conflicts_with = "serve"
    )]
    hosts: Vec<String>,
    /// Reply to others' probes at this address instead [default ADDRESS: 127.0.0.1:5990]
    #[arg(long, value_name = "ADDRESS", num_args = 0..=1, default_missing_value = "127.0.0.1:5990")]
    serve: Option<SocketAddr>,
    /// With --serve: highest rate of all replies together, IP headers included
    #[arg(
        long,
        value_name = "RATE",
        default_value = "50mbit",
        requires = "serve",
        conflicts_with = "hosts"
    )]
    limit: BitRate,
    /// With --serve: end after this time
    #[arg(
        long,
        value_name = "TIME",
        requires = "serve",
        conflicts_with = "hosts"
    )]
    duration: Option<Time>,
    /// Name of this site [default: its host name]
    #[arg(long, value_name = "SITE")]
    name: Option<String>,
    /// Protocol of the probe: udp and tcp need a PORT
    #[arg(long, value_enum, default_value_t)]
    method: Method,
    /// Packets for round trip and loss
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1000))]
    count: u32,
    /// Interval between these packets, 1ms to 1s
    #[arg(long, value_name = "TIME", default_value = "20ms")]
    interval: Time,
    /// Packet trains for the capacity; 0 measures none
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(0..=20))]
    trains: u32,
    /// Packets of a train; 2 is a packet pair
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u32).range(2..=64))]
    train_length: u32,
    /// Print JSON for longhaul plan split
    #[arg(long)]
    json: bool,
}

/// Most hosts of one command.
const HOSTS_MAX: usize = 100;

impl Args {
    /// Validates the arguments.
    pub(crate) fn task(self) -> Result<Task> {
        match self.serve {
            Some(address) => Ok(Task::Serve(Service {
                address,
                limit: self.limit,
                duration: self.duration,
            })),
            None => self.config().map(Task::Measure),
        }
    }

    fn config(self) -> Result<Config> {
        if self.hosts.len() > HOSTS_MAX {
            return Err(Refusal::usage(format!("more than {HOSTS_MAX} hosts")));
        }
        if !(Time::from_millis(1)..=Time::from_secs(1)).contains(&self.interval) {
            return Err(Refusal::usage(format!(
                "--interval {}: want 1ms to 1s",
                self.interval.exact()
            )));
        }
        let targets = self
            .hosts
            .iter()
            .map(|text| Target::parse(text, self.method));
        Ok(Config {
            targets: targets.collect::<Result<_>>()?,
            name: self.name.unwrap_or_else(host_name),
            method: self.method,
            count: self.count,
            interval: self.interval,
            trains: self.trains,
            train_length: self.train_length,
            json: self.json,
        })
    }
}

fn host_name() -> String {
    let name = rustix::system::uname();
    name.nodename().to_string_lossy().into_owned()
}

impl ValueEnum for Method {
    fn value_variants<'a>() -> &'a [Self] {
        &[Self::Auto, Self::Udp, Self::Icmp, Self::Tcp]
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        let (name, help) = match self {
            Self::Auto => ("auto", "With a PORT, UDP, else TCP; otherwise ICMP"),
            Self::Udp => ("udp", "The responder of plan measure --serve"),
            Self::Icmp => ("icmp", "Echo, answered by the remote host's kernel"),
            Self::Tcp => ("tcp", "Time to open a connection, or until it is refused"),
        };
        Some(PossibleValue::new(name).help(help))
    }
}
