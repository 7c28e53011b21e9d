// SPDX-License-Identifier: MIT OR Apache-2.0
//! Predicted goodput of a flow: that of its slowest leg, over the measured span.

use super::super::{
    estimate::Source,
    simulated::{self, Span},
};
use anyhow::Result;
use longhaul_lab::paths::{FlowPath, Leg};
use longhaul_tcpsim::formulas::{
    Control, HEADERS, Path, prediction, receive_buffer,
    slow_start::{self, Transfer},
    streams,
};
use longhaul_units::{Bytes, Time};

/// Predicted goodput, and its source.
#[derive(Debug, Clone, Copy)]
pub(super) struct Forecast {
    pub(super) bps: f64,
    pub(super) source: Source,
}

/// Number of runs with different random losses, which are averaged.
const SEEDS: u64 = 5;
/// Most packets of a simulated run; beyond, the formula is used.
const PACKETS_MAX: f64 = 5e7;

pub(super) fn forecast(flow: &FlowPath) -> Result<Option<Forecast>> {
    let mut slowest: Option<Forecast> = None;
    for leg in &flow.legs {
        let Some(one) = leg_forecast(flow, leg)? else {
            return Ok(None);
        };
        if slowest.is_none_or(|slowest| one.bps < slowest.bps) {
            slowest = Some(one);
        }
    }
    Ok(slowest)
}

fn leg_forecast(flow: &FlowPath, leg: &Leg) -> Result<Option<Forecast>> {
    let Ok(control) = leg.control.parse::<Control>() else {
        return Ok(None);
    };
    let path = path(leg);
    match flow.duration {
        Some(duration) if is_simulated(control, &path, flow.omit + duration) => {
            let span = Span {
                omit: flow.omit,
                duration,
            };
            simulated_mean(control, &path, flow.streams, span).map(Some)
        }
        _ => Ok(by_formula(control, &path, flow)),
    }
}

fn is_simulated(control: Control, path: &Path, span: Time) -> bool {
    let packets = path.payload_bps() / path.packet_bits() * span.as_secs_f64();
    simulated::is_supported(control) && packets < PACKETS_MAX
}

fn simulated_mean(control: Control, path: &Path, streams: u32, span: Span) -> Result<Forecast> {
    // Without random losses all runs are equal.
    let seeds = if path.loss > 0.0 { SEEDS } else { 1 };
    let mut sum = 0.0;
    for seed in 1..=seeds {
        sum += simulated::goodput_bps(control, path, streams, span, seed)?;
    }
    Ok(Forecast {
        bps: sum / seeds as f64,
        source: Source::Simulation,
    })
}

fn by_formula(control: Control, path: &Path, flow: &FlowPath) -> Option<Forecast> {
    let single = prediction::predict(control, path)?;
    let steady = streams::of(flow.streams, &single, path).goodput_bps;
    let bps = match flow.size.filter(|_| flow.duration.is_none()) {
        Some(size) => transfer_bps(size, path, steady),
        None => steady,
    };
    Some(Forecast {
        bps,
        source: Source::Formula,
    })
}

/// Returns payload over the time from the first packet to the last byte, bits a second.
fn transfer_bps(size: Bytes, path: &Path, steady_bps: f64) -> f64 {
    let transfer = Transfer {
        bytes: size.get(),
        initial_window: 10,
        connected: false,
    };
    let done = slow_start::completion(transfer, path, steady_bps);
    size.get() as f64 * 8.0 / done.last_byte.as_secs_f64()
}

fn path(leg: &Leg) -> Path {
    let [rmem, wmem] = leg.buffers;
    let window = receive_buffer::receive_window(rmem).min(receive_buffer::send_window(wmem));
    Path {
        rate: leg.rate,
        rtt: leg.rtt.max(Time::from_micros(1)),
        loss: leg.loss,
        mss: leg.mtu - HEADERS,
        queue: leg.queue,
        window: window.min(leg.window_max),
    }
}
