// SPDX-License-Identifier: MIT OR Apache-2.0
//! What `longhaul plan path` is told on the command line.
#![allow(
    rustdoc::broken_intra_doc_links,
    reason = "help texts are printed as they stand"
)]

use super::super::estimate::Method;
use longhaul_units::{BitRate, Bytes, Ratio, Time};

const EXAMPLES: &str = "\
Examples:
  A clean path: who fills it, with which window?
    longhaul plan path --rate 10gbit --rtt 180ms
  One packet in ten thousand lost: how many streams?
    longhaul plan path --rate 1gbit --rtt 180ms --loss 0.01% --cc cubic,bbr,reno
  What the default buffers of a host allow:
    longhaul plan path --rate 1gbit --rtt 180ms --rmem 6291456 --wmem 4194304
  How long do 10 MB take, on a fresh connection?
    longhaul plan path --rate 1gbit --rtt 180ms --size 10MB
  The first 20 s, slow start included, by simulated TCP:
    longhaul plan path --rate 1gbit --rtt 180ms --loss 0.001% --duration 20s

The line is the slowest link; loss is in the direction of the data, each packet by itself.";

/// Arguments of `longhaul plan path`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Bottleneck in bits a second of IP bytes
    #[arg(long)]
    pub(super) rate: BitRate,
    /// Round trip without queues, 1us to 100s
    #[arg(long, value_name = "TIME")]
    pub(super) rtt: Time,
    /// Share of data packets that are lost: 0.01% or 1e-4
    #[arg(long, default_value = "0")]
    pub(super) loss: Ratio,
    /// What may wait for the bottleneck: 64KB, 1000p or 1bdp
    #[arg(long, value_name = "LIMIT", default_value = "1bdp")]
    pub(super) queue: String,
    /// Window of the receiver, or of the send buffer [default: TCP's largest, 1 GiB]
    #[arg(long, value_name = "SIZE")]
    pub(super) window: Option<Bytes>,
    /// The receiver's largest tcp_rmem, of which some 58% are window
    #[arg(long, value_name = "SIZE")]
    pub(super) rmem: Option<Bytes>,
    /// The sender's largest tcp_wmem, of which half is payload
    #[arg(long, value_name = "SIZE")]
    pub(super) wmem: Option<Bytes>,
    /// Congestion controls, with commas between, or all
    #[arg(long, value_name = "NAMES", default_value = "all")]
    pub(super) cc: String,
    /// Connections that share the job; auto is as many as nine tenths of the line want
    #[arg(long, value_name = "N", default_value = "auto")]
    pub(super) streams: String,
    /// Say how long so much takes, on a fresh connection
    #[arg(long)]
    pub(super) size: Option<Bytes>,
    /// Packets of the first round trip
    #[arg(long, value_name = "N", default_value_t = 10,
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(super) initial_window: u32,
    /// Bytes of a full packet from its IP header on
    #[arg(long, default_value_t = 1500, value_parser = clap::value_parser!(u32).range(588..=9000))]
    pub(super) mtu: u32,
    /// Where figures come from
    #[arg(long, value_enum, default_value_t)]
    pub(super) method: Method,
    /// Mean of so much from the start, simulated, instead of the steady state
    #[arg(long, value_name = "TIME", conflicts_with = "method")]
    pub(super) duration: Option<Time>,
    /// Print the result as one JSON object
    #[arg(long)]
    pub(super) json: bool,
}
