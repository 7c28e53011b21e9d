// SPDX-License-Identifier: MIT OR Apache-2.0
//! Command line of `longhaul link`.
#![allow(
    rustdoc::broken_intra_doc_links,
    reason = "help texts are printed unchanged"
)]

use crate::{
    capture::CaptureOptions,
    config::{self, Config, Endpoint, Link, file},
    counters::Direction,
};
use anyhow::Result;
use longhaul_command::exit::Refusal;
use longhaul_units::{Bytes, Time, WithInput};
use std::path::{Path, PathBuf};

const EXAMPLES: &str = "\
Examples:
  A 10 Gbit/s path with 26 ms RTT between two existing namespaces:
    longhaul link --left client:wan0:10.9.0.1/30 --right server:wan0:10.9.0.2/30 \\
        --delay 13ms --rate 10gbit --queue 1bdp
  Loss in one direction only, and a path switch after 30 s:
    longhaul link --left client:wan0:10.9.0.1/30 --right server:wan0:10.9.0.2/30 \\
        --delay 19ms --rate 1gbit --backward 'loss=0.1%' --at '30s: delay 40ms'
  Several links from a file:
    longhaul link --config path.toml
  With a record of every segment at both ends:
    longhaul link … --capture wan.pcapng
  A change of the running link that was started with --name wan:
    longhaul link set wan delay 40ms
  Back to the default; then print the current settings:
    longhaul link set wan loss default; longhaul link show wan

Settings apply to both directions; --forward (left to right) and --backward override them.
Jitter keeps the order of segments unless it says reorder, which lengthens the delays of close segments unless it
varies slowly (correlation). At an unlimited rate there is no queue.";

/// Arguments of `longhaul link`.
#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true, after_help = EXAMPLES)]
pub struct Args {
    #[command(subcommand)]
    pub(super) command: Option<Command>,
    #[command(flatten)]
    pub(super) start: StartArgs,
}

#[derive(clap::Subcommand)]
pub(super) enum Command {
    /// Change a running link
    Set {
        /// Name of the link, as given by --name
        name: String,
        /// Setting to change, named as its flag without --: delay, rate, loss …
        key: String,
        /// New value, or default
        #[arg(allow_hyphen_values = true)]
        value: String,
        /// Change only this direction [default: both]
        #[arg(long, value_enum)]
        direction: Option<DirectionArg>,
    },
    /// Print the current settings and the counters of a running link
    Show {
        /// Name of the link, as given by --name
        name: String,
        /// Print one JSON object per direction
        #[arg(long)]
        json: bool,
    },
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum DirectionArg {
    /// Left to right
    Forward,
    /// Right to left
    Backward,
}

impl DirectionArg {
    pub(super) fn direction(self) -> Direction {
        match self {
            Self::Forward => Direction::Forward,
            Self::Backward => Direction::Backward,
        }
    }
}

#[derive(clap::Args)]
pub(super) struct StartArgs {
    /// Left end: [NAMESPACE:]INTERFACE:ADDRESS/PREFIX[,ADDRESS/PREFIX]
    #[arg(long, value_name = "END")]
    pub(super) left: Option<String>,
    /// Right end, in the same form
    #[arg(long, value_name = "END")]
    pub(super) right: Option<String>,
    /// TOML file with any number of links, instead of the flags
    #[arg(long, value_name = "FILE", conflicts_with_all = ["left", "right", "name", "link_config"])]
    pub(super) config: Option<PathBuf>,
    /// Name in records, and for `longhaul link set` and `show`
    #[arg(long, default_value = "link")]
    pub(super) name: String,
    #[command(flatten)]
    pub(super) link_config: LinkConfigArgs,
    /// Largest packet in bytes, 1280 to 9000
    #[arg(long, default_value_t = 1500)]
    pub(super) mtu: u32,
    /// Delivery of segments: per-packet (each at its own time) or batched[:QUANTUM] (those due within QUANTUM together)
    #[arg(long, value_name = "DELIVERY", default_value = "batched")]
    pub(super) delivery: String,
    /// Disable super-packets (GSO): the kernel cuts data to MTU size before the link reads it. Slow
    #[arg(long)]
    pub(super) no_offload: bool,
    /// Threads per link: 1, or 2 (one per direction) if cores are free
    #[arg(long, default_value_t = 1, value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=2))]
    pub(super) threads: usize,
    /// Run at real-time priority (SCHED_RR): delays are more exact on busy cores, but throughput is lower
    #[arg(long)]
    pub(super) realtime: bool,
    /// Seed of all random decisions
    #[arg(long, default_value_t = 1)]
    pub(super) seed: u64,
    /// Most memory for segments in each direction [default: twice what delay, rate and queue need]
    #[arg(long, value_name = "SIZE")]
    pub(super) memory: Option<Bytes>,
    /// Write counters to this file as JSON lines; - is standard output
    #[arg(long, value_name = "FILE")]
    pub(super) counters: Option<PathBuf>,
    /// Record each segment's headers at both ends, and its outcome on the link, to this pcapng file
    #[arg(long, value_name = "FILE", conflicts_with = "config")]
    pub(super) capture: Option<PathBuf>,
    /// Most header bytes that --capture records of a segment, 40 to 256
    #[arg(
        long,
        default_value_t = 128,
        value_name = "BYTES",
        requires = "capture"
    )]
    pub(super) snap_length: u32,
    /// Most memory for records that --capture has not written yet; beyond it records are dropped, never segments
    #[arg(
        long,
        default_value = "256MB",
        value_name = "SIZE",
        requires = "capture"
    )]
    pub(super) capture_memory: Bytes,
    /// Interval at which counters are written and shown, at least 1ms
    #[arg(long, default_value = "1s", value_name = "TIME")]
    pub(super) interval: WithInput<Time>,
    /// End after this time
    #[arg(long, value_name = "TIME")]
    pub(super) duration: Option<Time>,
}

