// SPDX-License-Identifier: MIT OR Apache-2.0
//! Command line of `longhaul probe`.
#![allow(
    rustdoc::broken_intra_doc_links,
    reason = "help texts are printed unchanged"
)]

use anyhow::Result;
use longhaul_command::exit::Refusal;
use longhaul_netem::conformance::Timing;
use longhaul_units::{Time, WithInput};
use std::{net::IpAddr, path::PathBuf};

const EXAMPLES: &str = "\
Examples:
  A link between two namespaces, checked against its settings:
    longhaul probe --from client --to server 10.9.0.2 --expect delay=13ms --expect loss=1%
  The rate of the link, from a burst of full packets:
    longhaul probe --from client --to server 10.9.0.2 --interval 0s --count 500 --packet-size 1500 \\
        --expect rate=100mbit
  Each packet's times, for a plot:
    longhaul probe --from client --to server 10.9.0.2 --records packets.jsonl

Both ends must be on this machine, so that one clock stamps all packets.";

/// Arguments of `longhaul probe`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Destination: an address of the receiving namespace
    pub(super) address: IpAddr,
    /// Network namespace that sends [default: this one]
    #[arg(long, value_name = "NAMESPACE")]
    pub(super) from: Option<String>,
    /// Network namespace that receives [default: this one]
    #[arg(long, value_name = "NAMESPACE")]
    pub(super) to: Option<String>,
    /// Number of packets, 1 to 1000000
    #[arg(long, value_name = "N", default_value_t = 1000)]
    count: u32,
    /// Interval between messages; 0s sends them back to back
    #[arg(long, value_name = "TIME", default_value = "1ms")]
    interval: WithInput<Time>,
    /// Size of each packet in bytes with its IP header, 64 to 9000
    #[arg(long, value_name = "BYTES", default_value_t = 100)]
    packet_size: u16,
    /// Packets per message, 1 to 64; several are sent as one super-packet (GSO)
    #[arg(long, value_name = "N", default_value_t = 1)]
    gso_segments: u16,
    /// End when no packet has arrived for this time since the last was sent
    #[arg(long, value_name = "TIME", default_value = "2s")]
    pub(super) wait: WithInput<Time>,
    /// Check this setting of the path, as for `longhaul link`: KEY=VALUE; repeatable
    #[arg(long, value_name = "KEY=VALUE")]
    pub(super) expect: Vec<String>,
    /// Write each packet's times to this file as JSON lines
    #[arg(long, value_name = "FILE")]
    pub(super) records: Option<PathBuf>,
    /// Print the result as one JSON object
    #[arg(long)]
    pub(super) json: bool,
}

/// Longest interval and longest wait. It bounds the duration of a probe.
const SPAN_MAX: Time = Time::from_secs(60);

impl Args {
    /// Returns the timing, validated.
    pub(super) fn timing(&self) -> Result<Timing> {
        let timing = Timing {
            count: self.count,
            interval_ns: self.interval.value.as_nanos(),
            packet_size: self.packet_size,
            gso_segments: self.gso_segments,
        };
        timing.check().map_err(Refusal::usage)?;
        check_span("interval", &self.interval)?;
        check_span("wait", &self.wait)?;
        Ok(timing)
    }
}

fn check_span(flag: &str, span: &WithInput<Time>) -> Result<()> {
    if span.value <= SPAN_MAX {
        Ok(())
    } else {
        Err(Refusal::usage(format!(
            "probe: {flag} is {span}, but must be {} at most",
            SPAN_MAX.exact()
        )))
    }
}
