// SPDX-License-Identifier: MIT OR Apache-2.0
//! What can be set on one direction of a link, and the one grammar in which a flag, a TOML key, a
//! schedule and the control socket all say it: a key and a value, such as `delay 80ms`.

pub use super::queue::limit::{Limit, QueueLimit};
use super::{
    grammar::{RuleError, Share, text, whole},
    jitter::Jitter,
    loss::Loss,
    queue::discipline::Discipline,
    transmitter::Rate,
};
use longhaul_units::{BitRate, Ratio, Time, bdp};
use std::{fmt, str::FromStr};

/// One thing that is set.
#[derive(Debug, Clone)]
pub enum Setting {
    /// Propagation delay, one way.
    Delay(Time),
    /// Random part of the delay.
    Jitter(Jitter),
    /// What a change of delay does to segments in flight.
    Order(Order),
    /// How fast the wire takes segments.
    Rate(Rate),
    /// Bytes added to each segment when its sending time is computed, for example 38 for Ethernet
    /// with preamble, header, check sequence and gap.
    Overhead(u32),
    /// No trace: the rate is unlimited, if it followed one.
    NoTrace,
    /// How much may wait; `None` is the default.
    Queue(Option<QueueLimit>),
    /// Which of what waits is dropped.
    Rule(Discipline),
    /// Loss ahead of the queue.
    Loss(Loss),
    /// How often a segment arrives twice.
    Duplicate(Ratio),
    /// How often one bit of a segment is wrong.
    Corrupt(Ratio),
    /// How often a segment is held back so that others overtake it.
    Reorder(Reorder),
    /// Keep one pure ACK in 2^n.
    AckThin(u8),
    /// The longest that thinning holds an ACK back.
    AckHold(Time),
    /// At most so many pure ACKs a second.
    AckPace(Option<u32>),
    /// How many pure ACKs may wait for pacing.
    AckBuffer(u32),
}

/// A key with an example, and its default.
type Key = (&'static str, &'static str, &'static str);

/// Keys in the order in which the manual lists them. The word `default` stands for the default of each.
const KEYS: [Key; 16] = [
    ("delay", "13ms", "0"),
    (
        "jitter",
        "2ms, uniform:2ms, pareto:2ms, normal:2ms,reorder or none",
        "none",
    ),
    ("order", "keep or switch", "keep"),
    ("rate", "10gbit or unlimited", "unlimited"),
    ("trace", "none; a file is read by longhaul link", "none"),
    ("overhead", "38", "0"),
    ("queue", "1bdp, 64KB, 1000p or default", "default"),
    ("rule", "tail, codel, red or red:min=100KB", "tail"),
    ("loss", "0.1%, gilbert:p=1%,r=30%, at:5,17 or none", "none"),
    ("duplicate", "0.1% or none", "none"),
    ("corrupt", "0.1% or none", "none"),
    ("reorder", "1%:5ms or none", "none"),
    ("ack-thin", "3 (one pure ACK in 2^3)", "0"),
    ("ack-hold", "10ms", "10ms"),
    (
        "ack-pace",
        "60000 (pure ACKs a second) or unlimited",
        "unlimited",
    ),
    ("ack-buffer", "1000", "1000"),
];

/// Why a setting was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SettingError {
    /// No such key.
    #[error("unknown setting {0:?}; the settings are {list}", list = key_list())]
    UnknownKey(String),
    /// The value does not fit the key.
    #[error("{key} {value:?}: {reason}")]
    BadValue {
        /// Which key.
        key: &'static str,
        /// What was given for it.
        value: String,
        /// What is wrong with it.
        reason: String,
    },
    /// Two settings that can't stand together.
    #[error("{0}")]
    Conflict(&'static str),
}

fn key_list() -> String {
    KEYS.map(|(key, ..)| key).join(", ")
}

impl Setting {
    /// Reads one setting.
    pub fn parse(key: &str, value: &str) -> Result<Self, SettingError> {
        let (key, example, default) = *KEYS
            .iter()
            .find(|(known, ..)| *known == key)
            .ok_or_else(|| SettingError::UnknownKey(key.to_owned()))?;
        let read = match value.trim() {
            "default" => default,
            read => read,
        };
        Self::parse_known(key, read).map_err(|reason| SettingError::BadValue {
            key,
            value: value.to_owned(),
            reason: format!("{reason} (for example {example})"),
        })
    }

    fn parse_known(key: &str, value: &str) -> Result<Self, String> {
        match key {
            "delay" => text(value).map(Self::Delay),
            "jitter" => rule(value).map(Self::Jitter),
            "order" => text(value).map(Self::Order),
            "rate" => unless("unlimited", value, text::<BitRate>)
                .map(|rate| Self::Rate(rate.map_or(Rate::Unlimited, Rate::Constant))),
            "trace" if value == "none" => Ok(Self::NoTrace),
            "trace" => Err("not none".to_owned()),
            "overhead" => whole(value, 0, 1_000).map(Self::Overhead),
            "queue" => unless("default", value, text).map(Self::Queue),
            "rule" => rule(value).map(Self::Rule),
            "loss" => rule(value).map(Self::Loss),
            "duplicate" => text(value).map(|share: Share| Self::Duplicate(share.0)),
            "corrupt" => text(value).map(|share: Share| Self::Corrupt(share.0)),
            "reorder" => text(value).map(Self::Reorder),
            "ack-thin" => whole(value, 0, 10).map(|n| Self::AckThin(n as u8)),
            "ack-hold" => text(value).map(Self::AckHold),
            "ack-pace" => {
                unless("unlimited", value, |v| whole(v, 1, 100_000_000)).map(Self::AckPace)
            }
            _ => whole(value, 1, 1_000_000).map(Self::AckBuffer),
        }
    }
}

/// What is wrong with a rule: key and value are named already.
fn rule<T: FromStr<Err = RuleError>>(value: &str) -> Result<T, String> {
    value.parse().map_err(RuleError::into_reason)
}

fn unless<T>(
    word: &str,
    value: &str,
    parse: impl Fn(&str) -> Result<T, String>,
) -> Result<Option<T>, String> {
    if value == word {
        Ok(None)
    } else {
        parse(value).map(Some)
    }
}

/// What a change of delay means for segments in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Order {
    /// The wire got longer or shorter: no segment overtakes one that was sent before it.
    #[default]
    Keep,
    /// The path was switched: segments in flight arrive as they would have, and those sent after a
    /// change to a shorter path overtake them.
    Switch,
}

