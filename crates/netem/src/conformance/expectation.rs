// SPDX-License-Identifier: MIT OR Apache-2.0
//! Expected settings (`--expect`): checks which of them a probe can test, and finds the deviations of a path from them.
//!
//! Delays that the testing machine adds can make a conforming path fail. The bounds below allow for small ones. A
//! script that needs other bounds compares the figures itself.

use super::{
    Conformance, Packet, Recording, Timing, check_conformance,
    recording::{micros, quantile, sorted},
};
use crate::{LinkConfig, Rate, ScheduledConfig, loss::Loss};
use longhaul_stats::fit;
use longhaul_units::Ratio;

/// Maximum median delay error, in µs. It is [`DELAY_ERROR_MAX_RATIO`] of the delay if that is more.
const DELAY_ERROR_MAX_US: f64 = 1_000.0;
const DELAY_ERROR_MAX_RATIO: f64 = 0.01;
/// Maximum time by which a packet may be too early, in µs. Delays that the machine adds make no packet early.
const EARLY_MAX_US: f64 = 100.0;
/// Minimum p-value that passes. For each figure, a conforming path fails once in a thousand probes.
const P_MIN: f64 = 0.001;
/// Maximum relative error of the rate.
const RATE_ERROR_MAX_RATIO: f64 = 0.01;
/// Maximum 99th percentile of the delay error, in µs. It is [`TAIL_ERROR_MAX_RATIO`] of the delay if that is more.
const TAIL_ERROR_MAX_US: f64 = 10_000.0;
const TAIL_ERROR_MAX_RATIO: f64 = 0.1;

/// Settings that a probe can test.
const TESTABLE_SETTINGS: &str = "delay, jitter, rate, loss, duplicate, corrupt and reorder";

/// Expected settings of a path.
#[derive(Debug)]
pub struct Expectation {
    config: LinkConfig,
    keys: Vec<String>,
}

impl Expectation {
    /// Parses `KEY=VALUE`s; `None` if there are none.
    ///
    /// # Errors
    /// A setting is not valid, or a probe of this timing cannot test it.
    pub fn parse(settings: &[String], timing: Timing) -> Result<Option<Self>, String> {
        let no_file = |name: &str| Err(format!("{name}: a probe reads no file"));
        let config = ScheduledConfig::default().with_overrides(settings, &no_file);
        let key = |text: &String| text.split('=').next().unwrap_or_default().trim().to_owned();
        let expected = Self {
            config: config.map_err(|error| format!("--expect {error}"))?.initial,
            keys: settings.iter().map(key).collect(),
        };
        let refused = expected
            .keys
            .iter()
            .find_map(|key| expected.untestable_reason(key, timing));
        match refused {
            Some(why) => Err(format!("--expect {why}")),
            None => {
                expected.config.check().map_err(|error| error.to_string())?;
                Ok((!settings.is_empty()).then_some(expected))
            }
        }
    }

    /// Returns the reason why a setting cannot be tested, or `None` if it can.
    fn untestable_reason(&self, key: &str, timing: Timing) -> Option<String> {
        let (is_queued, config) = (super::is_queued(&self.config, timing), &self.config);
        let has_jitter = !config.jitter.is_none();
        let why = match key {
            "delay" if is_queued => "packets queue behind each other: increase --interval",
            "jitter" if is_queued => "packets queue behind each other: increase --interval",
            "jitter" if has_jitter && !config.jitter.reorder => {
                "a packet may wait for the one before it: test links whose jitter has ,reorder"
            }
            "jitter" if !self.has("delay") => "it is visible in delays only: expect a delay, too",
            "reorder" if config.reorder.probability > Ratio::ZERO && !self.has("delay") => {
                "packets that are held back are recognised by their delay: expect a delay, too"
            }
            "reorder" if is_queued || has_jitter => {
                "it is tested by delays, without jitter and a queue"
            }
            "rate"
                if matches!(config.rate, Rate::Constant(_)) && !is_queued && !self.has("delay") =>
            {
                "packets are further apart than their transmission time: add --interval 0s --count 500 --packet-size 1500"
            }
            "rate" if matches!(config.rate, Rate::Unlimited) && !self.has("delay") => {
                "it is visible in delays only: expect a delay, too"
            }
            "loss" if matches!(config.loss, Loss::Exact(_)) => {
                "a link counts from its start, which a probe does not see"
            }
            "loss" if is_mixture(&config.loss) => {
                "gilbert can be tested only with good=0% and bad=100%"
            }
            "corrupt" if matches!(config.loss, Loss::GilbertElliott { .. }) => {
                "corrupt packets look lost: expect it without gilbert"
            }
            "overhead" if self.has("rate") || self.has("delay") => return None,
            "delay" | "jitter" | "reorder" | "rate" | "loss" | "corrupt" | "duplicate" => {
                return None;
            }
            _ => {
                return Some(format!(
                    "{key}: a probe cannot test it; it tests {TESTABLE_SETTINGS}"
                ));
            }
        };
        Some(format!("{key}: cannot be tested: {why}"))
    }

