// SPDX-License-Identifier: MIT OR Apache-2.0
//! Throughput by a short run of simulated TCP, for cases in which closed forms are inaccurate.

use anyhow::{Result, anyhow};
use longhaul_congestion::math::simulated::algorithm;
use longhaul_netem::{LinkConfig, Rate, Setting};
use longhaul_tcpsim::{
    formulas::{Control, Path},
    receiver::AckPolicy,
    sender::SenderConfig,
    simulation::{FlowConfig, Path as SimulatedPath, Simulation},
};
use longhaul_units::Time;

/// Measured span of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Span {
    /// Time at the beginning that does not count.
    pub(super) omit: Time,
    /// Measured time after it.
    pub(super) duration: Time,
}

/// Most packets of one run: a second of one core, or less.
const PACKETS_MAX: f64 = 1e8;
/// Desired and fewest losses of a mean.
const LOSSES: f64 = 300.0;
const LOSSES_MIN: f64 = 20.0;
/// Shortest run, in seconds and in round trips.
const SECONDS_MIN: f64 = 20.0;
const ROUNDS_MIN: f64 = 100.0;

/// Whether `control` can be simulated.
pub(super) fn is_supported(control: Control) -> bool {
    control != Control::Bbr
}

/// Returns the span for the steady state at about `expected_bps`; `None` if it is too long to
/// simulate.
pub(super) fn steady_span(path: &Path, expected_bps: f64) -> Option<Span> {
    let packets = (expected_bps / path.packet_bits()).max(1.0);
    let for_losses = if path.loss > 0.0 {
        LOSSES / (path.loss * packets)
    } else {
        0.0
    };
    let wanted = for_losses.max(SECONDS_MIN).max(ROUNDS_MIN * path.rtt_s());
    let seconds = wanted.min(PACKETS_MAX / packets);
    let enough = seconds >= SECONDS_MIN.min(wanted)
        && (path.loss <= 0.0 || seconds * packets * path.loss >= LOSSES_MIN);
    enough.then(|| Span {
        omit: Time::from_secs_f64(seconds / 3.0),
        duration: Time::from_secs_f64(seconds),
    })
}

/// Returns the payload bits a second of `streams` flows together, in the span.
pub(super) fn goodput_bps(
    control: Control,
    path: &Path,
    streams: u32,
    span: Span,
    seed: u64,
) -> Result<f64> {
    let flows = (0..streams)
        .map(|_| flow(control, path))
        .collect::<Result<Vec<_>>>()?;
    let mut simulation = Simulation::new(path_config(path, seed), flows);
    simulation.run_until(span.omit);
    let before = acked(&mut simulation);
    simulation.run_until(span.omit + span.duration);
    let packets = acked(&mut simulation) - before;
    Ok(packets as f64 * path.packet_bits() / span.duration.as_secs_f64())
}

fn acked(simulation: &mut Simulation) -> u64 {
    (0..simulation.flows())
        .map(|flow| simulation.sender(flow).acked())
        .sum()
}

fn flow(control: Control, path: &Path) -> Result<FlowConfig> {
    let control = algorithm(control.name(), false).map_err(|reason| anyhow!(reason))?;
    Ok(FlowConfig {
        start: Time::ZERO,
        extra_rtt: Time::ZERO,
        sender: SenderConfig {
            mss: path.mss,
            receive_window: path.window,
            send_buffer: path.window,
            ..SenderConfig::default()
        },
        acks: AckPolicy::default(),
        control,
    })
}

fn path_config(path: &Path, seed: u64) -> SimulatedPath {
    let forward_delay = Time::from_nanos(path.rtt.as_nanos() / 2);
    let mut forward = LinkConfig::default();
    forward.apply(Setting::Delay(forward_delay));
    forward.rate = Rate::Constant(path.rate);
    set(&mut forward, "queue", &path.queue.exact());
    if path.loss > 0.0 {
        set(
            &mut forward,
            "loss",
            &longhaul_netem::grammar::share_text(path.loss),
        );
    }
    let mut reverse = LinkConfig::default();
    reverse.apply(Setting::Delay(path.rtt - forward_delay));
    SimulatedPath {
        forward,
        reverse,
        seed,
        ..SimulatedPath::default()
    }
}

/// Applies a setting whose value is known to be valid.
fn set(config: &mut LinkConfig, key: &str, value: &str) {
    let setting = Setting::parse(key, value);
    config.apply(setting.expect("a validated path has valid settings"));
}
