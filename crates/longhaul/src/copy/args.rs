// SPDX-License-Identifier: MIT OR Apache-2.0
//! The command line of `longhaul copy`, as typed.

use serde::{Deserialize, Serialize};
use std::{ffi::OsString, str::FromStr};

const EXAMPLES: &str = "\
Examples:
  longhaul copy data/ far:/srv/data
      what is in data goes below /srv/data on the host far; again after an interruption, it goes on where it was
  longhaul copy far:run42.tar .
      from there to here
  longhaul copy --streams 16 --ports 7000-7100 disk.img far:/images/
      one file over 16 connections, to a port that the firewall lets pass";

/// Copies files over many connections at once, and goes on where an interrupted copy was.
///
/// Either side may be HOST:PATH, which ssh reaches and where longhaul is installed. SRC copies the thing itself under its
/// name, SRC/ what is in it. Whatever is written is verified by its BLAKE3 hash, and durable before it counts.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES, override_usage = "longhaul copy [OPTIONS] SRC... DST")]
pub(crate) struct Args {
    /// What to copy, and last where to
    #[arg(value_name = "PLACE", required_unless_present = "end", num_args = 2..)]
    pub(super) places: Vec<OsString>,

    /// Connections that carry data, 1 to 256; each costs either end 4 MiB and its socket's buffers
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(super) streams: u16,

    /// Who carries what: steal (whoever has room takes the next block) or none (block b on stream b mod N)
    #[arg(long, value_name = "WAY", default_value = "steal")]
    pub(super) balance: Balance,

    /// Remove below the copied directories what the source does not have
    #[arg(long)]
    pub(super) delete: bool,

    /// Leave files alone that are newer at the target
    #[arg(long)]
    pub(super) update: bool,

    /// Leave out what matches, in the syntax of .gitignore; repeatable
    #[arg(long, value_name = "PATTERN")]
    pub(super) exclude: Vec<String>,

    /// Copy what matches even if it is excluded; repeatable
    #[arg(long, value_name = "PATTERN")]
    pub(super) include: Vec<String>,

    /// Ports for data on the side that is connected to [default: any]
    #[arg(long, value_name = "FIRST-LAST")]
    pub(super) ports: Option<Ports>,

    /// What reaches the other host: a program and its options, divided at spaces
    #[arg(
        long,
        value_name = "COMMAND",
        default_value = "ssh -o ServerAliveInterval=15"
    )]
    pub(super) ssh: String,

    /// longhaul on the other host
    #[arg(long, value_name = "PATH", default_value = "longhaul")]
    pub(super) remote_program: String,

    /// Print one JSON object about the copy at its end
    #[arg(long)]
    pub(super) json: bool,

    /// Be one end of a copy, for whoever speaks on standard input
    #[arg(long, hide = true)]
    pub(super) end: bool,
}

/// How blocks are divided among streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Balance {
    Steal,
    None,
}

impl FromStr for Balance {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "steal" => Ok(Self::Steal),
            "none" => Ok(Self::None),
            _ => Err("want steal or none".to_owned()),
        }
    }
}

/// Ports, the first and the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Ports {
    pub(super) first: u16,
    pub(super) last: u16,
}

impl FromStr for Ports {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let port = |text: &str| text.parse().ok().filter(|port| *port > 0);
        match (port(first), port(last)) {
            (Some(first), Some(last)) if first <= last => Ok(Self { first, last }),
            _ => Err(
                "want a port or two with a hyphen between, 1 to 65535, the smaller first"
                    .to_owned(),
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_one_or_a_range() {
        let ports = |text: &str| Ports::from_str(text).ok().map(|p| (p.first, p.last));
        assert_eq!(ports("7000"), Some((7000, 7000)));
        assert_eq!(ports("7000-7100"), Some((7000, 7100)));
        for text in ["0", "7100-7000", "70000", "a-b", ""] {
            assert_eq!(ports(text), None, "{text}");
        }
    }
}
