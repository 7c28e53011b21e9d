// SPDX-License-Identifier: MIT OR Apache-2.0
//! Conformance tests: the settings of a path compared with the packets that crossed it. They use none of the code that
//! emulates links, so that they test it independently.
//!
//! A p-value is the probability that a conforming path shows a deviation at least this large. Delays that the testing
//! machine adds can only lower it: they can make a conforming path fail, but not a deviating one pass.

mod expectation;
mod recording;

pub use expectation::Expectation;
pub use recording::{Packet, ReceiverCounts, Recording, Summary, Timing};

use crate::{LinkConfig, Rate, loss::Loss};
use longhaul_stats::fit;
use longhaul_units::{BitRate, Time};
use recording::{micros, quantile, sorted};
use serde::Serialize;
use std::fmt;

/// Results of the tests that the probe's timing and the path's settings allow.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Conformance {
    /// Median of the absolute delay error, µs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) delay_error_median_us: Option<f64>,
    /// 99th percentile of the absolute delay error, µs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) delay_error_p99_us: Option<f64>,
    /// Time by which the earliest packet was too early, µs. A queue makes no packet early, so this is valid for any
    /// path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) delay_early_us: Option<f64>,
    /// p-value of the delays under the declared distribution (Kolmogorov–Smirnov).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) jitter_p: Option<f64>,
    /// p-value of the number of lost packets (binomial).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) losses_p: Option<f64>,
    /// p-value of the lengths of bursts of losses (χ² against the geometric law).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) bursts_p: Option<f64>,
    /// p-value of the lengths of the gaps between losses (χ² against the geometric law).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) gaps_p: Option<f64>,
    /// Rate at which a queue drained while packets arrived faster, bits/s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) drain_bps: Option<f64>,
    /// Relative error of that rate against the declared one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) drain_error_ratio: Option<f64>,
}

/// Tests a recording against the settings of the path that it crossed.
#[must_use]
pub fn check_conformance(recording: &Recording, config: &LinkConfig) -> Conformance {
    let mut conformance = Conformance::default();
    let path = PathModel::new(config, recording.timing);
    let packets = &recording.packets;
    if path.is_queued {
        conformance.check_drain(&path, packets);
    } else {
        conformance.check_delay(&path, packets);
    }
    conformance.check_loss(&config.loss, packets);
    conformance
}

/// Returns the names of the figures that [`check_conformance`] can yield for a probe of this timing over this path.
#[must_use]
pub fn figure_names(config: &LinkConfig, timing: Timing) -> Vec<&'static str> {
    let path = PathModel::new(config, timing);
    let mut names = match path.is_queued {
        true if path.rate.is_some() => vec!["drain_bps", "drain_error_ratio"],
        true => vec!["drain_bps"],
        false if path.has_constant_delay() => {
            vec![
                "delay_error_median_us",
                "delay_error_p99_us",
                "delay_early_us",
            ]
        }
        false if config.jitter.reorder => vec!["jitter_p"],
        false => Vec::new(),
    };
    names.extend(match &config.loss {
        Loss::Independent(_) => ["losses_p", "gaps_p"].as_slice(),
        loss if is_gilbert(loss) => &["bursts_p", "gaps_p"],
        _ => &[],
    });
    names
}

/// Returns whether packets sent with this timing queue behind each other.
fn is_queued(config: &LinkConfig, timing: Timing) -> bool {
    PathModel::new(config, timing).is_queued
}

/// Returns the one-way delay without queueing and jitter, ns.
fn transit_ns(config: &LinkConfig, timing: Timing) -> i64 {
    PathModel::new(config, timing).transit_ns
}

/// Returns whether the loss model is Gilbert's: it loses every segment in the bad state, and none in the good one.
fn is_gilbert(loss: &Loss) -> bool {
    matches!(loss, Loss::GilbertElliott { loss_in_good, loss_in_bad, .. }
        if (loss_in_good.get(), loss_in_bad.get()) == (0.0, 1.0))
}

/// Model of the path for packets sent with one timing.
struct PathModel<'a> {
    config: &'a LinkConfig,
    rate: Option<BitRate>,
    /// Bits of a packet at the transmitter, overhead included.
    bits: u64,
    /// One-way delay without queue and jitter, ns.
    transit_ns: i64,
    /// Whether packets queue behind each other.
    is_queued: bool,
}

