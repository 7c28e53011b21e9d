// SPDX-License-Identifier: MIT OR Apache-2.0
//! The command lines of `longhaul copy`, `longhaul copy verify` and `longhaul copy jobs`, as typed.

use super::{
    patterns::Patterns,
    preserve::PreserveArgs,
    values::{
        DistributedSide, Switch, Transport, parse_extent, parse_lease_time, parse_limit,
        parse_silence,
    },
};
use crate::{
    copy::{
        config::{Config, all_local},
        location::Location,
    },
    protocol::options::{Options, Pace, Ports, Streams},
};
use anyhow::{Context as _, Result};
use longhaul_command::exit::Refusal;
use longhaul_store::tree::{origin::Origin, scan::means_contents};
use longhaul_transport::port::Control;
use longhaul_units::{BitRate, Bytes, Time};
use sha2::{Digest as _, Sha256};
use std::{
    ffi::OsString,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

/// Streams within one machine: a thread at either end each, and no path to fill.
const STREAMS_LOCAL: u16 = 4;

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
pub(crate) enum Command {
    /// Read what was copied into a directory, and compare it with the hashes kept there; the source is not needed
    Verify(Verify),
    /// List the copies that movers share through a database
    Jobs(Jobs),
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
    pub(crate) command: Option<Command>,

    /// What to copy, and last where to
    #[arg(value_name = "PLACE", required_unless_present = "end", num_args = 1..)]
    places: Vec<OsString>,

    /// Connections that carry data, 1 to 256, or auto: as many as make it faster, 4 to 64; each costs either end 4 MiB and
    /// its socket's buffers
    #[arg(long, value_name = "N", default_value = "auto")]
    streams: Streams,

    /// Space packets evenly: auto (by the window and the round trip), off, or at most this rate in all
    #[arg(long, value_name = "RATE", default_value = "auto")]
    pace: Pace,

    /// Congestion control of the connections that carry data, as bbr or lh_hstcp [default: the sending host's]; with
    /// --transport udt native or bbr [default: bbr]
    #[arg(long, value_name = "NAME")]
    cc: Option<String>,

    /// What connections that carry data go over: tcp, or udt where the hosts' TCP can't fill a long path (UDP of the
    /// same port; always paced; up to 48 MB at either end for each)
    #[arg(
        long,
        value_name = "PROTOCOL",
        default_value = "tcp",
        hide_possible_values = true
    )]
    transport: Transport,

    /// Send at most this rate, shared with all copies of this user from this host that have a limit; 100kbit at the least
    #[arg(long, value_name = "RATE", value_parser = parse_limit)]
    limit: Option<BitRate>,

    /// Encrypt the data: on, or off where the network is trusted. Both ends are authenticated and all else is encrypted
    /// either way [default: on; off from here to here]
    #[arg(long, value_name = "SWITCH", hide_possible_values = true)]
    encrypt: Option<Switch>,

    /// Hash the data, so that damage on its way is found and `verify` can look later: on, or off where both ends are
    /// trusted more than the processor is fast
    #[arg(
        long,
        value_name = "SWITCH",
        default_value = "on",
        hide_possible_values = true
    )]
    hash: Switch,

    /// Give a connection up when the other end has not answered for so long, 1s to 1h; it is opened anew
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_silence)]
    silence: u32,
    /// Only say what would be made, changed and removed at the target
    #[arg(long, short = 'n')]
    dry_run: bool,

    /// Compare files of one size by their contents, which both sides read, instead of by their times
    #[arg(long)]
    checksum: bool,

    /// Remove below the copied directories what the source does not have
    #[arg(long)]
    delete: bool,

    /// Leave files alone that are newer at the target
    #[arg(long)]
    update: bool,

    /// Leave out what is in directories on which another file system is mounted
    #[arg(long, short = 'x')]
    one_file_system: bool,

    #[command(flatten)]
    patterns: Patterns,

    #[command(flatten)]
    preserved: PreserveArgs,

    /// Ports for data on the side that is connected to [default: any]
    #[arg(long, value_name = "FIRST-LAST")]
    ports: Option<Ports>,

    /// What reaches the other host: a program and its options, divided at spaces
    #[arg(
        long,
        value_name = "COMMAND",
        default_value = "ssh -o ServerAliveInterval=15"
    )]
    ssh: String,

    /// longhaul on the other host
    #[arg(long, value_name = "PATH", default_value = "longhaul")]
    remote_program: String,

    /// The token for longhaul://SITE, first in this file [default: the environment's LONGHAUL_TOKEN, or
    /// ~/.config/longhaul/sites.toml]
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,

    /// Share the work with other movers through this PostgreSQL database, postgresql://USER@HOST/NAME, or @FILE whose first line
    /// says so: hosts of one side, a1,a2:PATH, and other processes with the same command. DST is a directory then
    #[arg(long, value_name = "URL", conflicts_with_all = ["dry_run", "checksum"])]
    leases: Option<String>,

    /// Pairs of a source and a target at work at the same time, 1 to 64, over the hosts in turn [default: as many as the side
    /// with more hosts has]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=64), requires = "leases")]
    movers: Option<u8>,

    /// Hosts before a path, as a1,a2:PATH, have no file system in common: each has a share of what is there, on disks of its own. target
    /// spreads what is copied over them, large files in stripes; source brings it together again; both copies each share to the host of
    /// the same place in the other list. DST is a directory then
    #[arg(long, value_name = "SIDE", hide_possible_values = true, conflicts_with_all = ["leases", "dry_run", "checksum"])]
    apart: Option<DistributedSide>,

    /// Bytes of a large file that lie together on one host, with --apart target: 16MB to 64GB [default: a 1024th of a file, 64 MiB to
    /// 64 GiB]
    #[arg(long, value_name = "SIZE", value_parser = parse_extent, requires = "apart")]
    stripe: Option<Bytes>,

    /// What one mover takes at a time: 16MB to 64GB [default: a 64th of a file, 1 GiB to 64 GiB]
    #[arg(long, value_name = "SIZE", value_parser = parse_extent, requires = "leases")]
    extent: Option<Bytes>,

    /// How long after its last word a mover's work goes to others, 2s to 1h
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_lease_time, requires = "leases")]
    lease_time: Time,

    /// Print one JSON object about the copy at its end
    #[arg(long)]
    json: bool,

    /// With --json: one a second while it goes on, too, {"progress": …}
    #[arg(long, requires = "json")]
    progress: bool,

    /// Say nothing but what goes wrong
    #[arg(long, short)]
    quiet: bool,

    /// Be one end of a copy, for whoever speaks on standard input
    #[arg(long, hide = true)]
    pub(crate) end: bool,

    /// End when standard input does: whoever started it is gone
    #[arg(long, hide = true)]
    pub(crate) attended: bool,

    /// Hear first what may be touched
    #[arg(long, hide = true, requires = "end")]
    pub(crate) confined: bool,
}

