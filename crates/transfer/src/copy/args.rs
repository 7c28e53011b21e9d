// SPDX-License-Identifier: MIT OR Apache-2.0
//! The command line of `longhaul copy`, as typed.

use super::{patterns::Patterns, preserved::Preserved};
use crate::{
    protocol::options::{Pace, Ports, Streams, Switch, Transport},
    transport::carrier::udt_control,
};
use longhaul_units::{BitRate, Bytes, Time};
use std::{ffi::OsString, path::PathBuf, str::FromStr};

const EXAMPLES: &str = "\
Examples:
  longhaul copy data/ far:/srv/data
      what is in data goes below /srv/data on the host far; again after an interruption, it goes on where it was
  longhaul copy far:run42.tar .
      from there to here
  longhaul copy --streams 16 --ports 7000-7100 disk.img far:/images/
      one file over 16 connections, to a port that the firewall lets pass
  longhaul copy longhaul://near/data/ longhaul://far/data
      from site to site, which `longhaul site` runs there, at this machine's word; the data goes straight
  longhaul copy --dry-run --delete tree/ far:/mirror/
      what would be made, changed and removed there
  longhaul copy --leases postgresql://longhaul@db/longhaul a1,a2:/data/run42 b1,b2:/archive
      two pairs of hosts, which have the path in common, share the work
  longhaul copy --apart target data/ b1,b2,b3:/scratch/data
      spread over three hosts, which keep a share each on their own disks; --apart source b1,b2,b3:/scratch/data/ DIR gathers it
  longhaul copy verify /srv/data
      whether everything is still as it was copied";

#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    /// Read what was copied into a directory, and compare it with the hashes kept there; the source is not needed
    Verify(crate::copy::verify::Args),
    /// List the copies that movers share through a database
    Jobs(crate::copy::movers::jobs::Args),
}

