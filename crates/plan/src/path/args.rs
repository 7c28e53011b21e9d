// SPDX-License-Identifier: MIT OR Apache-2.0
//! Command line of `longhaul plan path`.
#![allow(
    rustdoc::broken_intra_doc_links,
    reason = "help texts are printed as they stand"
)]

use super::{
    super::{estimate::Method, simulated::Span},
    config::{Config, check_loss, check_rtt, parse_controls},
};
use anyhow::Result;
use longhaul_command::exit::Refusal;
use longhaul_netem::{LinkConfig, Rate, Setting};
use longhaul_tcpsim::formulas::{
    HEADERS, Path, receive_buffer, streams::STREAMS_MAX, window_limit,
};
use longhaul_units::{BitRate, Bytes, Ratio, Time};

const EXAMPLES: &str = "\
Examples:
  A clean path: which congestion controls fill it, with which window?
    longhaul plan path --rate 10gbit --rtt 180ms
  One packet in ten thousand lost: how many streams?
    longhaul plan path --rate 1gbit --rtt 180ms --loss 0.01% --cc cubic,bbr,reno
  What the default buffers of a host allow:
    longhaul plan path --rate 1gbit --rtt 180ms --rmem 6291456 --wmem 4194304
  How long do 10 MB take on a new connection?
    longhaul plan path --rate 1gbit --rtt 180ms --size 10MB
  The first 20 s, slow start included, by simulated TCP:
    longhaul plan path --rate 1gbit --rtt 180ms --loss 0.001% --duration 20s

--rate is the rate of the path's slowest link. Loss is random and independent, of data packets only.";

/// Arguments of `longhaul plan path`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Bottleneck rate in bits per second, IP headers included: 10gbit
    #[arg(long)]
    rate: BitRate,
    /// Round-trip time without queueing, 1us to 100s
    #[arg(long, value_name = "TIME")]
    rtt: Time,
    /// Share of data packets that are lost: 0.01% or 1e-4
    #[arg(long, default_value = "0")]
    loss: Ratio,
    /// Queue limit of the bottleneck: 64KB, 1000p or 1bdp
    #[arg(long, value_name = "LIMIT", default_value = "1bdp")]
    queue: String,
    /// Window of the receiver or of the send buffer [default: TCP's largest, 1 GiB]
    #[arg(long, value_name = "SIZE")]
    window: Option<Bytes>,
    /// Third value of the receiver's tcp_rmem; some 58% of it become window
    #[arg(long, value_name = "SIZE")]
    rmem: Option<Bytes>,
    /// Third value of the sender's tcp_wmem; half of it holds payload
    #[arg(long, value_name = "SIZE")]
    wmem: Option<Bytes>,
    /// Congestion controls, separated by commas, or all
    #[arg(long, value_name = "NAMES", default_value = "all")]
    cc: String,
    /// Parallel connections; auto is as many as fill nine tenths of the link
    #[arg(long, value_name = "N", default_value = "auto")]
    streams: String,
    /// Also print the time to transfer this size on a new connection
    #[arg(long)]
    size: Option<Bytes>,
    /// Initial window in packets
    #[arg(long, value_name = "N", default_value_t = 10,
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    initial_window: u32,
    /// Path MTU in bytes, IP header included
    #[arg(long, default_value_t = 1500, value_parser = clap::value_parser!(u32).range(588..=9000))]
    mtu: u32,
    /// Method of estimation
    #[arg(long, value_enum, default_value_t)]
    method: Method,
    /// Simulate this time from the start, and print the mean rate instead of the steady state
    #[arg(long, value_name = "TIME", conflicts_with = "method")]
    duration: Option<Time>,
    /// Also print each formula, its source and range
    #[arg(long)]
    formulas: bool,
    /// Print the result as one JSON object
    #[arg(long)]
    json: bool,
}

/// Longest simulated time.
const DURATION_MAX: Time = Time::from_secs(3600);

impl Args {
    /// Validates the arguments.
    pub(crate) fn config(&self) -> Result<Config> {
        check_rtt("--rtt", self.rtt)?;
        let path = Path {
            rate: self.rate,
            rtt: self.rtt,
            loss: check_loss("--loss", self.loss)?,
            mss: self.mtu - HEADERS,
            queue: self.queue()?,
            window: self.window()?,
        };
        Ok(Config {
            path,
            controls: parse_controls(&self.cc)?,
            streams: streams(&self.streams)?,
            size: self.size,
            initial_window: self.initial_window,
            method: match self.duration {
                Some(_) => Method::Simulate,
                None => self.method,
            },
            span: self.duration.map(span).transpose()?,
            prints_formulas: self.formulas,
            json: self.json,
        })
    }

    fn queue(&self) -> Result<Bytes> {
        let mut link_config = LinkConfig {
            rate: Rate::Constant(self.rate),
            delay: Time::from_nanos(self.rtt.as_nanos() / 2),
            ..LinkConfig::default()
        };
        link_config.apply(Setting::parse("queue", &self.queue).map_err(Refusal::usage)?);
        let limit = link_config.queue_capacity();
        let packets = (limit.packets as u64).saturating_mul(u64::from(self.mtu));
        Ok(Bytes::new(limit.bytes.min(packets)))
    }

    fn window(&self) -> Result<Bytes> {
        let bounds = [
            self.window,
            self.rmem.map(receive_buffer::receive_window),
            self.wmem.map(receive_buffer::send_window),
        ];
        let least = bounds.into_iter().flatten().min();
        let window = least.unwrap_or(Bytes::new(window_limit::LARGEST_BYTES));
        if window.get() >= 2 * u64::from(self.mtu) {
            Ok(window)
        } else {
            Err(Refusal::usage(format!(
                "a window of {window} is less than two packets: see --window, --rmem and --wmem"
            )))
        }
    }
}

fn streams(text: &str) -> Result<Option<u32>> {
    let number = || text.parse().ok().filter(|n| (1..=STREAMS_MAX).contains(n));
    match text {
        "auto" => Ok(None),
        _ => number().map(Some).ok_or_else(|| {
            Refusal::usage(format!(
                "--streams {text}: want auto or a number from 1 to {STREAMS_MAX}"
            ))
        }),
    }
}

fn span(duration: Time) -> Result<Span> {
    if (Time::from_millis(100)..=DURATION_MAX).contains(&duration) {
        Ok(Span {
            omit: Time::ZERO,
            duration,
        })
    } else {
        Err(Refusal::usage(format!(
            "--duration {}: want 100ms to {}",
            duration.exact(),
            DURATION_MAX.exact()
        )))
    }
}
