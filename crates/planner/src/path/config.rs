// SPDX-License-Identifier: MIT OR Apache-2.0
//! From flags to a path that is known to be sound.

use super::{
    super::{estimate::Method, simulated::Span},
    args::Args,
};
use anyhow::Result;
use longhaul_command::exit::Refusal;
use longhaul_netem::{Rate, Setting, Shape};
use longhaul_tcpsim::formulas::{
    Control, HEADERS, Path, receive_buffer, streams::STREAMS_MAX, window_limit,
};
use longhaul_units::{Bytes, Time};

/// A question, checked.
#[derive(Debug)]
pub(super) struct Config {
    pub(super) path: Path,
    pub(super) controls: Vec<Control>,
    /// `None`: as many as it takes.
    pub(super) streams: Option<u32>,
    pub(super) size: Option<Bytes>,
    pub(super) initial_window: u32,
    pub(super) method: Method,
    pub(super) span: Option<Span>,
}

/// Simulated time that a user may ask for.
const DURATION_MAX: Time = Time::from_secs(3600);

impl Config {
    pub(super) fn read(args: &Args) -> Result<Self> {
        round_trip("--rtt", args.rtt)?;
        let path = Path {
            rate: args.rate,
            rtt: args.rtt,
            loss: loss("--loss", args.loss.get())?,
            mss: args.mtu - HEADERS,
            queue: queue(args)?,
            window: window(args)?,
        };
        Ok(Self {
            path,
            controls: controls(&args.cc)?,
            streams: streams(&args.streams)?,
            size: args.size,
            initial_window: args.initial_window,
            method: match args.duration {
                Some(_) => Method::Simulate,
                None => args.method,
            },
            span: args.duration.map(span).transpose()?,
        })
    }
}

/// Every formula divides by it.
pub(in super::super) fn round_trip(what: &str, rtt: Time) -> Result<()> {
    match (Time::from_micros(1)..=Time::from_secs(100)).contains(&rtt) {
        true => Ok(()),
        false => Err(Refusal::usage(format!(
            "{what} {rtt}: a round trip takes 1us to 100s"
        ))),
    }
}

/// A path that loses more carries no TCP.
pub(in super::super) fn loss(what: &str, loss: f64) -> Result<f64> {
    match loss <= 0.5 {
        true => Ok(loss),
        false => Err(Refusal::usage(format!(
            "{what} {loss}: TCP does not work where more than 50% are lost"
        ))),
    }
}

fn queue(args: &Args) -> Result<Bytes> {
    let mut shape = Shape {
        rate: Rate::Constant(args.rate),
        delay: Time::from_nanos(args.rtt.as_nanos() / 2),
        ..Shape::default()
    };
    shape.apply(Setting::parse("queue", &args.queue).map_err(Refusal::usage)?);
    let limit = shape.limit();
    let packets = (limit.packets as u64).saturating_mul(u64::from(args.mtu));
    Ok(Bytes::new(limit.bytes.min(packets)))
}

fn window(args: &Args) -> Result<Bytes> {
    let bounds = [
        args.window,
        args.rmem.map(receive_buffer::receive_window),
        args.wmem.map(receive_buffer::send_window),
    ];
    let least = bounds.into_iter().flatten().min();
    let window = least.unwrap_or(Bytes::new(window_limit::LARGEST_BYTES));
    match window.get() >= 2 * u64::from(args.mtu) {
        true => Ok(window),
        false => Err(Refusal::usage(format!(
            "a window of {window} is less than two packets: see --window, --rmem and --wmem"
        ))),
    }
}

/// `all`, or names with commas between.
pub(in super::super) fn controls(text: &str) -> Result<Vec<Control>> {
    if text == "all" {
        return Ok(Control::ALL.to_vec());
    }
    let names = text.split(',').map(|name| name.trim().parse());
    names
        .collect::<Result<_, _>>()
        .map_err(|error| Refusal::usage(format!("--cc: {error}")))
}

fn streams(text: &str) -> Result<Option<u32>> {
    let number = || text.parse().ok().filter(|n| (1..=STREAMS_MAX).contains(n));
    match text {
        "auto" => Ok(None),
        _ => number().map(Some).ok_or_else(|| {
            Refusal::usage(format!(
                "--streams {text:?} is not auto or a number from 1 to {STREAMS_MAX}"
            ))
        }),
    }
}

fn span(duration: Time) -> Result<Span> {
    match (Time::from_millis(100)..=DURATION_MAX).contains(&duration) {
        true => Ok(Span {
            omit: Time::ZERO,
            duration,
        }),
        false => Err(Refusal::usage(format!(
            "--duration {duration} is not within 100ms and {DURATION_MAX}"
        ))),
    }
}