    fn has(&self, key: &str) -> bool {
        self.keys.iter().any(|known| known == key)
    }

    /// Tests the path against the expected settings. Delays are compared with a delay that was named, not with 0.
    #[must_use]
    pub fn conformance(&self, recording: &Recording) -> Conformance {
        let conformance = check_conformance(recording, &self.config);
        if self.has("delay") {
            conformance
        } else {
            conformance.without_delays()
        }
    }

    /// Returns the deviations of the path, each with its figure.
    #[must_use]
    pub fn deviations(&self, recording: &Recording, conformance: &Conformance) -> Vec<String> {
        let deviations = self.keys.iter().filter_map(|key| {
            let deviation = match key.as_str() {
                // Jitter is tested together with the delay.
                "delay" => self.delay_deviation(recording, conformance),
                "rate" => self.rate_deviation(recording, conformance),
                "loss" | "corrupt" => self.loss_deviation(recording, conformance),
                "duplicate" => count_deviation(
                    recording.summary.duplicated,
                    recording.summary.received,
                    self.config.duplicate,
                ),
                "reorder" => self.reorder_deviation(recording),
                _ => None,
            };
            deviation.map(|deviation| format!("{key}: {deviation}"))
        });
        deviations
            .chain(self.unnamed_deviations(recording))
            .collect()
    }

    /// Returns what nobody named, and a path without it would not do. A queue that overflows is such a path, if packets
    /// are sent faster than the rate.
    fn unnamed_deviations(&self, recording: &Recording) -> impl Iterator<Item = String> {
        let (summary, config) = (&recording.summary, &self.config);
        let may_lose = super::is_queued(config, recording.timing);
        let may_overtake = config.jitter.reorder || self.has("reorder");
        let found = [
            (
                "loss",
                summary.lost,
                may_lose || self.has("loss") || self.has("corrupt"),
            ),
            ("duplicate", summary.duplicated, self.has("duplicate")),
            ("reorder", summary.reordered, may_overtake),
        ];
        let unnamed = found
            .into_iter()
            .filter(|(_, count, named)| *count > 0 && !named);
        let sent = summary.sent;
        unnamed
            .map(move |(key, count, _)| format!("{key}: {count} of {sent} packets, expected none"))
    }

    fn delay_deviation(&self, recording: &Recording, conformance: &Conformance) -> Option<String> {
        if let Some(p) = conformance.jitter_p {
            return improbable(p, "such delays");
        }
        let transit = super::transit_ns(&self.config, recording.timing);
        let held_back_from = self.held_back_from_ns();
        let delays = recording.packets.iter().filter_map(Packet::delay_ns);
        let errors = sorted(
            delays
                .map(|delay| delay - transit)
                .filter(|error| *error < held_back_from),
        );
        let (Some(first), Some(median)) = (errors.first(), quantile(&errors, 0.5)) else {
            return Some("no packet arrived".to_owned());
        };
        let early = micros(-first);
        if early > EARLY_MAX_US {
            return Some(format!(
                "the earliest packet is {early:.0} µs too early, the median error is {median:.0} µs"
            ));
        }
        let delay_us = self.config.delay.as_secs_f64() * 1e6;
        let tail = quantile(&errors, 0.99).unwrap_or(median);
        let bounds = [
            (
                "median error",
                median.abs(),
                DELAY_ERROR_MAX_US.max(delay_us * DELAY_ERROR_MAX_RATIO),
            ),
            (
                "99th percentile of the error",
                tail,
                TAIL_ERROR_MAX_US.max(delay_us * TAIL_ERROR_MAX_RATIO),
            ),
        ];
        let exceeded = bounds
            .into_iter()
            .find(|(_, error, allowed)| error > allowed);
        exceeded.map(|(what, error, allowed)| {
            format!("the {what} is {error:.0} µs, at most {allowed:.0} µs are allowed")
        })
    }

    /// Returns the delay, beyond the transit time, from which on a packet counts as held back, ns.
    fn held_back_from_ns(&self) -> i64 {
        match self.config.reorder.probability {
            Ratio::ZERO => i64::MAX,
            _ => (self.config.reorder.hold.as_nanos() / 2) as i64,
        }
    }