impl Args {
    /// What stands after the check.
    pub(crate) fn config(&self) -> Result<Config> {
        self.check_transport().map_err(Refusal::usage)?;
        self.check_places().map_err(Refusal::usage)?;
        let places = self.places.iter().map(|text| Location::parse_list(text));
        let mut sources: Vec<Vec<Location>> = places.collect::<Result<_>>()?;
        let target = sources.pop().context("no target")?;
        let config = Config {
            options: self.options(&sources, &target),
            sources,
            target,
            ports: self.ports,
            ssh: self.ssh.clone(),
            remote_program: self.remote_program.clone(),
            token_file: self.token_file.clone(),
            leases: self.leases.clone(),
            movers: self.movers,
            distributed: self.apart.map(Into::into),
            stripe: self.stripe,
            extent: self.extent,
            lease_time: self.lease_time,
            json: self.json,
            progress: self.progress,
            quiet: self.quiet,
        };
        config.check()?;
        Ok(config)
    }

    /// What both ends are told.
    fn options(&self, sources: &[Vec<Location>], target: &[Location]) -> Options {
        let stays_here = all_local(sources, target);
        // What a site sends is somebody else's, unless the user says otherwise.
        let of_site = sources
            .iter()
            .flatten()
            .any(|place| place.site_address().is_some());
        Options {
            streams: match self.streams {
                // Nothing goes over them.
                _ if self.dry_run => Streams::Exactly(1),
                Streams::Auto if stays_here => Streams::Exactly(STREAMS_LOCAL),
                streams => streams,
            },
            pace: self.pace,
            congestion_control: self.cc.clone(),
            transport: self.transport.into(),
            encrypt: self
                .encrypt
                .unwrap_or(match stays_here {
                    true => Switch::Off,
                    false => Switch::On,
                })
                .into(),
            hash: self.hash.into(),
            limit: self.limit.map(BitRate::bits),
            silence: self.silence,
            dry_run: self.dry_run,
            checksum: self.checksum,
            delete: self.delete,
            update: self.update,
            one_file_system: self.one_file_system,
            rules: self.patterns.rules.clone(),
            preserve: self.preserved.preserve(of_site).into(),
            into_directory: self.is_into_directory(sources, target),
            origin: origin_id(sources),
        }
    }

