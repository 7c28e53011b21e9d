// SPDX-License-Identifier: MIT OR Apache-2.0
//! Command line of `longhaul run`.
#![allow(
    rustdoc::broken_intra_doc_links,
    reason = "help texts are printed as they stand"
)]

use longhaul_units::{BitRate, Bytes, Time};
use std::{ffi::OsString, path::PathBuf, str::FromStr};

const EXAMPLES: &str = "\
Examples:
  sudo longhaul run --cc htcp --pacing-rate 900mbit --cwnd-cap 8MB --user $USER -- curl -O https://far.example/f
      H-TCP (the kernel's own, else longhaul's), spaced to 900 Mbit/s, at most 8 MB in flight
  sudo longhaul run --cc lh_bic+pace --param ack_shift=3 -v -- iperf3 -c far.example -P 8
      longhaul's BIC with a parameter, paced from the first packet; a summary on stderr
  sudo longhaul run --inter-packet-gap 120us -- rsync -a dir far.example:
      one full packet each 120 microseconds
  sudo longhaul run --ack-ratio 8 -- curl -O https://far.example/f
      one acknowledgement for eight full-sized segments that come in
  sudo longhaul run --ack-rate 60000 --ack-interface eth0 -- iperf3 -c far.example -R
      acknowledgements at least 16.7 microseconds apart
  sudo longhaul run --initial-window 64 --notsent-lowat 128KiB -- nginx -g 'daemon off;'
      accepted connections have the settings, too

PROGRAM keeps its terminal, environment and working directory, and runs as the caller (root, with
sudo) unless --user says otherwise. The manual has the details.

Exit codes: PROGRAM's own, or 128+N if signal N ended it; 2 and 3 are longhaul's own errors, before
PROGRAM starts.";

const ACKS: &str = "Acknowledgements that the program's host sends";

/// Arguments of `longhaul run`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Congestion control NAME of the kernel, or of longhaul if the kernel has none of this name.
    /// lh_NAME is always longhaul's. NAME+pace also paces from the first packet; +pace does so with
    /// the system's congestion control
    #[arg(long, value_name = "NAME[+pace]")]
    pub(super) cc: Option<String>,
    /// Parameter of longhaul's congestion control, for the sockets of PROGRAM only; repeatable
    #[arg(long, value_name = "NAME=VALUE", requires = "cc")]
    pub(super) param: Vec<String>,
    /// Pacing rate of payload, 8kbit to 34gbit
    #[arg(long, value_name = "RATE")]
    pub(super) pacing_rate: Option<BitRate>,
    /// Interval between full packets, 100ns to 1s: paces at one segment per interval
    #[arg(long, value_name = "TIME", conflicts_with = "pacing_rate")]
    pub(super) inter_packet_gap: Option<Time>,
    /// Send trains of segments (on), or single segments so that each packet is paced (off)
    /// [default: off with --inter-packet-gap, else on]
    #[arg(long, value_enum, value_name = "on|off")]
    pub(super) gso: Option<Switch>,
    /// Most payload that each connection may have in flight, 4KiB to 4GiB
    #[arg(long, value_name = "BYTES")]
    pub(super) cwnd_cap: Option<Bytes>,
    /// Initial window in segments, 1 to 1024; the kernel's default is 10
    #[arg(long, value_name = "N")]
    pub(super) initial_window: Option<u32>,
    /// Full-sized segments for each acknowledgement of received data, 1 to 256;
    /// the page ack-control.md of the manual lists the ACKs that always pass
    #[arg(long, value_name = "SEGMENTS", help_heading = ACKS)]
    pub(super) ack_ratio: Option<u32>,
    /// Longest delay of an acknowledgement, 1ms to 100ms; a quarter of a connection's
    /// round trip, if that is shorter
    #[arg(long, value_name = "TIME", default_value = "10ms", requires = "ack_ratio", help_heading = ACKS)]
    pub(super) max_ack_delay: Time,
    /// Most acknowledgements a second on --ack-interface, 1 to 10000000; others wait
    #[arg(long, value_name = "PACKETS", requires = "ack_interface", help_heading = ACKS)]
    pub(super) ack_rate: Option<u32>,
    /// Interface on which ACKs are paced; its queueing discipline must be the kernel's default
    #[arg(long, value_name = "NAME", requires = "ack_rate", help_heading = ACKS)]
    pub(super) ack_interface: Option<String>,
    /// Most unsent bytes in a socket, 4KiB to 1GiB
    #[arg(long, value_name = "BYTES", help_heading = "Other socket options")]
    pub(super) notsent_lowat: Option<Bytes>,
    /// Idle time before keep-alive probes, 1s to 9h
    #[arg(long, value_name = "TIME", help_heading = "Other socket options")]
    pub(super) keepalive: Option<Time>,
    /// Longest time that sent data may stay unacknowledged, 1s to 24h
    #[arg(long, value_name = "TIME", help_heading = "Other socket options")]
    pub(super) user_timeout: Option<Time>,
    /// Largest segment, 88 to 32767 bytes
    #[arg(long, value_name = "BYTES", help_heading = "Other socket options")]
    pub(super) mss: Option<u32>,
    /// DSCP of packets, 0 to 63
    #[arg(long, value_name = "N", help_heading = "Other socket options")]
    pub(super) dscp: Option<u8>,
    /// Fixed send buffer, 4KiB to 1GiB; ends autotuning. "kernel" keeps to net.ipv4.tcp_wmem
    /// [default: grows with the congestion window, up to 128MiB]
    #[arg(
        long,
        value_name = "BYTES|kernel",
        help_heading = "Other socket options"
    )]
    pub(super) send_buffer: Option<SendBuffer>,
    /// Fixed receive buffer, 4KiB to 1GiB; ends autotuning
    #[arg(long, value_name = "BYTES", help_heading = "Other socket options")]
    pub(super) receive_buffer: Option<Bytes>,

    /// Run PROGRAM as this user, with that user's groups, HOME, USER, LOGNAME and SHELL
    #[arg(long, value_name = "NAME")]
    pub(super) user: Option<String>,
    /// Print a summary on standard error
    #[arg(long, short)]
    pub(super) verbose: bool,
    /// Write a record of the sockets' activity to FILE ('-' is standard error)
    #[arg(long, value_name = "FILE")]
    pub(super) json: Option<PathBuf>,

    /// The program and its arguments
    #[arg(required = true, value_name = "PROGRAM", trailing_var_arg = true)]
    pub(super) command: Vec<OsString>,
}

/// Value of `--send-buffer`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SendBuffer {
    /// The size that the kernel gives by itself.
    Kernel,
    Fixed(Bytes),
}

impl FromStr for SendBuffer {
    type Err = <Bytes as FromStr>::Err;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "kernel" => Ok(Self::Kernel),
            bytes => bytes.parse().map(Self::Fixed),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Switch {
    On,
    Off,
}