    fn rate_deviation(&self, recording: &Recording, conformance: &Conformance) -> Option<String> {
        if !super::is_queued(&self.config, recording.timing) {
            return None;
        }
        match conformance.drain_error_ratio {
            Some(error) if error > RATE_ERROR_MAX_RATIO => {
                Some(format!("off by {:.1} %", error * 100.0))
            }
            Some(_) => None,
            None => Some("too few packets arrived".to_owned()),
        }
    }

    fn loss_deviation(&self, recording: &Recording, conformance: &Conformance) -> Option<String> {
        let summary = &recording.summary;
        match &self.config.loss {
            Loss::GilbertElliott { .. } => match (conformance.bursts_p, conformance.gaps_p) {
                (Some(bursts), Some(gaps)) => {
                    improbable(bursts, "such bursts").or_else(|| improbable(gaps, "such gaps"))
                }
                _ => Some(format!(
                    "{} packets lost are too few to test it",
                    summary.lost
                )),
            },
            loss => {
                let passes = (1.0 - loss.mean()) * (1.0 - self.config.corrupt.get());
                let lost = Ratio::new(1.0 - passes).unwrap_or(Ratio::ONE);
                let gaps = conformance
                    .gaps_p
                    .filter(|_| self.config.corrupt == Ratio::ZERO);
                count_deviation(summary.lost, summary.sent, lost)
                    .or_else(|| improbable(gaps?, "such gaps"))
            }
        }
    }

    fn reorder_deviation(&self, recording: &Recording) -> Option<String> {
        let transit = super::transit_ns(&self.config, recording.timing);
        let summary = &recording.summary;
        let held_back = match self.config.reorder.probability {
            Ratio::ZERO => summary.reordered,
            _ => {
                let delays = recording.packets.iter().filter_map(Packet::delay_ns);
                delays
                    .filter(|delay| delay - transit >= self.held_back_from_ns())
                    .count() as u32
            }
        };
        count_deviation(held_back, summary.received, self.config.reorder.probability)
    }
}

/// Returns whether the lengths of bursts and gaps of a model are not geometric.
fn is_mixture(loss: &Loss) -> bool {
    matches!(loss, Loss::GilbertElliott { .. }) && !super::is_gilbert(loss)
}

fn improbable(p: f64, what: &str) -> Option<String> {
    (p < P_MIN).then(|| format!("{what} are improbable (p = {p:.2e})"))
}

/// Returns a deviation if `count` of `total` packets is improbable for independent events of this probability.
fn count_deviation(count: u32, total: u32, probability: Ratio) -> Option<String> {
    let p = match (probability, count) {
        (_, _) if total == 0 => return Some("no packet arrived".to_owned()),
        (Ratio::ZERO, 0) => 1.0,
        (Ratio::ZERO, _) => 0.0,
        _ => fit::binomial(count.into(), total.into(), probability.get()),
    };
    (p < P_MIN).then(|| format!("{count} of {total} packets, expected {probability} (p = {p:.2e})"))
}

#[cfg(test)]
mod tests {
    use super::super::{
        ReceiverCounts,
        recording::tests::{TIMING, packets},
    };
    use super::*;

    const COUNT: usize = 2_000;

    fn deviations_of(
        settings: &[&str],
        delays: Vec<Option<i64>>,
        counts: ReceiverCounts,
        timing: Timing,
    ) -> Vec<String> {
        let settings: Vec<_> = settings.iter().map(|text| (*text).to_owned()).collect();
        let expected = Expectation::parse(&settings, timing).unwrap().unwrap();
        let recording = Recording::new(timing, packets(delays), counts);
        expected.deviations(&recording, &expected.conformance(&recording))
    }

    fn deviations_of_delays(
        settings: &[&str],
        delay: impl Fn(usize) -> Option<i64>,
    ) -> Vec<String> {
        deviations_of(
            settings,
            (0..COUNT).map(delay).collect(),
            ReceiverCounts::default(),
            TIMING,
        )
    }

    /// Returns true for one packet in a hundred, at irregular gaps.
    fn is_lost(n: usize) -> bool {
        (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32).is_multiple_of(100)
    }