    /// With several always: what one of them makes must not change what the next one means.
    fn is_into_directory(&self, sources: &[Vec<Location>], target: &[Location]) -> bool {
        let slash = |place: &Location| place.path.as_bytes().ends_with(b"/");
        let contents = |place: &Location| means_contents(Path::new(&place.path));
        sources.len() > 1
            || self.leases.is_some()
            || self.apart.is_some()
            || target.iter().any(slash)
            || sources.iter().flatten().any(contents)
    }

    /// There is a source and a target, and no command behind options, where clap takes it for a place.
    fn check_places(&self) -> Result<(), String> {
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
    fn check_transport(&self) -> Result<(), &'static str> {
        match (self.transport, self.cc.as_deref(), self.pace) {
            (Transport::Tcp, ..) => Ok(()),
            (_, Some(cc), ..) if Control::named(cc).is_none() => {
                Err("--cc: with --transport udt there are native and bbr")
            }
            (_, _, Pace::Auto) => Ok(()),
            _ => Err("--transport udt has a pace of its own: --limit bounds it, --pace does not"),
        }
    }
}

/// The same for the same command, from wherever on this machine.
fn origin_id(sources: &[Vec<Location>]) -> Origin {
    let shown = |place: &Location| match &place.host {
        Some(host) => format!("{host} {:?}", place.path),
        None => format!("{:?}", std::path::absolute(&place.path).ok()),
    };
    let sources = sources.iter().flatten().map(shown);
    Sha256::digest(sources.collect::<Vec<_>>().join("\n")).into()
}

const VERIFY_EXAMPLES: &str = "\
Examples:
  longhaul copy verify /srv/data
      each file that differs, is missing, or is there without a hash
  longhaul copy verify --json .
      the same as JSON lines, the last with the totals";

/// Reads what was copied into a directory, and compares it with the hashes kept there.
///
/// Every CPU reads. Exit code 1 if a file differs, is missing or can't be read. What no copy brought, or one with --hash
/// off, has no hash: it is named, and changes no exit code.
#[derive(Debug, clap::Args)]
#[command(after_help = VERIFY_EXAMPLES)]
pub(crate) struct Verify {
    /// What was copied, or a directory of it: the nearest .longhaul-manifest, here or further up, that knows something of it counts
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,

    /// Print JSON lines: one for each finding, the last with the totals
    #[arg(long)]
    pub(crate) json: bool,
}

const JOBS_EXAMPLES: &str = "\
Examples:
  longhaul copy jobs --leases postgresql://longhaul@db/longhaul
      which copies movers share there, how far they are, and who is at them
  longhaul copy jobs --leases @/etc/longhaul/leases --forget 5f0c2a91
      one that nobody will end: its movers stop, what has arrived stays";

/// Lists the copies that movers share through a database.
#[derive(Debug, clap::Args)]
#[command(after_help = JOBS_EXAMPLES)]
pub(crate) struct Jobs {
    /// The database, postgresql://USER@HOST/NAME, or @FILE whose first line says so
    #[arg(long, value_name = "URL")]
    pub(crate) leases: String,

    /// Remove this one, by its number in the list
    #[arg(long, value_name = "NUMBER")]
    pub(crate) forget: Option<String>,

    /// Print JSON objects, one a line
    #[arg(long)]
    pub(crate) json: bool,
}
