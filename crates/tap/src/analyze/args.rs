// SPDX-License-Identifier: MIT OR Apache-2.0
//! Command-line arguments of `longhaul tap analyze`.
#![allow(
    rustdoc::broken_intra_doc_links,
    reason = "help texts are printed without changes"
)]

use super::config::{self, Config};
use super::decode_as::DecodeAs;
use crate::series::Format;
use anyhow::Result;
use longhaul_command::exit::Refusal;
use longhaul_packet::tunnel::UdpTunnels;
use longhaul_units::{Bytes, Time};
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  What limited each flow, and what would help:
    longhaul tap analyze trace.pcapng
  The same, with a report that opens offline:
    longhaul tap analyze trace.pcapng -o out/trace
  The files of a rotated capture, in any order, with series for a spreadsheet:
    longhaul tap analyze trace-*.pcap -o out/trace --csv
  A transfer captured at both ends, for one-way delays and the place of losses:
    longhaul tap analyze sender.pcapng receiver.pcapng -o out/both
  A capture from another program, with the result on standard output:
    tcpdump -i eth0 -s 128 -w - 'tcp port 5201' | longhaul tap analyze - --json > result.json

Files are pcap or pcapng, plain or gzip. Those that continue each other (same interfaces, no overlap
in time) are one capture; those that overlap are from different capture points.";

/// Arguments of `longhaul tap analyze`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Captures: pcap or pcapng, plain or gzip, files or FIFOs; - is standard input
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Write result.json, report.html and series to this directory, too; created if it does not exist
    #[arg(short, long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Width of the bins of every time series, 10us to 1s; series with bins of 1 s are written, too
    #[arg(long, value_name = "TIME", default_value = "1ms")]
    bin_width: Time,
    /// Print the result as JSON on standard output
    #[arg(long)]
    json: bool,
    /// Read datagrams from or to a UDP port as a tunnel, besides those at usual ports; may be repeated. As with tshark, NAME
    /// is geneve, gre, gtp, l2tp, vxlan or vxlan_gpe
    #[arg(long, value_name = "udp.port==PORT,NAME", hide_short_help = true)]
    decode_as: Vec<DecodeAs>,
    /// Worker threads [default: one per core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: Option<u16>,
    /// Number of the largest flows with charts in the report and lines on the terminal
    #[arg(long, value_name = "N", default_value_t = config::DEFAULT_CHARTED_FLOWS, value_parser = clap::value_parser!(u16).range(1..=1000))]
    flows: u16,
    /// Write every flow's series as CSV
    #[arg(long, requires = "out")]
    csv: bool,
    /// Write every flow's series as Parquet
    #[arg(long, requires = "out")]
    parquet: bool,
    /// Memory for flows, 16MB or more. Half is for packets in flight and time series, a quarter for open flows of 16 KB
    /// each. If more flows are open at once, those without packets for the longest time are reported in two
    /// parts
    #[arg(long, value_name = "SIZE", default_value = "1GB")]
    memory: Bytes,
}

impl Args {
    /// Returns the configuration that the flags select.
    ///
    /// # Errors
    /// A value is out of range: a refusal that names the flag.
    pub(super) fn config(&self) -> Result<Config> {
        if self.parquet && !cfg!(feature = "parquet") {
            return Err(Refusal::unsupported(
                "--parquet: this longhaul was built without Parquet (cargo feature parquet)",
            ));
        }
        let formats = [(self.csv, Format::Csv), (self.parquet, Format::Parquet)];
        let requested = formats.into_iter().filter(|(requested, _)| *requested);
        let defaults = Config::new(self.files.clone(), self.bin_width, self.memory)?;
        Ok(Config {
            out: self.out.clone(),
            json: self.json,
            threads: self.threads.map_or(defaults.threads, usize::from),
            formats: requested.map(|(_, format)| format).collect(),
            flow_limits: config::flow_limits(self.flows.into()),
            udp_tunnels: self.udp_tunnels(),
            ..defaults
        })
    }

    fn udp_tunnels(&self) -> UdpTunnels {
        let mut tunnels = UdpTunnels::default();
        for setting in &self.decode_as {
            tunnels.set(setting.port, setting.tunnel);
        }
        tunnels
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{Args as _, FromArgMatches};

    #[test]
    fn uses_default_config_without_flags() {
        let command = Args::augment_args(clap::Command::new("analyze").no_binary_name(true));
        let parsed = command.try_get_matches_from(["a.pcap", "--json"]).unwrap();
        let args = Args::from_arg_matches(&parsed).unwrap();
        let defaults = Config::new(
            vec!["a.pcap".into()],
            config::DEFAULT_BIN,
            config::DEFAULT_MEMORY,
        )
        .unwrap();
        let defaults = Config {
            json: true,
            ..defaults
        };
        assert_eq!(
            format!("{:?}", args.config().unwrap()),
            format!("{defaults:?}")
        );
    }
}
