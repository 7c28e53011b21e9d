// SPDX-License-Identifier: MIT OR Apache-2.0
//! Command line of `longhaul cc`, and its validation.

use super::config;
use crate::connection_filter::Filter;
use anyhow::Result;
use longhaul_command::exit::Refusal;
use longhaul_congestion::{
    Error, choice,
    math::{Algorithm, parameters},
    pins::{self, Pins},
};
use longhaul_units::Time;
use std::{
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};

const EXAMPLES: &str = "\
Examples:
  longhaul cc list
      congestion controls of this kernel, and those that longhaul can load
  sudo longhaul cc load bic
      every program can now choose lh_bic (TCP_CONGESTION, iperf3 -C lh_bic)
  sudo longhaul cc load bic --param ack_shift=3
      with a parameter; longhaul cc show bic lists all parameters
  sudo longhaul cc watch
      window, rate and the algorithm's own state of each of its connections
  sudo longhaul cc unload bic
      connections that use it keep it until they close

The page congestion-controls.md of the manual explains each congestion control.";

const LOAD_EXAMPLES: &str = "\
Examples:
  sudo longhaul cc load bic
  sudo longhaul cc load bic --param ack_shift=3 --param beta=717
  sudo longhaul cc load bic --param ack_shift=6 --replace
      other parameters, for connections that begin from now on
  sudo longhaul cc load bic --default
      for all sockets of this network namespace that don't choose; unload restores the old default
  sudo longhaul cc load bic --per-socket /sys/fs/cgroup/system.slice
      services can set parameters per socket; longhaul cc show lists the options

It stays loaded until longhaul cc unload or a reboot.

Exit codes: 0 loaded, now or before; 1 loaded with other parameters or by another longhaul;
2 no such name or parameter; 3 not permitted, not supported by this kernel, or the name is taken.";

const UNLOAD_EXAMPLES: &str = "\
Examples:
  sudo longhaul cc unload bic
  sudo longhaul cc unload --all

Connections that use it keep it until they close; new ones can't choose it.
The default before load --default is restored.";

const WATCH_EXAMPLES: &str = "\
Examples:
  sudo longhaul cc watch
  sudo longhaul cc watch bic --filter 'dport 5201 and dst 10.9.0.0/16'
  sudo longhaul cc watch --once --json
  sudo longhaul cc watch --interval 100ms --json > windows.jsonl

It reads the kernel's state of each connection, in every network namespace, at no cost to the
connections. longhaul cc show NAME has the units of the last column. Ctrl-C ends it.

A filter is made of: dport N, sport N, port N (or N-M); dst ADDRESS[/LENGTH], src …, host …; and,
or, not, ( ). dst and dport are the other end of the connection, as ss(8) has them.";

/// Arguments of `longhaul cc`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// List the congestion controls of the kernel and of longhaul
    List(List),
    /// Load congestion controls into the kernel, for all programs and network namespaces
    Load(Load),
    /// Unload congestion controls; open connections keep theirs
    Unload(Unload),
    /// Show a congestion control of longhaul: its parameters, state and BPF programs
    Show(Show),
    /// Watch the connections that use longhaul's congestion controls
    Watch(Watch),
}

#[derive(clap::Args)]
struct List {
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    pins: PinArgs,
}

#[derive(clap::Args)]
#[command(after_help = LOAD_EXAMPLES)]
struct Load {
    /// Congestion controls of longhaul, with or without lh_
    #[arg(required = true, value_name = "NAME")]
    names: Vec<String>,
    /// Parameter of the congestion control, NAME=VALUE; repeatable
    #[arg(long, value_name = "NAME=VALUE")]
    param: Vec<String>,
    /// Replace a congestion control that was loaded with other parameters or by another longhaul
    #[arg(long)]
    replace: bool,
    /// Let programs of this cgroup (directory, version 2) set parameters of single sockets by a
    /// socket option
    #[arg(long, value_name = "CGROUP")]
    per_socket: Option<PathBuf>,
    /// Count the ACKs of new connections, and the bytes that each acknowledges, for longhaul cc
    /// watch
    #[arg(long)]
    count_acks: bool,
    /// Make it the default of this network namespace
    #[arg(long)]
    default: bool,
    /// Print JSON, one line per congestion control
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    pins: PinArgs,
}

#[derive(clap::Args)]
#[command(after_help = UNLOAD_EXAMPLES)]
struct Unload {
    /// Congestion controls of longhaul, with or without lh_
    #[arg(
        value_name = "NAME",
        required_unless_present = "all",
        conflicts_with = "all"
    )]
    names: Vec<String>,
    /// Unload every congestion control that longhaul loaded
    #[arg(long)]
    all: bool,
    /// Print JSON, one line per congestion control
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    pins: PinArgs,
}

#[derive(clap::Args)]
struct Show {
    /// Congestion control of longhaul, with or without lh_
    name: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    pins: PinArgs,
}

