// SPDX-License-Identifier: MIT OR Apache-2.0
//! Command line of `longhaul udt`, and its conversion to a checked configuration.

use super::config;
use crate::port::UdtCongestionControl;
use clap::{ValueEnum, builder::PossibleValue};
use longhaul_units::{Bytes, Time};
use std::{
    net::{Ipv6Addr, SocketAddr, ToSocketAddrs},
    path::PathBuf,
};

/// Default port, as in libudt's example programs.
const DEFAULT_PORT: u16 = 9000;

const HELP_EXAMPLES: &str = "\
Examples:
  longhaul udt receive disk.img                       # on the receiver, port 9000
  longhaul udt send disk.img far.example.org          # on the sender
  tar c data | longhaul udt send - far:9001           # standard input
  longhaul udt bench                                  # serve tests until Ctrl-C
  longhaul udt bench far --time 30s --reverse --json  # measure the path from far to here";

/// Arguments of `longhaul udt`.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP_EXAMPLES)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Send a file or standard input to a receiver
    Send(SendArgs),
    /// Receive a file from one sender into a file or to standard output
    Receive(ReceiveArgs),
    /// Measure the throughput of a path, from memory to memory
    Bench(BenchArgs),
}

#[derive(Debug, clap::Args)]
struct SendArgs {
    /// File to send; - is standard input
    file: PathBuf,
    /// HOST or HOST:PORT of the receiver; the default port is 9000
    #[arg(value_parser = parse_host)]
    to: SocketAddr,
    #[command(flatten)]
    port: Port,
    /// Print the result as one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
struct ReceiveArgs {
    /// File to write; - is standard output. The file appears under its name when it is complete
    file: PathBuf,
    /// Address and port to listen on
    #[arg(long, value_name = "ADDRESS:PORT", default_value_t = any_address())]
    listen: SocketAddr,
    #[command(flatten)]
    port: Port,
    /// Print the result as one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
struct BenchArgs {
    /// HOST or HOST:PORT of a serving bench; without it this bench serves until Ctrl-C
    #[arg(value_parser = parse_host)]
    to: Option<SocketAddr>,
    /// Address and port to serve on
    #[arg(long, value_name = "ADDRESS:PORT", default_value_t = any_address(), conflicts_with = "to")]
    listen: SocketAddr,
    /// Duration of the test, 0.1 s to an hour
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_duration, requires = "to")]
    time: Time,
    /// Amount to send instead of a duration, such as 500MB
    #[arg(long, value_name = "SIZE", requires = "to", conflicts_with = "time", value_parser = parse_size)]
    bytes: Option<Bytes>,
    /// Number of parallel connections, 1 to 64
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64), requires = "to")]
    streams: u16,
    /// Send from the server to the client
    #[arg(long, requires = "to")]
    reverse: bool,
    /// Also report each interval of this length, at least 100ms
    #[arg(long, value_name = "TIME", value_parser = parse_duration, requires = "to")]
    interval: Option<Time>,
    #[command(flatten)]
    port: Port,
    /// Print the result as one JSON object
    #[arg(long)]
    json: bool,
}

/// Options of the connections of a port.
#[derive(Debug, clap::Args)]
struct Port {
    /// Maximum packet length in bytes with all headers, 576 to 65535. 1500 suits Ethernet; packets are shorter where
    /// the path carries less
    #[arg(long, value_name = "BYTES", default_value_t = 1500, value_parser = clap::value_parser!(u32).range(576..=65_535))]
    mss: u32,
    /// Window in packets, 32 to 1,048,576: packets in flight or buffered at either end. 32768 packets of 1500 bytes
    /// carry 1 Gbit/s over 380 ms and take up to 48 MB
    #[arg(long, value_name = "PACKETS", default_value_t = 32_768, value_parser = clap::value_parser!(u32).range(32..=1 << 20))]
    window: u32,
    /// Congestion control of the data that this end sends (receive sends none): bbr for every path, above all those
    /// with loss that is not from congestion. native is UDT's own, for links shared with other UDT programs
    #[arg(long, value_name = "NAME", value_enum, default_value_t)]
    cc: UdtCongestionControl,
    /// Connect timeout, 1s to 1h
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_connect_timeout)]
    connect_timeout: Time,
    /// Idle timeout: a connection without packets for this time fails, 2s to 1h
    #[arg(long, value_name = "TIME", default_value = "45s", value_parser = parse_idle_timeout)]
    idle_timeout: Time,
}