/// One flag for each setting. `longhaul_netem` defines the grammar of the values.
#[derive(clap::Args)]
#[group(id = "link_config", multiple = true)]
pub(super) struct LinkConfigArgs {
    /// Propagation delay, one way, such as 13ms
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    delay: Option<String>,
    /// Part of the delay that varies: [normal:|uniform:|pareto:|lognormal:]TIME, table:FILE or trace:FILE, with
    /// ,correlation=TIME (varies slowly) or ,reorder (segments overtake). With neither, each segment waits for the one
    /// before it, so close segments have longer delays
    #[arg(long, value_name = "JITTER", allow_hyphen_values = true)]
    jitter: Option<String>,
    /// Whether segments sent after a change to a shorter delay may overtake those in flight: no or yes [default: no]
    #[arg(long, value_name = "NO|YES")]
    allow_reordering: Option<String>,
    /// Rate in bits per second, such as 100mbit or 10gbit [default: unlimited]
    #[arg(long, value_name = "RATE", allow_hyphen_values = true)]
    rate: Option<String>,
    /// Follow a packet-delivery trace in Mahimahi's format instead of a rate
    #[arg(long, value_name = "FILE", conflicts_with = "rate")]
    trace: Option<String>,
    /// Bytes added to each segment on the wire, which take transmission time: 38 for Ethernet
    #[arg(long, value_name = "BYTES")]
    overhead: Option<String>,
    /// Queue limit: 64KB, 1000p, 1bdp or default [default: 1bdp, but at least 1000p]
    #[arg(long, value_name = "LIMIT", allow_hyphen_values = true)]
    queue: Option<String>,
    /// Active queue management: tail, codel[:target=5ms,interval=100ms], red[:min=100KB,max=300KB,p=10%]
    #[arg(long, value_name = "AQM")]
    aqm: Option<String>,
    /// Loss: 0.1%, gilbert:p=1%,r=30%[,good=0%,bad=100%], at:5,17,100-110 (counted from 1), none
    #[arg(long, value_name = "LOSS", allow_hyphen_values = true)]
    loss: Option<String>,
    /// Share of segments that arrive twice
    #[arg(long, value_name = "SHARE", allow_hyphen_values = true)]
    duplicate: Option<String>,
    /// Share of segments with one wrong bit
    #[arg(long, value_name = "SHARE", allow_hyphen_values = true)]
    corrupt: Option<String>,
    /// Segments delayed so that others overtake them: SHARE:TIME
    #[arg(long, value_name = "REORDER", allow_hyphen_values = true)]
    reorder: Option<String>,
    /// Keep one pure ACK in 2^N, where that is safe
    #[arg(long, value_name = "N")]
    ack_thin: Option<String>,
    /// Longest time that ACK thinning holds an ACK back
    #[arg(long, value_name = "TIME")]
    max_ack_delay: Option<String>,
    /// Pace pure ACKs to N per second
    #[arg(long, value_name = "N")]
    ack_rate: Option<String>,
    /// Most pure ACKs that wait for --ack-rate
    #[arg(long, value_name = "N")]
    ack_buffer: Option<String>,
    /// Setting of the direction left to right only: KEY=VALUE; repeatable
    #[arg(long, value_name = "KEY=VALUE")]
    forward: Vec<String>,
    /// Setting of the direction right to left only: KEY=VALUE; repeatable
    #[arg(long, value_name = "KEY=VALUE")]
    backward: Vec<String>,
    /// Change of both directions at a time after the start: 'TIME: KEY VALUE'; repeatable
    #[arg(long, value_name = "CHANGE")]
    at: Vec<String>,
}