/// Copies files over many connections at once, and goes on where an interrupted copy was.
///
/// Either side may be HOST:PATH, which ssh reaches and where longhaul is installed, or longhaul://SITE/EXPORT/PATH. SRC copies the thing itself under its
/// name, SRC/ what is in it. Whatever is written is verified by its BLAKE3 hash, and durable before it counts.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES, override_usage = "longhaul copy [OPTIONS] SRC... DST\n       longhaul copy verify [OPTIONS] DIR\n       longhaul copy jobs --leases URL")]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct Args {
    #[command(subcommand)]
    pub(super) command: Option<Command>,

    /// What to copy, and last where to
    #[arg(value_name = "PLACE", required_unless_present = "end", num_args = 1..)]
    pub(super) places: Vec<OsString>,

    /// Connections that carry data, 1 to 256, or auto: as many as make it faster, 4 to 64; each costs either end 4 MiB and
    /// its socket's buffers
    #[arg(long, value_name = "N", default_value = "auto")]
    pub(super) streams: Streams,

    /// Space packets evenly: auto (by the window and the round trip), off, or at most this rate in all
    #[arg(long, value_name = "RATE", default_value = "auto")]
    pub(super) pace: Pace,

    /// Congestion control of the connections that carry data, as bbr or lh_hstcp [default: the sending host's]; with
    /// --transport udt native or bbr [default: bbr]
    #[arg(long, value_name = "NAME")]
    pub(super) cc: Option<String>,

    /// What connections that carry data go over: tcp, or udt where the hosts' TCP can't fill a long path (UDP of the
    /// same port; always paced; up to 48 MB at either end for each)
    #[arg(long, value_name = "PROTOCOL", default_value = "tcp")]
    pub(super) transport: Transport,

    /// Send at most this rate, shared with all copies of this user from this host that have a limit; 100kbit at the least
    #[arg(long, value_name = "RATE", value_parser = limit)]
    pub(super) limit: Option<BitRate>,

    /// Encrypt the data: on, or off where the network is trusted. Both ends are authenticated and all else is encrypted
    /// either way [default: on; off from here to here]
    #[arg(long, value_name = "SWITCH")]
    pub(super) encrypt: Option<Switch>,

    /// Hash the data, so that damage on its way is found and `verify` can look later: on, or off where both ends are
    /// trusted more than the processor is fast
    #[arg(long, value_name = "SWITCH", default_value = "on")]
    pub(super) hash: Switch,

    /// Give a connection up when the other end has not answered for so long, 1s to 1h; it is opened anew
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = silence)]
    pub(super) silence: u32,
    /// Only say what would be made, changed and removed at the target
    #[arg(long, short = 'n')]
    pub(super) dry_run: bool,

    /// Compare files of one size by their contents, which both sides read, instead of by their times
    #[arg(long)]
    pub(super) checksum: bool,

    /// Remove below the copied directories what the source does not have
    #[arg(long)]
    pub(super) delete: bool,

    /// Leave files alone that are newer at the target
    #[arg(long)]
    pub(super) update: bool,

    /// Leave out what is in directories on which another file system is mounted
    #[arg(long, short = 'x')]
    pub(super) one_file_system: bool,

    #[command(flatten)]
    pub(super) patterns: Patterns,

    #[command(flatten)]
    pub(super) preserved: Preserved,

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

    /// The token for longhaul://SITE, first in this file [default: the environment's LONGHAUL_TOKEN, or
    /// ~/.config/longhaul/sites.toml]
    #[arg(long, value_name = "FILE")]
    pub(super) token_file: Option<PathBuf>,

    /// Share the work with other movers through this PostgreSQL database, postgresql://USER@HOST/NAME, or @FILE whose first line
    /// says so: hosts of one side, a1,a2:PATH, and other processes with the same command. DST is a directory then
    #[arg(long, value_name = "URL", conflicts_with_all = ["dry_run", "checksum"])]
    pub(super) leases: Option<String>,

    /// Pairs of a source and a target at work at the same time, 1 to 64, over the hosts in turn [default: as many as the side
    /// with more hosts has]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=64), requires = "leases")]
    pub(super) movers: Option<u8>,

    /// Hosts before a path, as a1,a2:PATH, have no file system in common: each has a share of what is there, on disks of its own. target
    /// spreads what is copied over them, large files in stripes; source brings it together again; both copies each share to the host of
    /// the same place in the other list. DST is a directory then
    #[arg(long, value_name = "SIDE", conflicts_with_all = ["leases", "dry_run", "checksum"])]
    pub(super) apart: Option<Apart>,

    /// Bytes of a large file that lie together on one host, with --apart target: 16MB to 64GB [default: a 1024th of a file, 64 MiB to
    /// 64 GiB]
    #[arg(long, value_name = "SIZE", value_parser = extent, requires = "apart")]
    pub(super) stripe: Option<Bytes>,

    /// What one mover takes at a time: 16MB to 64GB [default: a 64th of a file, 1 GiB to 64 GiB]
    #[arg(long, value_name = "SIZE", value_parser = extent, requires = "leases")]
    pub(super) extent: Option<Bytes>,

    /// How long after its last word a mover's work goes to others, 2s to 1h
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = lease_time, requires = "leases")]
    pub(super) lease_time: Time,

    /// Print one JSON object about the copy at its end
    #[arg(long)]
    pub(super) json: bool,

    /// With --json: one a second while it goes on, too, {"progress": …}
    #[arg(long, requires = "json")]
    pub(super) progress: bool,

    /// Say nothing but what goes wrong
    #[arg(long, short)]
    pub(super) quiet: bool,

    /// Be one end of a copy, for whoever speaks on standard input
    #[arg(long, hide = true)]
    pub(super) end: bool,

    /// End when standard input does: whoever started it is gone
    #[arg(long, hide = true)]
    pub(super) attended: bool,

    /// Hear first what may be touched
    #[arg(long, hide = true, requires = "end")]
    pub(super) confined: bool,
}

/// Which side's hosts keep a share each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Apart {
    Source,
    Target,
    Both,
}

impl FromStr for Apart {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "source" => Ok(Self::Source),
            "target" => Ok(Self::Target),
            "both" => Ok(Self::Both),
            _ => Err("want source, target or both".to_owned()),
        }
    }
}

impl Args {
    /// There is a source and a target, and no command behind options, where clap takes it for a place.
    pub(super) fn check_places(&self) -> Result<(), String> {
        let first = self.places.first().and_then(|place| place.to_str());
        match first {
            Some(name @ ("jobs" | "verify")) => Err(format!(
                "{name} stands behind options: the command is longhaul copy {name} OPTIONS, and a file of that name is ./{name}"
            )),
            Some(place) if self.places.len() < 2 => {
                Err(format!("{place}: no target; want longhaul copy SRC... DST"))
            }
            _ => Ok(()),
        }
    }

