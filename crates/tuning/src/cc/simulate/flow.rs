// SPDX-License-Identifier: MIT OR Apache-2.0
//! Flows that differ, as `--flow` says them.

use anyhow::Result;
use longhaul_command::exit::Refusal;
use longhaul_units::{Bytes, Time};
use std::str::FromStr;

/// What a `--flow` may say of itself; the rest is as the flags say.
#[derive(Debug, Clone, Default)]
pub(super) struct FlowArgs {
    pub(super) cc: Option<String>,
    pub(super) streams: Option<u32>,
    pub(super) start: Option<Time>,
    pub(super) extra_rtt: Option<Time>,
    pub(super) bytes: Option<Bytes>,
    pub(super) window: Option<Bytes>,
    pub(super) pace: Option<String>,
    pub(super) mss: Option<u32>,
    pub(super) ack_ratio: Option<u32>,
    pub(super) initial_window: Option<u32>,
}

impl FlowArgs {
    /// Reads `cc=htcp,streams=4,start=10s`.
    pub(super) fn read(text: &str) -> Result<Self> {
        let mut flow = Self::default();
        for part in text.split(',') {
            let bad = |why: String| Refusal::usage(format!("flow {text:?}: {why}"));
            let (key, value) = part
                .split_once('=')
                .ok_or_else(|| bad(format!("{part:?} is not KEY=VALUE, as in cc=cubic")))?;
            flow.take(key.trim(), value.trim()).map_err(bad)?;
        }
        Ok(flow)
    }

    fn take(&mut self, key: &str, value: &str) -> Result<(), String> {
        match key {
            "cc" => put(&mut self.cc, value),
            "streams" => put(&mut self.streams, value),
            "start" => put(&mut self.start, value),
            "extra-rtt" => put(&mut self.extra_rtt, value),
            "bytes" => put(&mut self.bytes, value),
            "window" => put(&mut self.window, value),
            "pace" => put(&mut self.pace, value),
            "mss" => put(&mut self.mss, value),
            "ack-ratio" => put(&mut self.ack_ratio, value),
            "initial-window" => put(&mut self.initial_window, value),
            _ => Err(format!(
                "unknown key {key:?}; known are cc, streams, start, extra-rtt, bytes, window, pace, mss, ack-ratio, \
                 initial-window"
            )),
        }
    }
}

fn put<T: FromStr<Err: std::fmt::Display>>(
    place: &mut Option<T>,
    value: &str,
) -> Result<(), String> {
    let parsed = value
        .parse()
        .map_err(|error| format!("{value:?}: {error}"))?;
    *place = Some(parsed);
    Ok(())
}