impl LinkConfigArgs {
    /// Returns the options that were given, with their values.
    fn options(&self) -> Vec<(&'static str, &str)> {
        let lists = [
            ("forward", &self.forward),
            ("backward", &self.backward),
            ("at", &self.at),
        ];
        let lists = lists.into_iter();
        let listed = lists.flat_map(|(key, all)| all.iter().map(move |value| (key, &**value)));
        let single = [
            ("delay", &self.delay),
            ("jitter", &self.jitter),
            ("allow-reordering", &self.allow_reordering),
            ("rate", &self.rate),
            ("overhead", &self.overhead),
            ("queue", &self.queue),
            ("aqm", &self.aqm),
            ("loss", &self.loss),
            ("duplicate", &self.duplicate),
            ("corrupt", &self.corrupt),
            ("reorder", &self.reorder),
            ("ack-thin", &self.ack_thin),
            ("max-ack-delay", &self.max_ack_delay),
            ("ack-rate", &self.ack_rate),
            ("ack-buffer", &self.ack_buffer),
            ("trace", &self.trace),
        ];
        let single = single.into_iter();
        let given = single.filter_map(|(key, value)| Some((key, value.as_deref()?)));
        given.chain(listed).collect()
    }
}

impl StartArgs {
    /// Returns the configuration: one link from flags, or all links of a file.
    ///
    /// # Errors
    /// Exit code 2: the error, with the link's name.
    pub(super) fn config(&self) -> Result<Config> {
        config::check_interval(&self.interval)?;
        let config = Config {
            links: match &self.config {
                Some(path) => file::read(path)?,
                None => vec![self.link()?],
            },
            threads: self.threads,
            realtime: self.realtime,
            counters: self.counters.clone(),
            interval: self.interval.value,
            duration: self.duration,
        };
        config.check()
    }

    fn link(&self) -> Result<Link> {
        let (Some(left), Some(right)) = (&self.left, &self.right) else {
            return Err(Refusal::usage(
                "give both ends of the link, --left and --right, or a file of links, --config",
            ));
        };
        let options = self.link_config.options();
        let [forward, backward] =
            config::directions(&options, self.mtu, self.memory, Path::new("."))?;
        Ok(Link {
            name: self.name.clone(),
            left: Endpoint::parse(left)?,
            right: Endpoint::parse(right)?,
            forward,
            backward,
            mtu: self.mtu,
            delivery: self
                .delivery
                .parse()
                .map_err(|error: String| Refusal::option("delivery", error))?,
            offload: !self.no_offload,
            seed: self.seed,
            capture: self.capture.clone().map(|path| CaptureOptions {
                path,
                snap_length: self.snap_length,
                memory: self.capture_memory,
            }),
        })
    }
}