impl<'a> PathModel<'a> {
    fn new(config: &'a LinkConfig, timing: Timing) -> Self {
        let rate = match &config.rate {
            Rate::Constant(rate) => Some(*rate),
            Rate::Unlimited | Rate::Trace(_) => None,
        };
        let bytes = u64::from(timing.packet_size) + u64::from(config.overhead);
        let transmission_time = rate.map_or(Time::ZERO, |rate| rate.time_for(bytes));
        let exceeds_rate =
            timing.gso_segments > 1 || transmission_time.as_nanos() > timing.interval_ns;
        Self {
            config,
            rate,
            bits: bytes * 8,
            transit_ns: (config.delay + transmission_time).as_nanos() as i64,
            is_queued: !matches!(config.rate, Rate::Unlimited) && exceeds_rate,
        }
    }

    /// Returns whether a packet's delay is known in advance.
    fn has_constant_delay(&self) -> bool {
        self.config.jitter.is_none() && self.config.reorder.probability.get() == 0.0
    }
}

impl Conformance {
    /// Returns the figures without those of delays.
    fn without_delays(self) -> Self {
        Self {
            delay_error_median_us: None,
            delay_error_p99_us: None,
            delay_early_us: None,
            jitter_p: None,
            ..self
        }
    }

    fn check_delay(&mut self, path: &PathModel, packets: &[Packet]) {
        let errors_ns = packets.iter().filter_map(Packet::delay_ns);
        let errors_ns = sorted(errors_ns.map(|delay| delay - path.transit_ns));
        if path.has_constant_delay() {
            let absolute = sorted(errors_ns.iter().map(|error| error.abs()));
            self.delay_error_median_us = quantile(&absolute, 0.5);
            self.delay_error_p99_us = quantile(&absolute, 0.99);
            self.delay_early_us = errors_ns.first().map(|error| micros((-error).max(0)));
        } else if path.config.jitter.reorder && !errors_ns.is_empty() {
            // On a path that keeps packets in order, a packet may wait for the one before it, so the distribution
            // differs.
            let samples: Vec<f64> = errors_ns.iter().map(|error| *error as f64).collect();
            let cdf = |x| path.config.jitter.cdf(x);
            self.jitter_p = Some(fit::kolmogorov_smirnov(&samples, cdf));
        }
    }

    /// Measures the rate between two arrivals, one early and one late in the probe: all packets after the first of them
    /// passed the transmitter in that time. Each is the least late of its quarter, because a machine makes packets late,
    /// never early.
    fn check_drain(&mut self, path: &PathModel, packets: &[Packet]) {
        let arrivals = sorted(packets.iter().filter_map(|packet| packet.received_ns));
        let Some([from, to]) = least_late(&arrivals) else {
            return;
        };
        let bits = (to - from) as u64 * path.bits;
        let drain_bps = bits as f64 / ((arrivals[to] - arrivals[from]) as f64 / 1e9);
        self.drain_bps = Some(drain_bps);
        self.drain_error_ratio = path
            .rate
            .map(|rate| (drain_bps / rate.bits() as f64 - 1.0).abs());
    }

    fn check_loss(&mut self, loss: &Loss, packets: &[Packet]) {
        let pattern: Vec<bool> = packets.iter().map(|p| p.received_ns.is_none()).collect();
        let lost = pattern.iter().filter(|lost| **lost).count() as u64;
        match loss {
            Loss::Independent(p) => {
                self.losses_p = Some(fit::binomial(lost, pattern.len() as u64, p.get()));
                self.gaps_p = fit::geometric(&run_lengths(&pattern, false), p.get());
            }
            Loss::GilbertElliott {
                good_to_bad,
                bad_to_good,
                ..
            } if is_gilbert(loss) => {
                self.bursts_p = fit::geometric(&run_lengths(&pattern, true), bad_to_good.get());
                self.gaps_p = fit::geometric(&run_lengths(&pattern, false), good_to_bad.get());
            }
            // Other Gilbert–Elliott models have no geometric runs, and losses at exact packet numbers are not random.
            _ => {}
        }
    }
}

