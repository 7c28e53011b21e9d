// SPDX-License-Identifier: MIT OR Apache-2.0
//! Validation: turns flags into a valid path and valid flows.

use super::{super::config::Simulate, args::Args, flow::FlowArgs};
use anyhow::Result;
use longhaul_command::{errln, exit::Refusal};
use longhaul_congestion::math::simulated::algorithm;
use longhaul_netem::{Rate, ScheduledConfig};
use longhaul_tcpsim::{
    receiver::AckPolicy,
    sender::SenderConfig,
    simulation::{FlowConfig, Path},
};
use longhaul_units::{BitRate, Bytes, Time};
use std::{iter, ops::RangeInclusive};

/// Most flows: each takes some hundred bytes of memory.
const STREAMS: RangeInclusive<u32> = 1..=10_000;
/// Packets in flight are counted in 32 bits, as the kernel does.
const WINDOW_BYTES_MAX: u64 = 1 << 40;
/// An hour at a millisecond: 3.6 million records a flow.
const RECORDS_MAX: u64 = 10_000_000;

impl Args {
    /// Validates the arguments.
    pub(in super::super) fn config(&self) -> Result<Simulate> {
        let [forward, reverse] = directions(self)?;
        let Rate::Constant(rate) = forward.initial.rate else {
            return Err(Refusal::usage(
                "--rate unlimited: a bottleneck has a rate, as in --rate 10gbit",
            ));
        };
        if self.duration < Time::from_micros(1) {
            let duration = self.duration.exact();
            return Err(Refusal::usage(format!(
                "--duration {duration}: want at least 1us"
            )));
        }
        if !(Time::from_micros(1)..=self.duration).contains(&self.interval) {
            return Err(Refusal::usage(format!(
                "--interval {}: want 1us to the simulated time, --duration {}",
                self.interval.exact(),
                self.duration.exact()
            )));
        }
        if self.duration.as_nanos() / self.interval.as_nanos() > RECORDS_MAX {
            return Err(Refusal::usage(format!(
                "--interval {}: more than {RECORDS_MAX} records; make it longer",
                self.interval.exact()
            )));
        }
        Ok(Simulate {
            path: Path {
                forward: forward.initial,
                reverse: reverse.initial,
                forward_changes: forward.schedule,
                reverse_changes: reverse.schedule,
                seed: self.seed,
                per_packet: self.per_packet,
            },
            flows: flows(self)?,
            duration: self.duration,
            interval: self.interval,
            rate,
            json: self.json,
        })
    }
}

/// Returns both directions of the path, data's and then ACKs', with their changes. Warns of settings that are seldom
/// meant.
fn directions(args: &Args) -> Result<[ScheduledConfig; 2]> {
    let no_file = |name: &str| Err(format!("{name}: a simulated path reads no file"));
    let mut both = [ScheduledConfig::default(), ScheduledConfig::default()];
    [both[0].initial.delay, both[1].initial.delay] = delays(args);
    let given = [("queue", &args.queue), ("loss", &args.loss)].into_iter();
    let given = given.filter_map(|(key, value)| Some((key, value.as_ref()?)));
    for (key, value) in iter::once(("rate", &args.rate)).chain(given) {
        let set = both[0].set(key, value, &no_file);
        set.map_err(Refusal::usage)?;
    }
    for (config, own) in both.iter_mut().zip([&args.forward, &args.backward]) {
        let overridden = config.with_overrides(own, &no_file);
        *config = overridden.map_err(Refusal::usage)?;
        for change in &args.at {
            let set = config.set("at", change, &no_file);
            set.map_err(Refusal::usage)?;
        }
        let mut configs = config.configs();
        configs.try_for_each(|config| config.check().map_err(Refusal::usage))?;
    }
    for warning in &both[0].warnings() | &both[1].warnings() {
        errln!("warning: {warning}");
    }
    Ok(both)
}

