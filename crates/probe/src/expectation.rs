// SPDX-License-Identifier: MIT OR Apache-2.0
//! What `--expect` says of a path, which of it this probe can judge, and whether the path keeps it.
//!
//! Lateness of the machine can make a true path fail. The bounds leave room for it; whoever needs others judges by the figures.

use super::{
    conformance::Conformance,
    recording::{Recording, Timing, micros, quantile, sorted},
};
use anyhow::Result;
use longhaul_command::exit::Refusal;
use longhaul_netem::{LinkConfig, Rate, Setting, loss::Loss};
use longhaul_stats::fit;
use longhaul_units::Ratio;

/// Half of the packets may be so much later or earlier than said, in microseconds, or [`DELAY_OFF_RATIO`] of the delay if that is more.
const DELAY_ERROR_MAX_US: f64 = 1_000.0;
const DELAY_ERROR_MAX_RATIO: f64 = 0.01;
/// No packet may be so much too early, in microseconds: no lateness makes one early.
const EARLY_MAX_US: f64 = 100.0;
/// A true path looks odder than that once in a thousand probes, for each figure.
const P_MIN: f64 = 0.001;
/// How far the rate may be off: some packets of a burst come together.
const RATE_ERROR_MAX_RATIO: f64 = 0.05;

/// The settings that a probe can judge.
const TESTABLE_SETTINGS: &str = "delay, jitter, rate, loss, duplicate, corrupt and reorder";

/// A path as it is said to be.
#[derive(Debug)]
pub(super) struct Expectation {
    pub(super) config: LinkConfig,
    keys: Vec<String>,
}

impl Expectation {
    /// Reads `KEY=VALUE`s; `None` if there are none. Refuses what a probe of this timing can't judge.
    pub(super) fn parse(settings: &[String], timing: Timing) -> Result<Option<Self>> {
        let mut expected = Self {
            config: LinkConfig::default(),
            keys: Vec::new(),
        };
        for text in settings {
            let (key, value) = text
                .split_once('=')
                .ok_or_else(|| Refusal::usage(format!("--expect {text:?} is not KEY=VALUE")))?;
            let setting = Setting::parse(key.trim(), value).map_err(Refusal::usage)?;
            expected.config.apply(setting);
            if expected.has(key.trim()) {
                let text = format!("--expect {}: is there twice", key.trim());
                return Err(Refusal::usage(text));
            }
            expected.keys.push(key.trim().to_owned());
        }
        let refused = expected
            .keys
            .iter()
            .find_map(|key| expected.untestable_reason(key, timing));
        match refused {
            Some(why) => Err(Refusal::usage(format!("--expect {why}"))),
            None => {
                expected.config.check().map_err(Refusal::usage)?;
                Ok((!settings.is_empty()).then_some(expected))
            }
        }
    }

    /// Why a setting can't be judged.
    fn untestable_reason(&self, key: &str, timing: Timing) -> Option<String> {
        let (queues, shape) = (
            super::conformance::is_queued(&self.config, timing),
            &self.config,
        );
        let jitters = !shape.jitter.is_none();
        let why = match key {
            "delay" if queues => {
                "packets wait for each other: send them further apart, by --interval"
            }
            "jitter" if queues => {
                "packets wait for each other: send them further apart, by --interval"
            }
            "jitter" if jitters && !shape.jitter.reorder => {
                "a packet may wait for the one before it: say so of a link whose jitter has ,reorder"
            }
            "jitter" if !self.has("delay") => "it shows in delays only: expect a delay, too",
            "reorder" if shape.reorder.probability > Ratio::ZERO && !self.has("delay") => {
                "packets that are held back are told by their delay: expect a delay, too"
            }
            "reorder" if queues || jitters => "it is judged by delays, without jitter and a queue",
            "rate" if matches!(shape.rate, Rate::Constant(_)) && !queues && !self.has("delay") => {
                "packets are further apart than their sending time: add --interval 0s --count 500 --length 1500"
            }
            "rate" if matches!(shape.rate, Rate::Unlimited) && !self.has("delay") => {
                "it shows in delays only: expect a delay, too"
            }
            "loss" if matches!(shape.loss, Loss::Exact(_)) => {
                "a link counts from its start, which a probe doesn't see"
            }
            "loss" if is_mixture(&shape.loss) => {
                "of gilbert, only good=0% and bad=100% can be judged"
            }
            "corrupt" if matches!(shape.loss, Loss::GilbertElliott { .. }) => {
                "wrong packets look lost: expect it without gilbert"
            }
            "overhead" if self.has("rate") || self.has("delay") => return None,
            "delay" | "jitter" | "reorder" | "rate" | "loss" | "corrupt" | "duplicate" => {
                return None;
            }
            _ => {
                return Some(format!(
                    "{key}: a probe can't judge it; it judges {TESTABLE_SETTINGS}"
                ));
            }
        };
        Some(format!("{key}: can't be judged so: {why}"))
    }

