// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a relay is told to do, checked: nothing is opened before this stands.

use super::{
    args::{Args, Mode},
    prefix::Prefix,
    profile::Profile,
};
use crate::exit::Refusal;
use host::pipe_pool::{self, PoolConfig};
use std::{fmt, net::SocketAddr, path::PathBuf, time::Duration};
use wire::{convert, destination::Destination};

/// A checked configuration.
#[derive(Debug)]
pub(crate) struct Config {
    pub(crate) listeners: Vec<Listener>,
    /// Who may use the listeners that are not on loopback.
    pub(crate) allow_from: Vec<Prefix>,
    /// The relays that every connection leaves through, nearest first.
    pub(crate) peers: Vec<SocketAddr>,
    pub(crate) near: Profile,
    pub(crate) far: Profile,
    /// Each worker's store of pipes or buffers.
    pub(crate) pool: PoolConfig,
    pub(crate) limits: Limits,
    pub(crate) counters: Option<PathBuf>,
    pub(crate) interval: Duration,
}

/// One way in.
#[derive(Debug, Clone)]
pub(crate) struct Listener {
    pub(crate) kind: Kind,
    pub(crate) address: SocketAddr,
}

/// How clients of a listener say where they want to go.
#[derive(Debug, Clone)]
pub(crate) enum Kind {
    /// SOCKS5.
    Socks5,
    /// HTTP CONNECT and http:// requests.
    Http,
    /// They do not: it is always here.
    Forward(Destination),
    /// They do not: TPROXY diverted them, and their destination is the accepted socket's address.
    Transparent {
        /// The outgoing leg takes the client's address.
        keep_source: bool,
    },
    /// TCP Convert, spoken by other relays.
    Convert,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Socks5 => "socks5",
            Self::Http => "http",
            Self::Forward(_) => "forward",
            Self::Transparent { .. } => "transparent",
            Self::Convert => "convert",
        })
    }
}

/// Times and numbers that nothing exceeds.
#[derive(Debug, Clone)]
pub(crate) struct Limits {
    pub(crate) connect_timeout: Duration,
    pub(crate) handshake_timeout: Duration,
    pub(crate) connections_max: u32,
    pub(crate) workers: usize,
    pub(crate) grace: Duration,
}

/// Bytes in one copy: large enough that the system calls vanish beside the copying.
const BUFFER_BYTES: usize = 256 * 1024;

/// Idle conduits a worker keeps: enough for a burst of busy connections. Memory: 16 MiB a worker
/// in copy mode, 640 KiB with 1 MiB pipes.
const IDLE_CONDUITS_MAX: usize = 64;

impl Config {
    /// Checks the arguments; the first thing that is wrong ends the command with exit code 2 or 3.
    pub(crate) fn new(args: Args) -> anyhow::Result<Self> {
        let config = Self {
            listeners: listeners(&args),
            pool: pool(&args)?,
            limits: limits(&args)?,
            allow_from: args.allow_from,
            peers: args.peer.iter().map(|peer| peer.0).collect(),
            near: Profile {
                congestion_control: args.cc_near,
            },
            far: Profile {
                congestion_control: args.cc_far,
            },
            counters: args.counters,
            interval: positive("--interval", args.interval)?,
        };
        config.check_ways(args.keep_source)?;
        config.near.check("--cc-near")?;
        config.far.check("--cc-far")?;
        Ok(config)
    }

    fn check_ways(&self, keep_source: bool) -> anyhow::Result<()> {
        let transparent = |l: &Listener| matches!(l.kind, Kind::Transparent { .. });
        if self.listeners.is_empty() {
            return Err(Refusal::usage(
                "no listener: give at least one of --socks5, --http, --forward, --transparent, \
                 --convert",
            ));
        }
        if keep_source && !self.listeners.iter().any(transparent) {
            return Err(Refusal::usage(
                "--keep-source is for --transparent listeners",
            ));
        }
        if keep_source && !self.peers.is_empty() {
            return Err(Refusal::usage(
                "--keep-source and --peer exclude each other: the leg to a peer is the relay's own",
            ));
        }
        if self.peers.len() > convert::HOPS_MAX {
            return Err(Refusal::usage(format!(
                "more than {} --peer",
                convert::HOPS_MAX
            )));
        }
        self.listeners
            .iter()
            .try_for_each(|listener| self.check_exposure(listener))
    }

