// SPDX-License-Identifier: MIT OR Apache-2.0
//! Command lines of `longhaul copy`, `longhaul copy verify` and `longhaul copy jobs`.

use super::{
    patterns::Patterns,
    preserve::PreserveArgs,
    values::{
        DistributedSide, Switch, Transport, parse_command, parse_extent, parse_idle_timeout,
        parse_lease_time, parse_limit, parse_modify_window, parse_trash,
    },
};
use crate::{
    copy::{
        config::{Config, WorkerConfig, all_local},
        location::Location,
    },
    protocol::options::{DeletionLimit, Options, Pacing, Ports, Streams},
};
use anyhow::{Context as _, Result};
use longhaul_command::exit::Refusal;
use longhaul_store::tree::{origin::SourceId, scan::is_contents_only};
use longhaul_transport::port::UdtCongestionControl;
use longhaul_units::{BitRate, Bytes, Time};
use sha2::{Digest as _, Sha256};
use std::{
    ffi::OsString,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    time::Duration,
};

/// Number of streams within one machine. Each costs a thread at both endpoints, and there is no long path to fill.
const STREAMS_LOCAL: u16 = 4;

const EXAMPLES: &str = "\
Examples:
  longhaul copy data/ far:/srv/data
      the contents of data, to /srv/data on the host far; run again, it resumes where it stopped
  longhaul copy far:run42.tar .
      from the host far to this directory
  longhaul copy --streams 16 --ports 7000-7100 disk.img far:/images/
      one file over 16 connections, to ports that the firewall allows
  longhaul copy longhaul://near/data/ longhaul://far/data
      between two hosts that run `longhaul site`, controlled from here; the data goes directly
  longhaul copy --dry-run --delete tree/ far:/mirror/
      list what would be created, changed and removed
  longhaul copy --leases postgresql://longhaul@db/longhaul a1,a2:/data/run42 b1,b2:/archive
      two pairs of hosts with a shared file system on each side divide the work
  longhaul copy --distributed target data/ b1,b2,b3:/scratch/data
      distribute over three hosts with disks of their own; to gather it:
      longhaul copy --distributed source b1,b2,b3:/scratch/data/ DIR
  longhaul copy verify /srv/data
      check that all files are unchanged since the copy";

/// Subcommand of `longhaul copy`.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Compare the files of a copied directory with their recorded hashes; the source is not needed
    Verify(Verify),
    /// List the copies whose work is shared through a database
    Jobs(Jobs),
}