fn delays(args: &Args) -> [Time; 2] {
    let rtt = args.rtt.unwrap_or(Time::ZERO);
    let half = Time::from_nanos(rtt.as_nanos() / 2);
    match args.delay {
        Some(delay) => [delay, delay],
        None => [half, rtt - half],
    }
}

fn flows(args: &Args) -> Result<Vec<(FlowConfig, String)>> {
    let groups = if args.flow.is_empty() {
        vec![FlowArgs {
            streams: Some(args.streams),
            ..FlowArgs::default()
        }]
    } else {
        args.flow
            .iter()
            .map(|text| FlowArgs::parse(text))
            .collect::<Result<_>>()?
    };
    let streams = |group: &FlowArgs| group.streams.unwrap_or(1);
    let total = groups.iter().map(streams).fold(0, u32::saturating_add);
    within("--streams", total, STREAMS)?;
    groups
        .iter()
        .flat_map(|group| (0..streams(group)).map(|_| flow(args, group)))
        .collect()
}

fn flow(args: &Args, own: &FlowArgs) -> Result<(FlowConfig, String)> {
    let name = own.cc.as_ref().unwrap_or(&args.cc);
    let sender = sender(args, own)?;
    let control = algorithm(name, sender.paced)
        .map_err(|reason| Refusal::usage(format!("--cc {name}: {reason}")))?;
    let ratio = own.ack_ratio.unwrap_or(args.ack_ratio);
    let settings = FlowConfig {
        start: own.start.unwrap_or(Time::ZERO),
        extra_rtt: own.extra_rtt.unwrap_or(Time::ZERO),
        sender,
        acks: AckPolicy {
            packets: within("--ack-ratio", ratio, 1..=1024)?,
            gro_interval: args.gro,
            ..AckPolicy::default()
        },
        control,
    };
    Ok((settings, name.clone()))
}

fn sender(args: &Args, own: &FlowArgs) -> Result<SenderConfig> {
    let usual = SenderConfig::default();
    let mss = within("--mss", own.mss.unwrap_or(args.mss), 536..=8948)?;
    let pace = own.pacing.as_ref().or(args.pacing.as_ref());
    let window = |name, given: Option<Bytes>, usual| {
        let (least, most) = (Bytes::new(u64::from(mss) * 2), Bytes::new(WINDOW_BYTES_MAX));
        let window = given.unwrap_or(usual);
        if (least..=most).contains(&window) {
            Ok(window)
        } else {
            Err(Refusal::usage(format!(
                "{name} {}: want {} to {}",
                window.exact(),
                least.exact(),
                most.exact()
            )))
        }
    };
    let initial_window = own.initial_window.unwrap_or(args.initial_window);
    Ok(SenderConfig {
        mss,
        initial_window: within("--initial-window", initial_window, 1..=1_000)?,
        receive_window: window("--window", own.window.or(args.window), usual.receive_window)?,
        send_buffer: window("--send-buffer", args.send_buffer, usual.send_buffer)?,
        paced: pace.is_some(),
        pacing_rate_max: match pace {
            Some(pace) => pacing_rate(pace)
                .map_err(|error| Refusal::usage(format!("--pacing {error}, or on")))?,
            None => None,
        },
        packets: own
            .bytes
            .map(|bytes| bytes.get().div_ceil(u64::from(mss)).max(1)),
    })
}

fn within<T: PartialOrd + std::fmt::Display + Copy>(
    name: &str,
    value: T,
    range: RangeInclusive<T>,
) -> Result<T> {
    if range.contains(&value) {
        Ok(value)
    } else {
        Err(Refusal::usage(format!(
            "{name} {value}: want {} to {}",
            range.start(),
            range.end()
        )))
    }
}

/// Parses `on` (`None`), or the greatest pacing rate.
fn pacing_rate(text: &str) -> Result<Option<BitRate>, String> {
    match text {
        "on" => Ok(None),
        rate => rate.parse().map(Some).map_err(|error| format!("{error}")),
    }
}