    fn has(&self, key: &str) -> bool {
        self.keys.iter().any(|known| known == key)
    }

    /// What the path does not keep, each with its figure.
    pub(super) fn deviations(
        &self,
        recording: &Recording,
        conformance: &Conformance,
    ) -> Vec<String> {
        let faults = self.keys.iter().filter_map(|key| {
            let fault = match key.as_str() {
                // A jitter has its delay beside it.
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
            fault.map(|fault| format!("{key}: {fault}"))
        });
        faults.collect()
    }

    fn delay_deviation(&self, recording: &Recording, conformance: &Conformance) -> Option<String> {
        if let Some(p) = conformance.jitter_p {
            return improbable(p, "such delays");
        }
        let transit = super::conformance::transit_ns(&self.config, recording.timing);
        let hold = self.held_back_from_ns();
        let delays = recording
            .packets
            .iter()
            .filter_map(super::recording::Packet::delay_ns);
        let errors = sorted(
            delays
                .map(|delay| delay - transit)
                .filter(|stray| *stray < hold),
        );
        let (Some(first), Some(off)) = (errors.first(), quantile(&errors, 0.5)) else {
            return Some("no packet came".to_owned());
        };
        let early = micros(-first);
        let may =
            DELAY_ERROR_MAX_US.max(self.config.delay.as_secs_f64() * 1e6 * DELAY_ERROR_MAX_RATIO);
        match (early > EARLY_MAX_US, off.abs() > may) {
            (true, _) => Some(format!(
                "the earliest packet is {early:.0} µs too early, half of all {off:.0} µs off"
            )),
            (false, true) => Some(format!(
                "half of the packets are {off:.0} µs off and more, of {may:.0} µs that may be"
            )),
            (false, false) => None,
        }
    }

    /// Packets that are later than that were held back, in nanoseconds.
    fn held_back_from_ns(&self) -> i64 {
        match self.config.reorder.probability {
            Ratio::ZERO => i64::MAX,
            _ => (self.config.reorder.hold.as_nanos() / 2) as i64,
        }
    }

    fn rate_deviation(&self, recording: &Recording, conformance: &Conformance) -> Option<String> {
        if !super::conformance::is_queued(&self.config, recording.timing) {
            return None;
        }
        match conformance.drain_error_ratio {
            Some(off) if off > RATE_ERROR_MAX_RATIO => Some(format!("off by {:.1} %", off * 100.0)),
            Some(_) => None,
            None => Some("too few packets came".to_owned()),
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
                    "{} packets lost are too few to judge it",
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
        let transit = super::conformance::transit_ns(&self.config, recording.timing);
        let summary = &recording.summary;
        let held = match self.config.reorder.probability {
            Ratio::ZERO => summary.reordered,
            _ => {
                let delays = recording
                    .packets
                    .iter()
                    .filter_map(super::recording::Packet::delay_ns);
                delays
                    .filter(|delay| delay - transit >= self.held_back_from_ns())
                    .count() as u32
            }
        };
        count_deviation(held, summary.received, self.config.reorder.probability)
    }
}

/// A model whose lengths of bursts and gaps are not geometric.
fn is_mixture(loss: &Loss) -> bool {
    matches!(loss, Loss::GilbertElliott { .. }) && !super::conformance::is_gilbert(loss)
}

fn improbable(p: f64, what: &str) -> Option<String> {
    (p < P_MIN).then(|| format!("{what} are improbable (p = {p:.2e})"))
}

/// So many of all, where each is with a probability.
fn count_deviation(count: u32, all: u32, probability: Ratio) -> Option<String> {
    let p = match (probability, count) {
        (_, _) if all == 0 => return Some("no packet came".to_owned()),
        (Ratio::ZERO, 0) => 1.0,
        (Ratio::ZERO, _) => 0.0,
        _ => fit::binomial(count.into(), all.into(), probability.get()),
    };
    (p < P_MIN)
        .then(|| format!("{count} of {all} packets, where {probability} are said (p = {p:.2e})"))
}

#[cfg(test)]
mod tests {
    use super::super::{
        conformance::check_conformance,
        recording::{
            ReceiverCounts,
            tests::{TIMING, packets},
        },
    };
    use super::*;

    const COUNT: usize = 2_000;

    fn deviations_of(
        settings: &[&str],
        delays: Vec<Option<i64>>,
        oddities: ReceiverCounts,
        timing: Timing,
    ) -> Vec<String> {
        let settings: Vec<_> = settings.iter().map(|text| (*text).to_owned()).collect();
        let expected = Expectation::parse(&settings, timing).unwrap().unwrap();
        let recording = Recording::new(timing, packets(delays), oddities);
        expected.deviations(&recording, &check_conformance(&recording, &expected.config))
    }

    fn deviations_without_duplicates(
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

    /// Every hundredth and, so that gaps differ, some more.
    fn is_lost(n: usize) -> bool {
        (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32).is_multiple_of(100)
    }

    #[test]
    fn a_path_that_keeps_its_word_has_no_fault() {
        assert!(
            deviations_without_duplicates(&["delay=13ms"], |n| Some(13_000 + n as i64 % 300))
                .is_empty()
        );
        assert!(
            deviations_without_duplicates(
                &["loss=none", "duplicate=0", "corrupt=none", "reorder=0"],
                |_| Some(9)
            )
            .is_empty()
        );
        assert!(
            deviations_without_duplicates(&["loss=1%"], |n| (!is_lost(n)).then_some(9)).is_empty()
        );
        assert!(
            deviations_without_duplicates(&["corrupt=1%"], |n| (!is_lost(n)).then_some(9))
                .is_empty()
        );
        let held = |n| Some(13_000 + if is_lost(n) { 5_000 } else { 0 });
        assert!(deviations_without_duplicates(&["delay=13ms", "reorder=1%:5ms"], held).is_empty());
        let twice = ReceiverCounts {
            duplicated: 20,
            ..ReceiverCounts::default()
        };
        assert!(deviations_of(&["duplicate=1%"], vec![Some(9); COUNT], twice, TIMING).is_empty());
    }

    #[test]
    fn every_kind_has_its_fault() {
        let one = |settings: &[&str], delay: &dyn Fn(usize) -> Option<i64>| {
            let said = deviations_without_duplicates(settings, delay);
            let key = settings[0].split('=').next().unwrap();
            assert!(
                said.len() == 1 && said[0].starts_with(key),
                "{settings:?}: {said:?}"
            );
        };
        one(&["delay=20ms"], &|_| Some(13_000));
        one(&["delay=11ms"], &|_| Some(13_000));
        one(&["delay=13ms"], &|_| None);
        one(&["delay=0", "jitter=5ms,reorder"], &|_| Some(0));
        one(&["loss=none"], &|n| (n != 7).then_some(9));
        one(&["loss=1%"], &|_| Some(9));
        one(&["loss=1%"], &|_| None);
        one(&["loss=gilbert:p=1%,r=25%"], &|_| Some(9));
        one(&["corrupt=5%"], &|n| (!is_lost(n)).then_some(9));
        one(&["duplicate=1%"], &|_| Some(9));
        one(&["reorder=1%:5ms", "delay=0"], &|_| Some(0));
        let odd = ReceiverCounts {
            duplicated: 1,
            reordered: 1,
            ..ReceiverCounts::default()
        };
        for key in ["duplicate=none", "reorder=none"] {
            assert_eq!(
                deviations_of(&[key], vec![Some(9); COUNT], odd, TIMING).len(),
                1,
                "{key}"
            );
        }
        let burst = Timing {
            interval_ns: 0,
            ..TIMING
        };
        let queued = (0..COUNT as i64).map(|n| Some(800 * n)).collect();
        let said = deviations_of(&["rate=2mbit"], queued, ReceiverCounts::default(), burst);
        assert!(said.len() == 1 && said[0].starts_with("rate"), "{said:?}");
    }

    #[test]
    fn what_can_not_be_judged_is_refused() {
        for (settings, word) in [
            (vec!["queue=10p", "rate=1mbit"], "queue"),
            (vec!["jitter=2ms"], "reorder"),
            (vec!["rate=1gbit"], "--interval"),
            (vec!["loss=at:5"], "from its start"),
            (vec!["loss=gilbert:p=1%,r=25%,bad=50%"], "gilbert"),
            (vec!["ack-thin=3"], "ack-thin"),
            (vec!["order=switch"], "order"),
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