/// Copies files over many connections at once, and resumes an interrupted copy.
///
/// Either side may be HOST:PATH, reached by ssh with longhaul installed there, or longhaul://SITE/EXPORT/PATH. SRC copies
/// the file or directory itself under its name, SRC/ copies the contents of a directory. All data is verified by its
/// BLAKE3 hash, and counts as copied when it is durable.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES, override_usage = "longhaul copy [OPTIONS] SRC... DST\n       longhaul copy verify [OPTIONS] DIR\n       longhaul copy jobs --leases URL")]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct Args {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,

    /// Two or more locations: the sources, and the target last. Each is PATH, HOST:PATH (over ssh) or
    /// longhaul://SITE/EXPORT/PATH. SRC/ copies the contents of a directory, SRC the directory itself
    // An endpoint has no locations: clap does not require an argument that conflicts with a present one.
    #[arg(value_name = "LOCATION", required = true, conflicts_with = "endpoint", num_args = 1..)]
    locations: Vec<OsString>,

    /// Number of data connections, 1 to 256, or auto: 4 to 64, as many as make the copy faster. Each takes 4 MiB and
    /// socket buffers at both endpoints
    #[arg(long, value_name = "N", default_value = "auto")]
    streams: Streams,

    /// Pacing of packets: auto (by the window and the round-trip time), off, or a total rate
    #[arg(long, value_name = "RATE", default_value = "auto")]
    pacing: Pacing,

    /// Congestion control of the data connections, such as bbr or lh_hstcp [default: the sending host's]. With
    /// --transport udt: native or bbr [default: bbr]
    #[arg(long, value_name = "NAME")]
    cc: Option<String>,

    /// Transport of the data connections: tcp, or udt if the hosts' TCP cannot fill a long path (UDP on the same port; always
    /// paced; up to 48 MB at each endpoint for each connection)
    #[arg(
        long,
        value_name = "PROTOCOL",
        default_value = "tcp",
        hide_possible_values = true
    )]
    transport: Transport,

    /// Maximum sending rate, 100kbit or more. All copies of this user from this host that set --limit share it:
    /// together they send no faster
    #[arg(long, value_name = "RATE", value_parser = parse_limit)]
    limit: Option<BitRate>,

    /// Encrypt the data: on, or off if the network is trusted. Authentication and control messages are always encrypted
    /// [default: on; off for a local copy]
    #[arg(long, value_name = "SWITCH", hide_possible_values = true)]
    encrypt: Option<Switch>,

    /// Hash the data, to detect damage in transit and for a later `verify`: on, or off to save CPU time if both hosts are
    /// trusted
    #[arg(
        long,
        value_name = "SWITCH",
        default_value = "on",
        hide_possible_values = true
    )]
    hash: Switch,

    /// Close a connection without an answer for this time, 1s to 1h, and open it again
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_idle_timeout)]
    idle_timeout: u32,

    /// Only print what would be created, changed and removed at the target
    #[arg(long, short = 'n')]
    dry_run: bool,

    /// Compare files of the same size by contents instead of times; both sides read them
    #[arg(long)]
    checksum: bool,

    /// Send changed files whole. Otherwise both sides read a changed file of more than 4 MiB, and only its blocks that differ
    /// are sent [default: whole for a local copy]
    #[arg(long, short = 'W')]
    whole_file: bool,

    /// Remove files and directories that the source does not have from the copied directories at the target
    #[arg(long)]
    delete: bool,

    /// Most entries that --delete may remove: a number, or a share of those in the copied directories, as 20%. If more would go,
    /// nothing is changed [default: all that is no likely accident. Refused are an empty source, more than half of the entries
    /// if they are more than ten, and all of two or more]
    #[arg(long, value_name = "N|N%", requires = "delete")]
    max_delete: Option<DeletionLimit>,

    /// Keep what --delete removes for this long, in .longhaul-trash at the target
    #[arg(long, value_name = "TIME", requires = "delete", value_parser = parse_trash)]
    trash: Option<Time>,

    /// Skip files that are newer at the target
    #[arg(long)]
    update: bool,

    /// Seconds by which modification times may differ and still be the same [default: 2 where the target is FAT, else 0; units
    /// of up to a second are found by themselves]
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true, value_parser = parse_modify_window)]
    modify_window: Option<u32>,

    /// Copy each name of a file with several as a file of its own, for a target without hard links
    #[arg(long)]
    no_hard_links: bool,

    /// Stay on the source's file system: leave out the contents of mount points
    #[arg(long, short = 'x')]
    one_file_system: bool,

    #[command(flatten)]
    patterns: Patterns,

    #[command(flatten)]
    preserved: PreserveArgs,

    /// Ports for data connections, on the side that accepts them [default: any]
    #[arg(long, value_name = "FIRST-LAST")]
    ports: Option<Ports>,

    /// Command to reach the other host: a program and its options, with quotes as in a shell
    #[arg(
        long,
        value_name = "COMMAND",
        default_value = "ssh -o ServerAliveInterval=15"
    )]
    ssh: String,

    /// Path of longhaul on the other host
    #[arg(long, value_name = "PATH", default_value = "longhaul")]
    remote_program: String,

    /// File with the token for longhaul://SITE as its first word [default: the environment's LONGHAUL_TOKEN, or
    /// ~/.config/longhaul/sites.toml]
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,

    /// Share the work among several hosts of a side (a1,a2:PATH), or several processes with the same command, through
    /// this PostgreSQL database. URL is postgresql://USER@HOST/NAME, or @FILE with the URL as its first line. DST is a
    /// directory then
    #[arg(long, value_name = "URL", conflicts_with_all = ["dry_run", "checksum"])]
    leases: Option<String>,

    /// Number of workers, 1 to 64. Each is a pair of source and target; hosts take turns [default: the larger number of
    /// hosts of a side]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=64), requires = "leases")]
    workers: Option<u8>,

    /// Copy to or from several hosts (a1,a2:PATH), each with a share on its own disks. target distributes entries over
    /// the target hosts, large files in stripes; source gathers them again; both copies each share to the host at the
    /// same position of the other list. DST is a directory then
    #[arg(long, value_name = "SIDE", hide_possible_values = true, conflicts_with_all = ["leases", "dry_run", "checksum"])]
    distributed: Option<DistributedSide>,

    /// Length of a stripe of a large file on one host, with --distributed target: 16MB to 64GB [default: a 1024th of a file, 64 MiB
    /// to 64 GiB]
    #[arg(long, value_name = "SIZE", value_parser = parse_extent, requires = "distributed")]
    stripe: Option<Bytes>,

    /// Size of an extent, the unit of work of a worker: 16MB to 64GB [default: a 64th of a file, 1 GiB to 64 GiB]
    #[arg(long, value_name = "SIZE", value_parser = parse_extent, requires = "leases")]
    extent: Option<Bytes>,

    /// Time without contact, 2s to 1h, after which others take over a worker's work
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_lease_time, requires = "leases")]
    lease_time: Time,

    /// Print one JSON object about the copy at its end
    #[arg(long)]
    json: bool,

    /// With --json: also print the progress once a second, {"progress": …}
    #[arg(long, requires = "json")]
    progress: bool,

    /// Print only errors
    #[arg(long, short)]
    quiet: bool,

    // The three hidden flags are for processes of longhaul. Their names stay: a host or a site with another version uses
    // them.
    /// Run as an endpoint of a copy, controlled over standard input
    #[arg(long = "end", hide = true)]
    pub(crate) endpoint: bool,

    /// Exit when standard input ends, because the parent process has exited
    #[arg(long = "attended", hide = true)]
    pub(crate) exit_at_stdin_eof: bool,

    /// Read the permitted scope of access first
    #[arg(long = "confined", hide = true, requires = "endpoint")]
    pub(crate) access_scope: bool,
}

