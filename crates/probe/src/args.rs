// SPDX-License-Identifier: MIT OR Apache-2.0
//! Command line of `longhaul probe`.
#![allow(
    rustdoc::broken_intra_doc_links,
    reason = "help texts are printed as they stand"
)]

use super::recording::Timing;
use anyhow::Result;
use longhaul_command::exit::Refusal;
use longhaul_units::Time;
use std::{net::IpAddr, path::PathBuf};

const EXAMPLES: &str = "\
Examples:
  A link between two namespaces, checked against its settings:
    longhaul probe --from client --to server 10.9.0.2 --expect delay=13ms --expect loss=1%
  The rate of the link, from a burst of full packets:
    longhaul probe --from client --to server 10.9.0.2 --interval 0s --count 500 --length 1500 \\
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
    interval: Time,
    /// Length of each packet in bytes with its IP header, 64 to 9000
    #[arg(long, value_name = "BYTES", default_value_t = 100)]
    length: u16,
    /// Packets per message, 1 to 64; several are sent as one super-packet (GSO)
    #[arg(long, value_name = "N", default_value_t = 1)]
    segments: u16,
    /// End when no packet has arrived for this time since the last was sent
    #[arg(long, value_name = "TIME", default_value = "2s")]
    pub(super) wait: Time,
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

/// Longest interval and wait, so that every probe ends.
const SPAN_MAX: Time = Time::from_secs(60);

impl Args {
    /// Returns the timing, validated.
    pub(super) fn timing(&self) -> Result<Timing> {
        let timing = Timing {
            count: self.count,
            interval_ns: self.interval.as_nanos(),
            length: self.length,
            segments: self.segments,
        };
        timing.check().map_err(Refusal::usage)?;
        check_span("interval", self.interval)?;
        check_span("wait", self.wait)?;
        Ok(timing)
    }
}

fn check_span(what: &str, span: Time) -> Result<()> {
    match span <= SPAN_MAX {
        true => Ok(()),
        false => Err(Refusal::usage(format!(
            "probe: {what} is {}, but must be {SPAN_MAX} at most",
            span.exact()
        ))),
    }
}
