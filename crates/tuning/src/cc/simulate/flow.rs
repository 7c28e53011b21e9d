// SPDX-License-Identifier: MIT OR Apache-2.0
//! Settings of single flows, from `--flow`.

use anyhow::Result;
use longhaul_command::exit::Refusal;
use longhaul_units::{Bytes, Time};
use std::str::FromStr;

/// Settings of a `--flow`; absent ones are those of the other flags.
#[derive(Debug, Clone, Default)]
pub(super) struct FlowArgs {
    pub(super) cc: Option<String>,
    pub(super) streams: Option<u32>,
    pub(super) start: Option<Time>,
    pub(super) extra_rtt: Option<Time>,
    pub(super) bytes: Option<Bytes>,
    pub(super) window: Option<Bytes>,
    pub(super) pacing: Option<String>,
    pub(super) mss: Option<u32>,
    pub(super) ack_ratio: Option<u32>,
    pub(super) initial_window: Option<u32>,
}

impl FlowArgs {
    /// Parses `cc=htcp,streams=4,start=10s`.
    pub(super) fn parse(text: &str) -> Result<Self> {
        let mut flow = Self::default();
        for part in text.split(',') {
            let bad = |why: String| Refusal::usage(format!("--flow {text}: {why}"));
            let (key, value) = part
                .split_once('=')
                .ok_or_else(|| bad(format!("{part:?} is not KEY=VALUE, as in cc=cubic")))?;
            flow.set(key.trim(), value.trim()).map_err(bad)?;
        }
        Ok(flow)
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        match key {
            "cc" => parse_into(&mut self.cc, value),
            "streams" => parse_into(&mut self.streams, value),
            "start" => parse_into(&mut self.start, value),
            "extra-rtt" => parse_into(&mut self.extra_rtt, value),
            "bytes" => parse_into(&mut self.bytes, value),
            "window" => parse_into(&mut self.window, value),
            "pacing" => parse_into(&mut self.pacing, value),
            "mss" => parse_into(&mut self.mss, value),
            "ack-ratio" => parse_into(&mut self.ack_ratio, value),
            "initial-window" => parse_into(&mut self.initial_window, value),
            _ => Err(format!(
                "unknown key {key:?}; known are cc, streams, start, extra-rtt, bytes, window, pacing, mss, ack-ratio, \
                 initial-window"
            )),
        }
    }
}

fn parse_into<T: FromStr<Err: std::fmt::Display>>(
    place: &mut Option<T>,
    value: &str,
) -> Result<(), String> {
    let parsed = value
        .parse()
        .map_err(|error| format!("{value:?}: {error}"))?;
    *place = Some(parsed);
    Ok(())
}