impl Args {
    /// Checks the arguments, and returns the configuration.
    pub(crate) fn config(&self) -> Result<Config> {
        self.check_transport().map_err(Refusal::usage)?;
        self.check_locations().map_err(Refusal::usage)?;
        let locations = self.locations.iter().map(|text| Location::parse_list(text));
        let mut sources: Vec<Vec<Location>> = locations.collect::<Result<_>>()?;
        let target = sources.pop().context("no target")?;
        let config = Config {
            options: self.options(&sources, &target),
            sources,
            target,
            ports: self.ports,
            ssh: parse_command(&self.ssh).map_err(Refusal::usage)?,
            remote_program: self.remote_program.clone(),
            token_file: self.token_file.clone(),
            leases: self.leases.clone(),
            workers: WorkerConfig {
                count: self.workers,
                extent: self.extent,
                lease_time: self.lease_time,
            },
            distributed: self.distributed.map(Into::into),
            stripe: self.stripe,
            json: self.json,
            progress: self.progress,
            quiet: self.quiet,
        };
        config.check()?;
        Ok(config)
    }

    /// Returns the options for both endpoints.
    fn options(&self, sources: &[Vec<Location>], target: &[Location]) -> Options {
        let is_local = all_local(sources, target);
        // A site is another party, and not trusted unless the user says so.
        let from_site = sources
            .iter()
            .flatten()
            .any(|location| location.site_address().is_some());
        Options {
            streams: match self.streams {
                // A dry run sends no data.
                _ if self.dry_run => Streams::Exactly(1),
                Streams::Auto if is_local => Streams::Exactly(STREAMS_LOCAL),
                streams => streams,
            },
            pacing: self.pacing,
            congestion_control: self.cc.clone(),
            transport: self.transport.into(),
            encrypt: self
                .encrypt
                .unwrap_or(if is_local { Switch::Off } else { Switch::On })
                .into(),
            hash: self.hash.into(),
            limit: self.limit.map(BitRate::bits),
            idle_timeout_ms: self.idle_timeout,
            dry_run: self.dry_run,
            checksum: self.checksum,
            delete: self.delete,
            max_delete: self.max_delete.unwrap_or(DeletionLimit::NoAccident),
            whole_files: self.whole_file || is_local || self.hash == Switch::Off,
            trash_s: self.trash.map(|time| Duration::from(time).as_secs()),
            update: self.update,
            modify_window_s: self.modify_window,
            one_file_system: self.one_file_system,
            hard_links: !self.no_hard_links,
            rules: self.patterns.rules.clone(),
            preserve: self.preserved.preserve(from_site),
            into_directory: self.is_into_directory(sources, target),
            origin: origin_id(sources),
        }
    }