    /// UDT has a rate control of its own, which spaces all packets.
    pub(super) fn check_transport(&self) -> Result<(), &'static str> {
        match (self.transport, self.cc.as_deref(), self.pace) {
            (Transport::Tcp, ..) => Ok(()),
            (_, Some(cc), ..) if udt_control(cc).is_none() => {
                Err("--cc: with --transport udt there are native and bbr")
            }
            (_, _, Pace::Auto) => Ok(()),
            _ => Err("--transport udt has a pace of its own: --limit bounds it, --pace does not"),
        }
    }
}

impl FromStr for Transport {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "tcp" => Ok(Self::Tcp),
            "udt" => Ok(Self::Udt),
            _ => Err("want tcp or udt".to_owned()),
        }
    }
}

/// The most streams that may be asked for.
const STREAMS_MAX: u16 = 256;

impl FromStr for Streams {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let number = || text.parse().ok().filter(|n| (1..=STREAMS_MAX).contains(n));
        match text {
            "auto" => Ok(Self::Auto),
            _ => number()
                .map(Self::Exactly)
                .ok_or_else(|| format!("want auto or 1 to {STREAMS_MAX}")),
        }
    }
}

/// Below that a window of ten segments lasts seconds.
const PACE_MIN: u64 = 100_000;

impl FromStr for Pace {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "auto" => Ok(Self::Auto),
            "off" => Ok(Self::Off),
            _ => match text.parse::<BitRate>() {
                Ok(rate) if rate.bits() >= PACE_MIN => Ok(Self::Rate(rate.bits())),
                Ok(_) => Err("want auto, off or a rate of 100kbit or more, as 900mbit".to_owned()),
                Err(error) => Err(format!("{error}; want auto, off or a rate")),
            },
        }
    }
}

fn limit(text: &str) -> Result<BitRate, String> {
    let rate = text.parse::<BitRate>().map_err(|error| error.to_string())?;
    let rate = Some(rate).filter(|rate| rate.bits() >= PACE_MIN);
    rate.ok_or_else(|| "want a rate of 100kbit or more, as 500mbit".to_owned())
}

fn extent(text: &str) -> Result<Bytes, String> {
    let size = text.parse::<Bytes>().ok();
    let allowed = 16_000_000..=longhaul_scheduling::extents::EXTENT_MAX;
    let size = size.filter(|size| allowed.contains(&size.get()));
    size.ok_or_else(|| "want a size from 16MB to 64GiB, as 4GB".to_owned())
}

fn lease_time(text: &str) -> Result<Time, String> {
    let time = text.parse::<Time>().ok();
    let allowed = Time::from_secs(2)..=Time::from_secs(3600);
    let time = time.filter(|time| allowed.contains(time));
    time.ok_or_else(|| "want a time from 2s to 1h, as 30s".to_owned())
}

/// In milliseconds.
fn silence(text: &str) -> Result<u32, String> {
    let time = text.parse::<Time>().ok();
    let allowed = Time::from_secs(1)..=Time::from_secs(3600);
    let time = time.filter(|time| allowed.contains(time));
    let millis = time.and_then(|time| u32::try_from(time.as_nanos() / 1_000_000).ok());
    millis.ok_or_else(|| "want a time from 1s to 1h, as 20s".to_owned())
}

impl FromStr for Switch {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "on" => Ok(Self::On),
            "off" => Ok(Self::Off),
            _ => Err("want on or off".to_owned()),
        }
    }
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
    fn numbers_and_words_are_told_apart() {
        assert_eq!("auto".parse(), Ok(Streams::Auto));
        assert_eq!("256".parse(), Ok(Streams::Exactly(256)));
        assert!("0".parse::<Streams>().is_err() && "257".parse::<Streams>().is_err());
        assert_eq!("off".parse(), Ok(Pace::Off));
        assert_eq!("900mbit".parse(), Ok(Pace::Rate(900_000_000)));
        assert!("10kbit".parse::<Pace>().is_err() && "fast".parse::<Pace>().is_err());
    }

    #[test]
    fn silence_has_bounds() {
        assert_eq!(silence("1500ms"), Ok(1500));
        assert_eq!(silence("3600s"), Ok(3_600_000));
        for text in ["999ms", "3601s", "soon", ""] {
            assert!(silence(text).is_err(), "{text}");
        }
    }

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