impl FromStr for Order {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "keep" => Ok(Self::Keep),
            "switch" => Ok(Self::Switch),
            _ => Err("not keep or switch"),
        }
    }
}

/// Segments held back: each with probability `probability`, for `hold`.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Reorder {
    /// How often.
    pub probability: Ratio,
    /// How much longer such a segment travels.
    pub hold: Time,
}

impl FromStr for Reorder {
    type Err = String;

    fn from_str(value: &str) -> Result<Self, String> {
        let Some((share, hold)) = value.split_once(':') else {
            return match text::<Share>(value)? {
                Share(Ratio::ZERO) => Ok(Self::default()),
                Share(_) => Err("needs a share and a time, as in 1%:5ms".to_owned()),
            };
        };
        let Share(probability) = text(share)?;
        Ok(Self {
            probability,
            hold: text(hold)?,
        })
    }
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Keep => "keep",
            Self::Switch => "switch",
        })
    }
}

impl fmt::Display for Reorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.probability {
            Ratio::ZERO => f.write_str("none"),
            share => write!(f, "{}:{}", share.percent(), self.hold.exact()),
        }
    }
}

/// Rules for pure ACKs (`reference`: the ACK-ratio and ACK-pacing experiments).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AckShape {
    /// Keep one in 2^thin.
    pub thin: u8,
    /// The longest that thinning holds an ACK back: well below the path's RTT, so that the sender
    /// sees its window open, and Linux's smallest retransmission time-out, 200 ms.
    pub hold: Time,
    /// At most so many a second.
    pub pace: Option<u32>,
    /// How many may wait for pacing. 1,000 ACKs take about 100 KB.
    pub buffer: u32,
}

/// All settings of one direction.
#[derive(Debug, Clone)]
pub struct Shape {
    /// Propagation delay, one way.
    pub delay: Time,
    /// Random part of the delay.
    pub jitter: Jitter,
    /// What a change of delay does to segments in flight.
    pub order: Order,
    /// How fast the wire takes segments.
    pub rate: Rate,
    /// Bytes added to each segment for its sending time.
    pub overhead: u32,
    /// How much may wait; `None` is 1 BDP, or 1,000 segments where that is less than 1,000 × 1,500
    /// bytes: enough for a window-limited flow on any path, at the cost of rate × RTT of memory.
    pub queue: Option<QueueLimit>,
    /// Which of what waits is dropped.
    pub rule: Discipline,
    /// Loss ahead of the queue.
    pub loss: Loss,
    /// How often a segment arrives twice.
    pub duplicate: Ratio,
    /// How often one bit of a segment is wrong.
    pub corrupt: Ratio,
    /// How often a segment is held back.
    pub reorder: Reorder,
    /// Rules for pure ACKs.
    pub ack: AckShape,
    /// Largest segment in bytes, which CoDel, RED and ACK thinning reckon with.
    pub mtu: u32,
}