    #[test]
    fn conforming_path_has_no_deviation() {
        assert!(
            deviations_of_delays(&["delay=13ms"], |n| Some(13_000 + n as i64 % 300)).is_empty()
        );
        assert!(
            deviations_of_delays(
                &["loss=none", "duplicate=0", "corrupt=none", "reorder=0"],
                |_| Some(9)
            )
            .is_empty()
        );
        assert!(deviations_of_delays(&["loss=1%"], |n| (!is_lost(n)).then_some(9)).is_empty());
        assert!(deviations_of_delays(&["corrupt=1%"], |n| (!is_lost(n)).then_some(9)).is_empty());
        let held_back = |n| Some(13_000 + if is_lost(n) { 5_000 } else { 0 });
        assert!(deviations_of_delays(&["delay=13ms", "reorder=1%:5ms"], held_back).is_empty());
        let twice = ReceiverCounts {
            duplicated: 20,
            ..ReceiverCounts::default()
        };
        assert!(deviations_of(&["duplicate=1%"], vec![Some(9); COUNT], twice, TIMING).is_empty());
    }

    #[test]
    fn detects_deviation_of_each_setting() {
        let one = |settings: &[&str], delay: &dyn Fn(usize) -> Option<i64>| {
            let found = deviations_of_delays(settings, delay);
            let key = settings[0].split('=').next().unwrap();
            assert!(
                found.len() == 1 && found[0].starts_with(key),
                "{settings:?}: {found:?}"
            );
        };
        one(&["delay=20ms"], &|_| Some(13_000));
        one(&["delay=11ms"], &|_| Some(13_000));
        one(&["delay=13ms"], &|n| {
            Some(if n % 50 == 0 { 40_000 } else { 13_000 })
        });
        one(&["delay=0", "jitter=5ms,reorder"], &|_| Some(0));
        one(&["loss=none"], &|n| (n != 7).then_some(9));
        one(&["loss=1%"], &|_| Some(9));
        one(&["loss=1%"], &|_| None);
        one(&["loss=gilbert:p=1%,r=25%"], &|_| Some(9));
        one(&["corrupt=5%"], &|n| (!is_lost(n)).then_some(9));
        one(&["duplicate=1%"], &|_| Some(9));
        one(&["reorder=1%:5ms", "delay=0"], &|_| Some(0));
        let none = ReceiverCounts::default();
        for (key, counts) in [
            (
                "duplicate=none",
                ReceiverCounts {
                    duplicated: 1,
                    ..none
                },
            ),
            (
                "reorder=none",
                ReceiverCounts {
                    reordered: 1,
                    ..none
                },
            ),
        ] {
            assert_eq!(
                deviations_of(&[key], vec![Some(9); COUNT], counts, TIMING).len(),
                1,
                "{key}"
            );
        }
        let unnamed = ReceiverCounts {
            duplicated: 3,
            reordered: 2,
            ..ReceiverCounts::default()
        };
        let delays = (0..COUNT)
            .map(|n| (!is_lost(n)).then_some(13_000))
            .collect();
        let found = deviations_of(&["delay=13ms"], delays, unnamed, TIMING);
        let keys: Vec<_> = found
            .iter()
            .filter_map(|text| text.split(':').next())
            .collect();
        assert_eq!(keys, ["loss", "duplicate", "reorder"], "{found:?}");
        let burst = Timing {
            interval_ns: 0,
            ..TIMING
        };
        let queued: Vec<_> = (0..COUNT as i64).map(|n| Some(400_000 - 200 * n)).collect();
        for rate in ["rate=2mbit", "rate=1.015mbit"] {
            let queued = Vec::clone(&queued);
            let found = deviations_of(&[rate], queued, ReceiverCounts::default(), burst);
            assert!(
                found.len() == 1 && found[0].starts_with("rate"),
                "{found:?}"
            );
        }
        let found = deviations_of(
            &["rate=1.005mbit"],
            queued,
            ReceiverCounts::default(),
            burst,
        );
        assert_eq!(found, [""; 0]);
    }

    #[test]
    fn rejects_untestable_settings() {
        for (settings, word) in [
            (vec!["queue=10p", "rate=1mbit"], "queue"),
            (vec!["jitter=2ms"], "reorder"),
            (vec!["rate=1gbit"], "--interval"),
            (vec!["loss=at:5"], "from its start"),
            (vec!["loss=gilbert:p=1%,r=25%,bad=50%"], "gilbert"),
            (vec!["ack-thin=3"], "ack-thin"),
            (vec!["allow-reordering=yes"], "allow-reordering"),
            (vec!["delay=1ms", "rate=0.1mbit"], "--interval"),
        ] {
            let settings: Vec<_> = settings.iter().map(|text| (*text).to_owned()).collect();
            let error = Expectation::parse(&settings, TIMING)
                .unwrap_err()
                .to_string();
            assert!(error.contains(word), "{error}");
        }
    }
}