    /// Nothing listens off loopback for strangers. TPROXY's listener is reached through rules that
    /// the administrator made; one who connects straight to it is turned away.
    fn check_exposure(&self, listener: &Listener) -> anyhow::Result<()> {
        let Listener { kind, address } = listener;
        let closed = address.ip().is_loopback() || !self.allow_from.is_empty();
        if closed || matches!(kind, Kind::Transparent { .. }) {
            return Ok(());
        }
        Err(Refusal::usage(format!(
            "--{kind} {address} is not on loopback: name the clients that it serves with \
             --allow-from CIDR"
        )))
    }
}

fn listeners(args: &Args) -> Vec<Listener> {
    let keep_source = args.keep_source;
    let all = |kind: Kind, addresses: &[SocketAddr]| {
        let listener = |address: &SocketAddr| Listener {
            kind: kind.clone(),
            address: *address,
        };
        addresses.iter().map(listener).collect::<Vec<_>>()
    };
    let convert: Vec<SocketAddr> = args.convert.iter().map(|peer| peer.0).collect();
    let forward = args.forward.iter().map(|forward| Listener {
        kind: Kind::Forward(forward.destination.clone()),
        address: forward.listen,
    });
    let mut listeners = all(Kind::Socks5, &args.socks5);
    listeners.extend(all(Kind::Http, &args.http));
    listeners.extend(forward);
    listeners.extend(all(Kind::Transparent { keep_source }, &args.transparent));
    listeners.extend(all(Kind::Convert, &convert));
    listeners
}

fn pool(args: &Args) -> anyhow::Result<PoolConfig> {
    let bytes = args.pipe_size.get();
    if !(4096..=1 << 30).contains(&bytes) {
        return Err(Refusal::usage(format!(
            "--pipe-size {}: want 4096B to 1GiB",
            args.pipe_size
        )));
    }
    Ok(PoolConfig {
        mode: match args.mode {
            Mode::Splice => pipe_pool::Mode::Splice,
            Mode::Copy => pipe_pool::Mode::Copy,
        },
        pipe_bytes: bytes as usize,
        buffer_bytes: BUFFER_BYTES,
        pipes_max: usize::MAX,
        idle_max: IDLE_CONDUITS_MAX,
    })
}

fn limits(args: &Args) -> anyhow::Result<Limits> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    Ok(Limits {
        connect_timeout: positive("--connect-timeout", args.connect_timeout)?,
        handshake_timeout: positive("--handshake-timeout", args.handshake_timeout)?,
        connections_max: args.max_connections,
        workers: args.workers.map_or(cores, usize::from),
        grace: args.grace.into(),
    })
}

fn positive(flag: &str, time: units::Time) -> anyhow::Result<Duration> {
    match time {
        units::Time::ZERO => Err(Refusal::usage(format!("{flag} 0: want more than no time"))),
        time => Ok(time.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    fn refusal(line: &str) -> String {
        let words = std::iter::once("relay").chain(line.split_whitespace());
        let args = Line::try_parse_from(words).unwrap().args;
        Config::new(args).unwrap_err().to_string()
    }

    #[test]
    fn refuses_before_anything_is_opened() {
        for (line, word) in [
            ("", "no listener"),
            ("--socks5 0.0.0.0:1080", "--allow-from"),
            ("--convert 192.0.2.1", "--allow-from"),
            ("--http [::]:3128", "--allow-from"),
            ("--socks5 127.0.0.1:0 --keep-source", "--transparent"),
            (
                "--transparent 0.0.0.0:1 --keep-source --peer 192.0.2.1",
                "--peer",
            ),
            ("--socks5 127.0.0.1:0 --cc-far no-such", "there are: "),
            ("--socks5 127.0.0.1:0 --interval 0s", "--interval"),
            ("--socks5 127.0.0.1:0 --pipe-size 1B", "--pipe-size"),
        ] {
            assert!(refusal(line).contains(word), "{line}: {}", refusal(line));
        }
    }

    #[test]
    fn takes_any_number_of_listeners() {
        let line = "relay --socks5 127.0.0.1:0 --socks5 [::1]:0 --forward 127.0.0.1:0=host:80 \
                    --convert 10.0.0.1 --allow-from 10.0.0.0/8 --peer 10.0.0.2 --peer 10.0.0.3:9";
        let args = Line::try_parse_from(line.split_whitespace()).unwrap().args;
        let config = Config::new(args).unwrap();
        assert_eq!(config.listeners.len(), 4);
        assert_eq!(config.listeners[3].address.port(), convert::PORT);
        assert_eq!(config.peers[1].port(), 9);
    }
}