impl Default for Shape {
    /// A wire that does nothing.
    fn default() -> Self {
        Self {
            delay: Time::ZERO,
            jitter: Jitter::default(),
            order: Order::Keep,
            rate: Rate::Unlimited,
            overhead: 0,
            queue: None,
            rule: Discipline::Tail,
            loss: Loss::None,
            duplicate: Ratio::ZERO,
            corrupt: Ratio::ZERO,
            reorder: Reorder::default(),
            ack: AckShape {
                thin: 0,
                hold: Time::from_millis(10),
                pace: None,
                buffer: 1_000,
            },
            mtu: 1_500,
        }
    }
}

/// The default queue where a BDP is small: Linux's default txqueuelen.
const DEFAULT_PACKETS: u32 = 1_000;
const FULL_SEGMENT: u64 = 1_500;

impl Shape {
    /// Takes one setting.
    pub fn apply(&mut self, setting: Setting) {
        match setting {
            Setting::Delay(delay) => self.delay = delay,
            Setting::Jitter(jitter) => self.jitter = jitter,
            Setting::Order(order) => self.order = order,
            Setting::Rate(rate) => self.rate = rate,
            Setting::Overhead(bytes) => self.overhead = bytes,
            Setting::NoTrace if matches!(self.rate, Rate::Trace(_)) => self.rate = Rate::Unlimited,
            Setting::NoTrace => {}
            Setting::Queue(limit) => self.queue = limit,
            Setting::Rule(rule) => self.rule = rule,
            Setting::Loss(loss) => self.loss = loss,
            Setting::Duplicate(ratio) => self.duplicate = ratio,
            Setting::Corrupt(ratio) => self.corrupt = ratio,
            Setting::Reorder(reorder) => self.reorder = reorder,
            Setting::AckThin(n) => self.ack.thin = n,
            Setting::AckHold(hold) => self.ack.hold = hold,
            Setting::AckPace(pace) => self.ack.pace = pace,
            Setting::AckBuffer(n) => self.ack.buffer = n,
        }
    }

    /// Refuses what no single setting shows to be wrong.
    pub fn check(&self) -> Result<(), SettingError> {
        let limited = self.rate.mean().is_some();
        if matches!(self.queue, Some(QueueLimit::Bdp(_))) && (!limited || self.delay == Time::ZERO)
        {
            return Err(SettingError::Conflict(
                "a queue in bdp needs a rate and a delay; give bytes (64KB) or packets (1000p)",
            ));
        }
        if !limited && (self.queue.is_some() || self.rule != Discipline::Tail) {
            return Err(SettingError::Conflict(
                "a queue needs a rate: at an unlimited rate nothing waits",
            ));
        }
        Ok(())
    }

    /// The queue limit in numbers, from the rate and the delay of now.
    #[must_use]
    pub fn limit(&self) -> Limit {
        match self.queue {
            Some(QueueLimit::Bytes(bytes)) => Limit {
                bytes: bytes.get(),
                packets: usize::MAX,
            },
            Some(QueueLimit::Packets(n)) => Limit {
                bytes: u64::MAX,
                packets: n as usize,
            },
            Some(QueueLimit::Bdp(factor)) => self.bdp_limit(factor),
            None => self.default_limit(),
        }
    }

    /// Each key with its value, as [`Setting::parse`] reads it; but a trace, of which only the mean rate is known here.
    #[must_use]
    pub fn settings(&self) -> Vec<(&'static str, String)> {
        let (rate, trace) = match &self.rate {
            Rate::Unlimited => ("unlimited".to_owned(), "none".to_owned()),
            Rate::Constant(rate) => (rate.exact(), "none".to_owned()),
            Rate::Trace(trace) => ("by trace".to_owned(), trace.mean_rate().exact()),
        };
        let share = |share: Ratio| match share {
            Ratio::ZERO => "none".to_owned(),
            share => share.percent(),
        };
        let or = |number: Option<String>, word: &str| number.unwrap_or_else(|| word.to_owned());
        vec![
            ("delay", self.delay.exact()),
            ("jitter", self.jitter.to_string()),
            ("order", self.order.to_string()),
            ("rate", rate),
            ("trace", trace),
            ("overhead", self.overhead.to_string()),
            (
                "queue",
                or(self.queue.map(|limit| limit.to_string()), "default"),
            ),
            ("rule", self.rule.to_string()),
            ("loss", self.loss.to_string()),
            ("duplicate", share(self.duplicate)),
            ("corrupt", share(self.corrupt)),
            ("reorder", self.reorder.to_string()),
            ("ack-thin", self.ack.thin.to_string()),
            ("ack-hold", self.ack.hold.exact()),
            (
                "ack-pace",
                or(self.ack.pace.map(|pace| pace.to_string()), "unlimited"),
            ),
            ("ack-buffer", self.ack.buffer.to_string()),
        ]
    }

    /// The queue rule with all its numbers.
    pub(crate) fn rule_in_numbers(&self) -> Discipline {
        self.rule.within(self.limit(), self.mtu)
    }