impl Args {
    /// Returns the configuration. The parser has already refused invalid values.
    pub(super) fn config(self) -> config::Config {
        match self.command {
            Command::Send(args) => config::Config::Send(args.config()),
            Command::Receive(args) => config::Config::Receive(args.config()),
            Command::Bench(args) => args.config(),
        }
    }
}

impl SendArgs {
    fn config(self) -> config::SendConfig {
        config::SendConfig {
            file: self.file,
            to: self.to,
            port: self.port.config(),
            json: self.json,
        }
    }
}

impl ReceiveArgs {
    fn config(self) -> config::ReceiveConfig {
        config::ReceiveConfig {
            file: self.file,
            listen: self.listen,
            port: self.port.config(),
            json: self.json,
        }
    }
}

impl BenchArgs {
    fn config(self) -> config::Config {
        let port = self.port.config();
        match self.to {
            None => config::Config::Serve(config::ServeConfig {
                listen: self.listen,
                port,
            }),
            Some(to) => config::Config::Bench(config::BenchConfig {
                to,
                time: self.time,
                bytes: self.bytes,
                streams: self.streams,
                reverse: self.reverse,
                interval: self.interval,
                port,
                json: self.json,
            }),
        }
    }
}

impl Port {
    fn config(self) -> config::Port {
        config::Port {
            udt: longhaul_udt::Config {
                mss: self.mss,
                send_packets: self.window,
                receive_packets: self.window,
                connect_timeout: self.connect_timeout,
                idle_timeout: self.idle_timeout,
            },
            control: self.cc,
        }
    }
}

impl ValueEnum for UdtCongestionControl {
    fn value_variants<'a>() -> &'a [Self] {
        &[Self::Native, Self::Bbr]
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        let (name, help) = match self {
            Self::Native => ("native", "UDT's own"),
            Self::Bbr => (
                "bbr",
                "BBR, for every path, above all those with loss that is not from congestion",
            ),
        };
        Some(PossibleValue::new(name).help(help))
    }
}

fn any_address() -> SocketAddr {
    (Ipv6Addr::UNSPECIFIED, DEFAULT_PORT).into()
}

fn parse_host(text: &str) -> Result<SocketAddr, String> {
    let addresses = text.to_socket_addrs();
    let found = addresses.or_else(|_| (text, DEFAULT_PORT).to_socket_addrs());
    let mut found = found.map_err(|error| format!("{error} (want HOST or HOST:PORT)"))?;
    match found.next() {
        Some(address) if address.port() == 0 => Err("port 0 is not valid".to_owned()),
        Some(address) => Ok(address),
        None => Err("the host has no address".to_owned()),
    }
}

fn parse_size(text: &str) -> Result<Bytes, String> {
    let bytes: Bytes = text.parse().map_err(|error| format!("{error}"))?;
    match bytes.get() {
        0 => Err("want a size above 0, such as 500MB".to_owned()),
        _ => Ok(bytes),
    }
}

fn parse_duration(text: &str) -> Result<Time, String> {
    parse_time(text, Time::from_millis(100), "100ms")
}

fn parse_connect_timeout(text: &str) -> Result<Time, String> {
    parse_time(text, Time::from_secs(1), "1s")
}

fn parse_idle_timeout(text: &str) -> Result<Time, String> {
    parse_time(text, Time::from_secs(2), "2s")
}

/// Parses a time between a minimum and an hour.
fn parse_time(text: &str, time_min: Time, min_text: &str) -> Result<Time, String> {
    let time: Time = text.parse().map_err(|error| format!("{error}"))?;
    let is_valid = (time_min..=Time::from_secs(3600)).contains(&time);
    is_valid
        .then_some(time)
        .ok_or_else(|| format!("want {min_text} to 1h"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_have_the_default_port() {
        let address = |text: &str| parse_host(text).map(|address| address.to_string());
        assert_eq!(address("10.0.0.1").unwrap(), "10.0.0.1:9000");
        assert_eq!(address("10.0.0.1:7").unwrap(), "10.0.0.1:7");
        assert_eq!(address("::1").unwrap(), "[::1]:9000");
        assert_eq!(address("[::1]:7").unwrap(), "[::1]:7");
        assert!(address("no such host").is_err());
    }
}
