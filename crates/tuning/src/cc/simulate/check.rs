// SPDX-License-Identifier: MIT OR Apache-2.0
//! Validation: turns flags into a valid path and valid flows.

use super::{super::config::Simulate, args::Args, flow::FlowArgs};
use anyhow::Result;
use longhaul_command::{errln, exit::Refusal};
use longhaul_congestion::math::simulated::algorithm;
use longhaul_netem::{LinkConfig, Rate, Schedule, Setting, warnings::warnings};
use longhaul_tcpsim::{
    receiver::AckPolicy,
    sender::SenderConfig,
    simulation::{FlowConfig, Path},
};
use longhaul_units::{BitRate, Bytes, Time};
use std::{collections::BTreeSet, ops::RangeInclusive};

/// Most flows: each takes some hundred bytes of memory.
const STREAMS: RangeInclusive<u32> = 1..=10_000;
/// Packets in flight are counted in 32 bits, as the kernel does.
const WINDOW_BYTES_MAX: u64 = 1 << 40;
/// An hour at a millisecond: 3.6 million records a flow.
const RECORDS_MAX: u64 = 10_000_000;

impl Args {
    /// Validates the arguments.
    pub(in super::super) fn config(&self) -> Result<Simulate> {
        let (forward, reverse) = link_configs(self)?;
        let Rate::Constant(rate) = forward.rate else {
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
        let changes = schedule(self, [&forward, &reverse])?;
        Ok(Simulate {
            path: Path {
                forward,
                reverse,
                forward_changes: changes.clone(),
                reverse_changes: changes,
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

/// Returns both directions of the path: data's, then ACKs'.
fn link_configs(args: &Args) -> Result<(LinkConfig, LinkConfig)> {
    let (mut forward, mut reverse) = (LinkConfig::default(), LinkConfig::default());
    let (forward_delay, reverse_delay) = delays(args);
    forward.apply(Setting::Delay(forward_delay));
    reverse.apply(Setting::Delay(reverse_delay));
    set(&mut forward, "rate", &args.rate)?;
    for (key, value) in [("queue", &args.queue), ("loss", &args.loss)] {
        if let Some(value) = value {
            set(&mut forward, key, value)?;
        }
    }
    set_all(&mut forward, &args.forward)?;
    set_all(&mut reverse, &args.backward)?;
    for config in [&forward, &reverse] {
        config.check().map_err(Refusal::usage)?;
    }
    Ok((forward, reverse))
}

fn delays(args: &Args) -> (Time, Time) {
    let rtt = args.rtt.unwrap_or(Time::ZERO);
    let half = Time::from_nanos(rtt.as_nanos() / 2);
    match args.delay {
        Some(delay) => (delay, delay),
        None => (half, rtt - half),
    }
}

fn set_all(config: &mut LinkConfig, settings: &[String]) -> Result<()> {
    for setting in settings {
        let (key, value) = setting.split_once('=').ok_or_else(|| {
            Refusal::usage(format!("{setting:?} is not KEY=VALUE, as in loss=0.1%"))
        })?;
        set(config, key, value)?;
    }
    Ok(())
}

fn set(config: &mut LinkConfig, key: &str, value: &str) -> Result<()> {
    config.apply(Setting::parse(key, value).map_err(Refusal::usage)?);
    Ok(())
}

/// Returns the scheduled changes, after checking that each leaves both directions valid. Warns of settings that are
/// seldom meant.
fn schedule(args: &Args, configs: [&LinkConfig; 2]) -> Result<Schedule> {
    let mut schedule = Schedule::default();
    for change in &args.at {
        schedule.add_text(change).map_err(Refusal::usage)?;
    }
    let mut found = BTreeSet::new();
    for config in configs {
        let mut config = config.clone();
        found.extend(warnings(&config));
        for (_, setting) in schedule.iter() {
            config.apply(setting.clone());
            config.check().map_err(Refusal::usage)?;
            found.extend(warnings(&config));
        }
    }
    found
        .iter()
        .for_each(|warning| errln!("warning: {warning}"));
    Ok(schedule)
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