    /// The rate at which a queue rule reckons that an idle queue drains.
    pub(crate) fn rate_for_rule(&self) -> BitRate {
        self.rate.mean().unwrap_or(BitRate::from_bits(u64::MAX))
    }

    fn bdp_limit(&self, factor: f64) -> Limit {
        let bytes = self
            .rate
            .mean()
            .map_or(0, |rate| bdp(rate, self.delay * 2).get());
        Limit {
            bytes: (bytes as f64 * factor) as u64,
            packets: usize::MAX,
        }
    }

    fn default_limit(&self) -> Limit {
        let one = self.bdp_limit(1.0);
        match one.bytes < u64::from(DEFAULT_PACKETS) * FULL_SEGMENT {
            true => Limit {
                bytes: u64::MAX,
                packets: DEFAULT_PACKETS as usize,
            },
            false => one,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_says_what_is_wrong_and_what_would_be_right() {
        let message = |key, value| Setting::parse(key, value).unwrap_err().to_string();
        assert!(message("latency", "1ms").contains("unknown setting \"latency\""));
        for (key, value) in [
            ("delay", "-13ms"),
            ("rate", "0"),
            ("rate", "0gbit"),
            ("loss", "1.5"),
            ("queue", "0bdp"),
            ("queue", "0B"),
            ("ack-thin", "11"),
            ("reorder", "1%"),
            ("queue", "10"),
            ("loss", "1"),
            ("loss", "0.001"),
            ("loss", "gilbert:p=1,r=30%"),
            ("duplicate", "1"),
            ("corrupt", "0.5"),
            ("reorder", "1:5ms"),
            ("rule", "red:p=1"),
            ("trace", "file"),
        ] {
            let text = message(key, value);
            assert!(
                text.contains(value) && text.contains("for example"),
                "{text}"
            );
        }
    }

    fn shape(settings: &[(&str, &str)]) -> Shape {
        let mut shape = Shape::default();
        for (key, value) in settings {
            shape.apply(Setting::parse(key, value).unwrap());
        }
        shape
    }

    #[test]
    fn every_setting_is_told_as_it_is_read_and_can_be_set_back() {
        let set = [
            ("delay", "13ms"),
            ("jitter", "uniform:2ms,reorder"),
            ("order", "switch"),
            ("rate", "10Mbit/s"),
            ("overhead", "38"),
            ("queue", "0.5bdp"),
            ("rule", "red:p=5%,weight=0.2%"),
            ("loss", "0.7%"),
            ("duplicate", "1%"),
            ("corrupt", "2%"),
            ("reorder", "1%:5ms"),
            ("ack-thin", "3"),
            ("ack-hold", "20ms"),
            ("ack-pace", "60000"),
            ("ack-buffer", "10"),
        ];
        let mut told = shape(&set).settings();
        told.retain(|(key, _)| *key != "trace");
        assert_eq!(told, set.map(|(key, value)| (key, value.to_owned())));
        let mut back = shape(&set);
        for (key, ..) in KEYS {
            back.apply(Setting::parse(key, "default").unwrap());
        }
        let defaults = KEYS.map(|(key, _, default)| (key, default));
        let told = Shape::default().settings();
        assert_eq!(back.settings(), told);
        assert_eq!(shape(&defaults).settings(), told);
        for (key, value) in told {
            assert!(Setting::parse(key, &value).is_ok(), "{key} {value}");
        }
    }

    #[test]
    fn red_takes_its_backlogs_from_the_limit() {
        let marks =
            |queue, rule| match shape(&[("rate", "1gbit"), ("queue", queue), ("rule", rule)])
                .rule_in_numbers()
            {
                Discipline::Red { marks, .. } => marks.map(|(min, max)| (min.get(), max.get())),
                _ => None,
            };
        assert_eq!(marks("600KB", "red"), Some((100_000, 300_000)));
        assert_eq!(marks("40p", "red:p=5%"), Some((10_000, 30_000)));
        assert_eq!(marks("40p", "red:min=1KB"), Some((1_000, 3_000)));
        assert_eq!(marks("40p", "red:max=6KB"), Some((2_000, 6_000)));
    }

    #[test]
    fn a_bdp_is_rate_times_both_delays() {
        let mut shape = Shape::default();
        for (key, value) in [("rate", "10gbit"), ("delay", "13ms"), ("queue", "0.5bdp")] {
            shape.apply(Setting::parse(key, value).unwrap());
        }
        assert_eq!(shape.limit().bytes, 16_250_000);
        assert_eq!(shape.check(), Ok(()));
    }

    #[test]
    fn a_queue_without_a_rate_is_refused() {
        let mut shape = Shape::default();
        shape.apply(Setting::parse("queue", "64KB").unwrap());
        assert!(shape.check().is_err());
    }
}
