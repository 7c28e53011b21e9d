// SPDX-License-Identifier: MIT OR Apache-2.0
//! Command line of `longhaul cc simulate`.
#![allow(
    rustdoc::broken_intra_doc_links,
    reason = "help texts are printed as they stand"
)]

use longhaul_units::{Bytes, Time};

const EXAMPLES: &str = "\
Examples:
  One CUBIC flow for an hour at 10 Gbit/s and 350 ms:
    longhaul cc simulate --rate 10gbit --rtt 350ms --duration 1h
  Reno, one packet in a million lost, a line per second for a plot:
    longhaul cc simulate --cc reno --rate 1gbit --rtt 180ms --loss 0.0001% --json
  Four Reno flows, joined after 30 s by a CUBIC flow with a shorter round trip:
    longhaul cc simulate --rate 1gbit --rtt 40ms --queue 0.5bdp \\
        --flow cc=reno,streams=4,extra-rtt=60ms --flow cc=cubic,start=30s
  One ACK for 8 packets, paced super-packets, a window of 8 MB:
    longhaul cc simulate --rate 1gbit --rtt 100ms --ack-ratio 8 --gro 0ms --pacing --window 8MB
  A path that gets longer after a minute (segment by segment, so slower):
    longhaul cc simulate --rate 1gbit --rtt 76ms --at '60s: delay 80ms'

The settings of the path are those of longhaul link, and --forward and --backward take any of them.
The manual says what is modelled and what is not.";

/// Arguments of `longhaul cc simulate`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Congestion control of the flows, with parameters if it has any: bic:ack_shift=3
    #[arg(long, value_name = "NAME", default_value = "cubic")]
    pub(super) cc: String,
    /// Number of flows, without --flow
    #[arg(long, value_name = "N", default_value_t = 1, conflicts_with = "flow")]
    pub(super) streams: u32,
    /// Flows with settings of their own: KEY=VALUE,… of cc, streams, start, extra-rtt, bytes,
    /// window, pacing, mss, ack-ratio, initial-window; repeatable
    #[arg(long, value_name = "FLOW")]
    pub(super) flow: Vec<String>,
    /// Bottleneck rate in bits per second, IP headers included: 10gbit
    #[arg(long, value_name = "RATE")]
    pub(super) rate: String,
    /// Propagation delay, one way
    #[arg(long, value_name = "TIME", conflicts_with = "rtt")]
    pub(super) delay: Option<Time>,
    /// Round-trip propagation delay, instead of --delay
    #[arg(long, value_name = "TIME", required_unless_present = "delay")]
    pub(super) rtt: Option<Time>,
    /// Queue limit of the bottleneck: 64KB, 1000p or 1bdp [default: 1bdp, but at least 1000p]
    #[arg(long, value_name = "LIMIT")]
    pub(super) queue: Option<String>,
    /// Loss of data: 0.1%, gilbert:p=1%,r=30%, at:5,17
    #[arg(long, value_name = "LOSS")]
    pub(super) loss: Option<String>,
    /// Setting of the data's direction, as for longhaul link: KEY=VALUE; repeatable
    #[arg(long, value_name = "KEY=VALUE")]
    pub(super) forward: Vec<String>,
    /// Setting of the ACKs' direction, as for longhaul link: KEY=VALUE; repeatable
    #[arg(long, value_name = "KEY=VALUE")]
    pub(super) backward: Vec<String>,
    /// Change of both directions during the simulation: 'TIME: KEY VALUE'; repeatable
    #[arg(long, value_name = "CHANGE")]
    pub(super) at: Vec<String>,
    /// Simulated time
    #[arg(long, value_name = "TIME", default_value = "60s")]
    pub(super) duration: Time,
    /// Interval between two records of a flow
    #[arg(long, value_name = "TIME", default_value = "1s")]
    pub(super) interval: Time,
    /// Data packets per ACK
    #[arg(long, value_name = "N", default_value_t = 2)]
    pub(super) ack_ratio: u32,
    /// Time within which the receiver merges packets (GRO) and ACKs them once; 0ms disables GRO
    #[arg(long, value_name = "TIME", default_value = "100us")]
    pub(super) gro: Time,
    /// Payload of a packet in bytes, without 52 bytes of headers
    #[arg(long, value_name = "BYTES", default_value_t = 1448)]
    pub(super) mss: u32,
    /// Pace super-packets, as fq does; RATE is SO_MAX_PACING_RATE
    #[arg(long, value_name = "RATE", num_args = 0..=1, default_missing_value = "on")]
    pub(super) pacing: Option<String>,
    /// Receive window [default: no limit; TCP itself has 1 GiB]
    #[arg(long, value_name = "SIZE")]
    pub(super) window: Option<Bytes>,
    /// Payload that the send buffer holds [default: no limit]
    #[arg(long, value_name = "SIZE")]
    pub(super) send_buffer: Option<Bytes>,
    /// Initial window in packets
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub(super) initial_window: u32,
    /// Seed of every random decision
    #[arg(long, default_value_t = 1)]
    pub(super) seed: u64,
    /// Simulate segment by segment instead of by trains of segments; slow, for comparison
    #[arg(long)]
    pub(super) per_packet: bool,
    /// Write records as JSON lines to standard output, the summary last
    #[arg(long)]
    pub(super) json: bool,
}
