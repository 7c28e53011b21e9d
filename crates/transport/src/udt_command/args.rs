// SPDX-License-Identifier: MIT OR Apache-2.0
//! The command line of `longhaul udt`.

use crate::port::Control;
use longhaul_units::{Bytes, Time};
use std::{
    net::{Ipv6Addr, SocketAddr, ToSocketAddrs},
    path::PathBuf,
};

/// What libudt's own programs take, too.
const PORT: u16 = 9000;

const EXAMPLES: &str = "\
Examples:
  longhaul udt receive disk.img                       # here, port 9000
  longhaul udt send disk.img far.example.org          # there
  tar c data | longhaul udt send - far:9001           # standard input
  longhaul udt bench                                  # here: for anybody, until Ctrl-C
  longhaul udt bench far --time 30s --reverse --json  # there: what the path carries to here";

/// Arguments of `longhaul udt`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(subcommand)]
    pub(super) command: Command,
}

#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    /// Send a file, or standard input, to one who receives it
    Send(Send),
    /// Receive what one host sends into a file, or to standard output
    Receive(Receive),
    /// Measure what a path carries, from memory to memory
    Bench(Bench),
}

#[derive(Debug, clap::Args)]
pub(super) struct Send {
    /// What is sent; - is standard input
    pub(super) file: PathBuf,
    /// HOST or HOST:PORT, port 9000 if none is said
    #[arg(value_parser = host)]
    pub(super) to: SocketAddr,
    #[command(flatten)]
    pub(super) port: Port,
    /// One object about it at the end
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Debug, clap::Args)]
pub(super) struct Receive {
    /// Where it goes; - is standard output. It gets its name when all of it is there
    pub(super) file: PathBuf,
    /// Where it is received
    #[arg(long, value_name = "ADDRESS:PORT", default_value_t = everywhere())]
    pub(super) at: SocketAddr,
    #[command(flatten)]
    pub(super) port: Port,
    /// One object about it at the end
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Debug, clap::Args)]
pub(super) struct Bench {
    /// HOST or HOST:PORT of a bench that serves; without it this one does, until Ctrl-C
    #[arg(value_parser = host)]
    pub(super) to: Option<SocketAddr>,
    /// Where it serves
    #[arg(long, value_name = "ADDRESS:PORT", default_value_t = everywhere(), conflicts_with = "to")]
    pub(super) at: SocketAddr,
    /// How long it sends, 0.1 s to an hour
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration, requires = "to")]
    pub(super) time: Time,
    /// So much instead, as 500MB
    #[arg(long, value_name = "SIZE", requires = "to", conflicts_with = "time", value_parser = something)]
    pub(super) bytes: Option<Bytes>,
    /// Connections at a time, 1 to 64
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64), requires = "to")]
    pub(super) parallel: u16,
    /// From there to here
    #[arg(long, requires = "to")]
    pub(super) reverse: bool,
    /// Also what passed in each so much time, at least 100ms
    #[arg(long, value_name = "TIME", value_parser = duration, requires = "to")]
    pub(super) interval: Option<Time>,
    #[command(flatten)]
    pub(super) port: Port,
    /// One object about it at the end
    #[arg(long)]
    pub(super) json: bool,
}

/// What the connections of a port are like.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct Port {
    /// Bytes of the longest packet with all headers, 576 to 65535. 1500 suits Ethernet; where the path carries less, packets are shorter
    #[arg(long, value_name = "BYTES", default_value_t = 1500, value_parser = clap::value_parser!(u32).range(576..=65_535))]
    pub(super) mss: u32,
    /// Packets on their way or waiting at either end, 32 to 1,048,576: of 1500 bytes 32768 carry 1 Gbit/s over 380 ms and
    /// take 48 MB where they are used
    #[arg(long, value_name = "PACKETS", default_value_t = 32_768, value_parser = clap::value_parser!(u32).range(32..=1 << 20))]
    pub(super) window: u32,
    /// Who decides how fast this end sends: bbr suits every path, and those best that lose packets without a queue; native is
    /// UDT's own, for lines that others' UDT shares and to compare with that
    #[arg(long, value_name = "CONTROL", value_enum, default_value_t)]
    pub(super) control: Control,
    /// How long nobody may answer before connecting is given up, 1s to 1h
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = patience)]
    pub(super) patience: Time,
    /// How long nothing may be heard before a connection is given up, 2s to 1h
    #[arg(long, value_name = "TIME", default_value = "45s", value_parser = silence)]
    pub(super) silence: Time,
}

fn everywhere() -> SocketAddr {
    (Ipv6Addr::UNSPECIFIED, PORT).into()
}

fn host(text: &str) -> Result<SocketAddr, String> {
    let with_port = text.to_socket_addrs();
    let found = with_port.or_else(|_| (text, PORT).to_socket_addrs());
    let mut found = found.map_err(|error| format!("{error} (want HOST or HOST:PORT)"))?;
    match found.next() {
        Some(address) if address.port() == 0 => Err("nobody is at port 0".to_owned()),
        Some(address) => Ok(address),
        None => Err("it has no address".to_owned()),
    }
}

fn something(text: &str) -> Result<Bytes, String> {
    let bytes: Bytes = text.parse().map_err(|error| format!("{error}"))?;
    match bytes.get() {
        0 => Err("want a size above 0, as 500MB".to_owned()),
        _ => Ok(bytes),
    }
}

fn duration(text: &str) -> Result<Time, String> {
    within(text, Time::from_millis(100), "100ms")
}

fn patience(text: &str) -> Result<Time, String> {
    within(text, Time::from_secs(1), "1s")
}

fn silence(text: &str) -> Result<Time, String> {
    within(text, Time::from_secs(2), "2s")
}

/// From a least time to an hour.
fn within(text: &str, least: Time, shown: &str) -> Result<Time, String> {
    let time: Time = text.parse().map_err(|error| format!("{error}"))?;
    let right = (least..=Time::from_secs(3600)).contains(&time);
    right
        .then_some(time)
        .ok_or_else(|| format!("want {shown} to 1h"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_has_a_port_if_it_says_none() {
        let address = |text: &str| host(text).map(|address| address.to_string());
        assert_eq!(address("10.0.0.1").unwrap(), "10.0.0.1:9000");
        assert_eq!(address("10.0.0.1:7").unwrap(), "10.0.0.1:7");
        assert_eq!(address("::1").unwrap(), "[::1]:9000");
        assert_eq!(address("[::1]:7").unwrap(), "[::1]:7");
        assert!(address("no such host").is_err());
    }
}