/// Returns the arrivals of the first and the last quarter that are least late for an even rate; `None` if all came at
/// the same time.
fn least_late(arrivals: &[i64]) -> Option<[usize; 2]> {
    let last = arrivals.len().checked_sub(1).filter(|last| *last > 0)?;
    let spacing = (arrivals[last] - arrivals[0]) as f64 / last as f64;
    let lateness = |index: &usize| arrivals[*index] as f64 - *index as f64 * spacing;
    let least = |range: std::ops::RangeInclusive<usize>| {
        range.min_by(|a, b| lateness(a).total_cmp(&lateness(b)))
    };
    let pair = [least(0..=last / 4)?, least(last - last / 4..=last)?];
    (arrivals[pair[1]] > arrivals[pair[0]]).then_some(pair)
}

/// Returns the lengths of the runs of `state`. The last run of the pattern is left out, because the end of the probe
/// cuts it.
fn run_lengths(pattern: &[bool], state: bool) -> Vec<u64> {
    let runs: Vec<&[bool]> = pattern.chunk_by(|a, b| a == b).collect();
    let whole = runs.iter().take(runs.len().saturating_sub(1));
    whole
        .filter(|run| run[0] == state)
        .map(|run| run.len() as u64)
        .collect()
}

impl fmt::Display for Conformance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let figures = [
            ("delay error, median", self.delay_error_median_us, "µs"),
            ("delay error, p99", self.delay_error_p99_us, "µs"),
            ("earliest packet too early by", self.delay_early_us, "µs"),
            ("jitter, p-value", self.jitter_p, ""),
            ("number of losses, p-value", self.losses_p, ""),
            ("bursts of losses, p-value", self.bursts_p, ""),
            ("gaps between losses, p-value", self.gaps_p, ""),
            ("drain rate", self.drain_bps.map(|bps| bps / 1e6), "Mbit/s"),
            (
                "drain rate error",
                self.drain_error_ratio.map(|e| e * 100.0),
                "%",
            ),
        ];
        let known = figures.iter().filter_map(|(what, value, unit)| {
            let value = (*value)?;
            Some(format!("{what}: {value:.3} {unit}").trim_end().to_owned())
        });
        f.write_str(&known.collect::<Vec<_>>().join("\n"))
    }
}

#[cfg(test)]
mod tests {
    use super::recording::tests::{TIMING, packets};
    use super::*;
    use crate::{Setting, jitter::JitterProcess, loss::LossProcess, random::stream};

    fn config_of(settings: &[(&str, &str)]) -> LinkConfig {
        let mut config = LinkConfig::default();
        for (key, value) in settings {
            config.apply(Setting::parse(key, value).unwrap());
        }
        config
    }

    fn conformance_of(delays: Vec<Option<i64>>, settings: &[(&str, &str)]) -> Conformance {
        let recording = Recording::new(TIMING, packets(delays), ReceiverCounts::default());
        check_conformance(&recording, &config_of(settings))
    }

    /// For every kind of path, the result has exactly the figures that [`figure_names`] announces.
    #[test]
    fn announced_figures_match_result() {
        let paths: [&[(&str, &str)]; 7] = [
            &[("delay", "1ms")],
            &[("rate", "0.5mbit")],
            &[("rate", "1mbit"), ("loss", "40%")],
            &[("loss", "gilbert:p=30%,r=40%")],
            &[("loss", "gilbert:p=30%,r=40%,bad=50%")],
            &[("jitter", "uniform:1ms")],
            &[("jitter", "uniform:1ms,reorder"), ("loss", "at:2,5")],
        ];
        for settings in paths {
            let loss = settings.iter().find(|(key, _)| *key == "loss");
            let mut delays = loss_delays(loss.map_or("0%", |(_, model)| model), 2000);
            for (n, delay) in delays.iter_mut().flatten().enumerate() {
                *delay = 1000 + (n as i64 * 7919) % 1000;
            }
            let conformance = serde_json::to_value(conformance_of(delays, settings)).unwrap();
            let found: Vec<&String> = conformance.as_object().unwrap().keys().collect();
            let mut announced = figure_names(&config_of(settings), TIMING);
            announced.sort_unstable();
            assert_eq!(found, announced, "{settings:?}");
        }
    }

    #[test]
    fn compares_delays_with_propagation_and_transmission_time() {
        // 100 bytes at 1 Mbit/s are 800 µs.
        let settings = [("delay", "13ms"), ("rate", "1mbit")];
        let delays = [13_800, 13_810, 13_790, 13_900].map(Some).to_vec();
        let conformance = conformance_of(delays, &settings);
        assert_eq!(conformance.delay_error_median_us, Some(10.0));
        assert_eq!(conformance.delay_error_p99_us, Some(100.0));
        assert_eq!(conformance.delay_early_us, Some(10.0));
        assert_eq!((conformance.jitter_p, conformance.drain_bps), (None, None));
    }