#[derive(clap::Args)]
#[command(after_help = WATCH_EXAMPLES)]
struct Watch {
    /// Congestion control of longhaul, with or without lh_ [default: all that are loaded]
    name: Option<String>,
    /// Only connections that match: 'dport 5201 and not dst 10.0.0.0/8' …
    #[arg(long, value_name = "FILTER")]
    filter: Option<String>,
    /// Sampling interval, at least 10ms
    #[arg(
        long,
        value_name = "TIME",
        default_value = "1s",
        conflicts_with = "once"
    )]
    interval: Time,
    /// Take one sample and exit
    #[arg(long)]
    once: bool,
    /// Print JSON, one line per connection
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    pins: PinArgs,
}

/// Location of the pins of loaded congestion controls.
#[derive(clap::Args)]
struct PinArgs {
    /// BPF file system for the pins of loaded congestion controls; mounted if necessary
    #[arg(long, value_name = "DIR", default_value = pins::DEFAULT)]
    bpffs: PathBuf,
}

impl Args {
    /// Validates the arguments.
    pub(super) fn config(&self) -> Result<config::Config> {
        Ok(match &self.command {
            Command::List(args) => config::Config::List(args.config()?),
            Command::Load(args) => config::Config::Load(args.config()?),
            Command::Unload(args) => config::Config::Unload(args.config()?),
            Command::Show(args) => config::Config::Show(args.config()?),
            Command::Watch(args) => config::Config::Watch(args.config()?),
        })
    }
}

impl List {
    fn config(&self) -> Result<config::List> {
        Ok(config::List {
            pins: self.pins.open()?,
            json: self.json,
        })
    }
}

impl Load {
    fn config(&self) -> Result<config::Load> {
        Ok(config::Load {
            wanted: self.wanted()?,
            replace: self.replace,
            cgroup: self.per_socket.as_deref().map(open_cgroup).transpose()?,
            count_acks: self.count_acks,
            default: self.default,
            pins: self.pins.open()?,
            json: self.json,
        })
    }

    fn wanted(&self) -> Result<Vec<(Algorithm, Vec<u32>)>> {
        let one = |what: &str| match self.names.len() {
            1 => Ok(()),
            _ => Err(Refusal::usage(format!(
                "{what} is for one congestion control at a time"
            ))),
        };
        if !self.param.is_empty() {
            one("--param")?;
        }
        if self.default {
            one("--default")?;
        }
        let names = self.names.iter();
        names
            .map(|name| {
                let algorithm = named(name)?;
                let values = parameters::values(algorithm, &self.param).map_err(Error::refusal)?;
                Ok((algorithm, values))
            })
            .collect()
    }
}

fn open_cgroup(path: &Path) -> Result<OwnedFd> {
    let open = longhaul_linux::cgroup::at(path);
    open.map_err(|error| {
        Refusal::usage(format!(
            "--per-socket {}: {error}; it wants the directory of a cgroup of version 2",
            path.display()
        ))
    })
}

impl Unload {
    fn config(&self) -> Result<config::Unload> {
        let names = self.names.iter();
        let only = (!self.all).then(|| names.map(|name| named(name)).collect());
        Ok(config::Unload {
            only: only.transpose()?,
            pins: self.pins.open()?,
            json: self.json,
        })
    }
}

impl Show {
    fn config(&self) -> Result<config::Show> {
        Ok(config::Show {
            algorithm: named(&self.name)?,
            pins: self.pins.open()?,
            json: self.json,
        })
    }
}

impl Watch {
    fn config(&self) -> Result<config::Watch> {
        let filter = self.filter.as_deref();
        let filter = filter.map_or(Ok(Filter::EVERYTHING), Filter::of_flag)?;
        if self.interval < Time::from_millis(10) {
            let text = self.interval.exact();
            return Err(Refusal::usage(format!(
                "--interval {text}: want at least 10ms"
            )));
        }
        Ok(config::Watch {
            only: self.name.as_deref().map(named).transpose()?,
            filter,
            interval: (!self.once).then_some(self.interval),
            pins: self.pins.open()?,
            json: self.json,
        })
    }
}

impl PinArgs {
    /// Returns the pins. The default directory may be missing: then there are none, and `load` gives the reason.
    fn open(&self) -> Result<Pins> {
        let is_given = self.bpffs.as_os_str() != pins::DEFAULT;
        match self.bpffs.metadata() {
            Err(error) if is_given => Err(self.refused(&error)),
            Ok(metadata) if !metadata.is_dir() => Err(self.refused(&"not a directory")),
            _ => Ok(Pins::at(&self.bpffs)),
        }
    }

    fn refused(&self, reason: &dyn std::fmt::Display) -> anyhow::Error {
        Refusal::usage(format!("--bpffs {}: {reason}", self.bpffs.display()))
    }
}

fn named(name: &str) -> Result<Algorithm> {
    parameters::named(name).map_err(|error| match error {
        Error::Unknown { known, .. } if is_kernels(name) => Refusal::usage(format!(
            "{name} is the kernel's own, and longhaul shows, loads and watches only its own: {known}. ss -ti shows the \
             state of its connections, /sys/module/{}/parameters its parameters",
            choice::module(name)
        )),
        error => error.refusal(),
    })
}

/// Whether the name is that of a congestion control of this or another kernel.
fn is_kernels(name: &str) -> bool {
    choice::is_in_linux(name) || choice::registered().iter().any(|known| known == name)
}
