// SPDX-License-Identifier: MIT OR Apache-2.0
//! Command-line arguments of `longhaul tap capture`, and those that all captures share.
#![allow(
    rustdoc::broken_intra_doc_links,
    reason = "help texts are printed without changes"
)]

use super::{
    Config,
    output::Destination,
    source::{Filter, Selection, Source},
};
use anyhow::Result;
use longhaul_command::exit::Refusal;
use longhaul_units::{Bytes, Time};
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  The headers of an iperf3 transfer, until Ctrl-C:
    longhaul tap capture -i eth0 --filter 'tcp port 5201' -w trace.pcapng
  Both sides of a router for a minute, in files of 1 GB, of which the last ten are kept:
    longhaul tap capture -i eth0 -i eth1 --duration 60s --rotate 1GB --files 10 -w trace.pcapng
  In another network namespace, piped into the analysis:
    longhaul tap capture --netns client -i wan0 -w - | longhaul tap analyze - -o out

A filter EXPRESSION is that of pcap-filter(7): tcp, udp, host ADDRESS, net ADDRESS/PREFIX, port N,
each also with src or dst before it, and, or, not, ( ), and more. tcpdump compiles it. If the
capture itself is sent over the interface that it captures (ssh, NFS), exclude that connection by
a filter.
Ctrl-C and SIGTERM stop it with a complete file; after SIGKILL everything up to a tenth of a second
before is readable.";

/// Arguments of `longhaul tap capture`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    source: SourceArgs,
    /// Write pcapng to this file; - is standard output
    #[arg(short = 'w', long = "write", value_name = "FILE")]
    file: PathBuf,
    /// Begin a new file before one exceeds this size, 1MB or more: FILE-00001.pcapng …, each complete
    #[arg(long, value_name = "SIZE")]
    rotate: Option<Bytes>,
    /// Keep only the newest N files
    #[arg(long, value_name = "N", requires = "rotate",
          value_parser = clap::value_parser!(u32).range(1..=99_999))]
    files: Option<u32>,
    /// Stop after this time
    #[arg(long, value_name = "TIME")]
    duration: Option<Time>,
    /// Stop after this number of packets; a super-packet counts once
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// Replace existing files; without --force, they are an error
    #[arg(long)]
    force: bool,
    /// Print the counters of the capture as JSON on standard output
    #[arg(long)]
    json: bool,
}

/// Source of the packets, and the filter.
#[derive(clap::Args)]
pub(crate) struct SourceArgs {
    /// Interface to capture on, in both directions; repeatable
    #[arg(short, long = "interface", value_name = "INTERFACE", required = true)]
    interfaces: Vec<String>,
    /// Only packets that match this expression of pcap-filter(7); needs tcpdump, which compiles it
    #[arg(long, value_name = "EXPRESSION")]
    filter: Option<String>,
    /// Only packets that match this BPF program: the output of `tcpdump -ddd EXPRESSION`, for hosts
    /// without tcpdump
    #[arg(long, value_name = "LISTING", conflicts_with = "filter")]
    filter_bpf: Option<String>,
    /// Maximum number of bytes to keep of a packet, 64 to 65535
    #[arg(long, value_name = "BYTES", default_value_t = 128,
          value_parser = clap::value_parser!(u32).range(64..=65_535))]
    snap_length: u32,
    /// Kernel memory for each interface, for packets not yet read: 512KiB to 2GiB
    #[arg(long, value_name = "SIZE", default_value = "256MB")]
    ring: Bytes,
    /// Also capture packets for other hosts, as on a mirror port
    #[arg(long)]
    promiscuous: bool,
    /// Network namespace of the interfaces [default: this one]
    #[arg(long, value_name = "NAMESPACE")]
    netns: Option<String>,
}

impl Args {
    /// Returns the configuration that the flags select.
    ///
    /// # Errors
    /// A value is not valid: a refusal that names the flag.
    pub(super) fn config(&self) -> Result<Config> {
        let source = self.source.source()?;
        let destination = Destination::new(
            &self.file,
            self.rotate.map(Bytes::get),
            self.files.map(|files| files as usize),
            self.force,
        )?;
        if self.json && self.file.as_os_str() == "-" {
            let both = "--json and -w - both need standard output: write to a file";
            return Err(Refusal::usage(both));
        }
        Ok(Config {
            source,
            destination,
            count: self.count,
            duration: self.duration,
            json: self.json,
        })
    }
}

impl SourceArgs {
    /// Returns the source that the flags select.
    ///
    /// # Errors
    /// A value is not valid: a refusal that names the flag.
    pub(crate) fn source(&self) -> Result<Source> {
        Source::new(Selection {
            interfaces: self.interfaces.clone(),
            filter: match &self.filter_bpf {
                Some(listing) => Filter::Listing(listing.clone()),
                None => self.filter.clone().map_or(Filter::All, Filter::Expression),
            },
            snaplen: self.snap_length,
            ring: self.ring,
            promiscuous: self.promiscuous,
            netns: self.netns.clone(),
        })
    }
}