    /// Whether each source goes into a directory under its own name. Always for several sources: the result of the first must
    /// not change the meaning of the next.
    fn is_into_directory(&self, sources: &[Vec<Location>], target: &[Location]) -> bool {
        let slash = |location: &Location| location.path.as_bytes().ends_with(b"/");
        let contents = |location: &Location| is_contents_only(Path::new(&location.path));
        sources.len() > 1
            || self.leases.is_some()
            || self.distributed.is_some()
            || target.iter().any(slash)
            || sources.iter().flatten().any(contents)
    }

    /// Checks that there is a source and a target, and no subcommand after options, where clap takes it for a location.
    fn check_locations(&self) -> Result<(), String> {
        let first = self
            .locations
            .first()
            .and_then(|location| location.to_str());
        match first {
            Some(name @ ("jobs" | "verify")) => Err(format!(
                "{name} follows options: the subcommand is longhaul copy {name} OPTIONS, and a file of that name is ./{name}"
            )),
            Some(location) if self.locations.len() < 2 => Err(format!(
                "{location}: no target; want longhaul copy SRC... DST"
            )),
            _ => Ok(()),
        }
    }

    /// Checks the options of UDT, which has a rate control of its own and paces all packets.
    fn check_transport(&self) -> Result<(), &'static str> {
        match (self.transport, self.cc.as_deref(), self.pacing) {
            (Transport::Tcp, ..) => Ok(()),
            (_, Some(cc), ..) if UdtCongestionControl::from_name(cc).is_none() => {
                Err("--cc: --transport udt supports native and bbr")
            }
            (_, _, Pacing::Auto) => Ok(()),
            _ => Err(
                "--transport udt has a rate control of its own: use --limit to bound it, not --pacing",
            ),
        }
    }
}

/// Returns the identifier of the sources. It is the same for the same sources, from any directory of this machine.
fn origin_id(sources: &[Vec<Location>]) -> SourceId {
    let describe = |location: &Location| match &location.host {
        Some(host) => format!("{host} {:?}", location.path),
        None => format!("{:?}", std::path::absolute(&location.path).ok()),
    };
    let sources = sources.iter().flatten().map(describe);
    Sha256::digest(sources.collect::<Vec<_>>().join("\n")).into()
}

const VERIFY_EXAMPLES: &str = "\
Examples:
  longhaul copy verify /srv/data
      print each file that differs, is missing or has no recorded hash
  longhaul copy verify --json .
      the same as JSON lines; the last line has the totals";

/// Reads the copied files of a directory, and compares them with the recorded hashes.
///
/// All CPUs are used. The exit code is 1 if a file differs, is missing, unfinished or cannot be read. A file without a
/// recorded hash, as after --hash off, is printed as unknown, and does not change the exit code.
#[derive(Debug, clap::Args)]
#[command(after_help = VERIFY_EXAMPLES)]
pub(crate) struct Verify {
    /// Copied directory, or a directory in it. Its hashes are in the nearest .longhaul-manifest that lists it, there or
    /// in a parent directory
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,

    /// Print JSON lines: one for each finding, the last with the totals
    #[arg(long)]
    pub(crate) json: bool,
}

const JOBS_EXAMPLES: &str = "\
Examples:
  longhaul copy jobs --leases postgresql://longhaul@db/longhaul
      the copies that workers share there, their progress, and their workers
  longhaul copy jobs --leases @/etc/longhaul/leases --forget 5f0c2a91
      remove an abandoned copy: its workers stop, and the copied data stays";

/// Lists the copies that workers share through a database.
#[derive(Debug, clap::Args)]
#[command(after_help = JOBS_EXAMPLES)]
pub(crate) struct Jobs {
    /// PostgreSQL database: postgresql://USER@HOST/NAME, or @FILE with the URL as its first line
    #[arg(long, value_name = "URL")]
    pub(crate) leases: String,

    /// Remove the copy with this number in the list
    #[arg(long, value_name = "NUMBER")]
    pub(crate) forget: Option<String>,

    /// Print one JSON object per line
    #[arg(long)]
    pub(crate) json: bool,
}