    /// Arrivals come in groups of ten, as a machine delivers them that was busy: each is late but the last of its group.
    #[test]
    fn rate_is_exact_although_packets_come_late_in_groups() {
        let delay = |n: i64| 1600 * (n / 10 * 10 + 10) - 1000 * n;
        let delays = (0..503).map(|n| Some(delay(n))).collect();
        let conformance = conformance_of(delays, &[("rate", "0.5mbit")]);
        assert!(
            conformance.drain_error_ratio.unwrap() < 1e-9,
            "{conformance:?}"
        );
    }

    #[test]
    fn back_to_back_packets_measure_rate_instead_of_delay() {
        // 100 bytes at 0.5 Mbit/s are 1.6 ms; a packet is sent every millisecond.
        let delays = (0..4).map(|n| Some(1600 + 600 * n)).collect();
        let conformance = conformance_of(delays, &[("rate", "0.5mbit")]);
        assert_eq!(conformance.delay_error_median_us, None);
        assert!((conformance.drain_bps.unwrap() - 5e5).abs() < 1.0);
        assert!(conformance.drain_error_ratio.unwrap() < 1e-6);
    }

    fn loss_delays(model: &str, count: usize) -> Vec<Option<i64>> {
        let mut process = LossProcess::new(&model.parse().unwrap(), stream(3, "loss"));
        let delay = |lost| if lost { None } else { Some(0) };
        (0..count).map(|_| delay(process.occurs())).collect()
    }

    #[test]
    fn losses_fit_only_their_own_model() {
        let independent = conformance_of(loss_delays("1%", 50_000), &[("loss", "1%")]);
        assert!(independent.losses_p.unwrap() > 0.01 && independent.gaps_p.unwrap() > 0.01);
        let bursty = conformance_of(
            loss_delays("gilbert:p=1%,r=25%", 50_000),
            &[("loss", "gilbert:p=1%,r=25%")],
        );
        assert!(bursty.bursts_p.unwrap() > 0.01 && bursty.gaps_p.unwrap() > 0.01);

        let wrong = conformance_of(loss_delays("1%", 50_000), &[("loss", "1.3%")]);
        assert!(wrong.losses_p.unwrap() < 1e-6 && wrong.gaps_p.unwrap() < 1e-3);
        // The mean loss is equal, but in bursts.
        let bunched = conformance_of(
            loss_delays("gilbert:p=1%,r=25%", 50_000),
            &[("loss", "3.846%")],
        );
        assert!(bunched.gaps_p.unwrap() < 1e-6);
        let longer = conformance_of(
            loss_delays("gilbert:p=1%,r=25%", 50_000),
            &[("loss", "gilbert:p=1%,r=35%")],
        );
        assert!(longer.bursts_p.unwrap() < 1e-3);
    }

    fn jitter_delays(model: &str) -> Vec<Option<i64>> {
        let mut process =
            JitterProcess::new(&model.parse().unwrap(), stream(3, "jitter"), Time::ZERO);
        let delay = |offset: i64| Some(300_000 + offset / 1000);
        (0..10_000)
            .map(|_| delay(process.offset(Time::ZERO)))
            .collect()
    }

    #[test]
    fn jitter_fits_only_its_own_model() {
        let p = |model: &str, declared: &str| {
            let settings = [("delay", "300ms"), ("jitter", declared)];
            conformance_of(jitter_delays(model), &settings).jitter_p
        };
        for model in [
            "40ms,reorder",
            "uniform:40ms,reorder",
            "pareto:40ms,reorder",
        ] {
            assert!(p(model, model).unwrap() > 0.01, "{model}");
            assert!(p(model, "44ms,reorder").unwrap() < 1e-3, "{model}");
        }
        assert_eq!(p("40ms", "40ms"), None, "kept in order: not tested");
    }

    #[test]
    fn tests_only_loss_if_nothing_arrived() {
        let conformance = conformance_of(vec![None; 100], &[("delay", "1ms"), ("loss", "1%")]);
        assert_eq!(
            (conformance.delay_error_median_us, conformance.gaps_p),
            (None, None)
        );
        assert!(conformance.losses_p.unwrap() < 1e-9);
    }
}
