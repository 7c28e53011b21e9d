// SPDX-License-Identifier: MIT OR Apache-2.0
//! Settings of one direction of a link: a key and a value, such as `delay 80ms`. Flags, TOML keys,
//! schedules and the control socket share this grammar.

pub use super::queue::limit::{QueueCapacity, QueueLimit};
use super::{
    grammar::{Percentage, SpecError, parse_text, parse_whole},
    jitter::Jitter,
    loss::Loss,
    queue::discipline::QueueDiscipline,
    transmitter::{Rate, trace::Trace},
};
use longhaul_units::{BitRate, Ratio, Time, bdp};
use std::{fmt, str::FromStr, sync::Arc};

/// A setting with its value.
#[derive(Debug, Clone)]
pub enum Setting {
    /// Propagation delay, one way.
    Delay(Time),
    /// Random part of the delay.
    Jitter(Jitter),
    /// Whether segments sent after a change to a shorter delay may overtake those in flight.
    AllowReordering(bool),
    /// Rate of the transmitter.
    Rate(Rate),
    /// Bytes added to each segment for its sending time. Ethernet adds 38: preamble, header, frame
    /// check sequence and inter-frame gap.
    Overhead(u32),
    /// End of a trace: a rate that follows a trace becomes unlimited.
    EndTrace,
    /// Queue limit; `None` is the default.
    Queue(Option<QueueLimit>),
    /// Active queue management.
    Aqm(QueueDiscipline),
    /// Loss ahead of the queue.
    Loss(Loss),
    /// Share of segments that are duplicated.
    Duplicate(Ratio),
    /// Share of segments with a flipped bit.
    Corrupt(Ratio),
    /// Share of segments that are delayed so that later ones overtake them, and the extra delay.
    Reorder(Reorder),
    /// ACK thinning: n, where one pure ACK in 2ⁿ is kept.
    AckThin(u8),
    /// Longest time for which thinning holds an ACK.
    MaxAckDelay(Time),
    /// ACK pacing: the most pure ACKs a second; `None` is unlimited.
    AckRate(Option<u32>),
    /// Pure ACKs that may wait for pacing.
    AckBuffer(u32),
}

/// A key, example values, and the default value.
type Key = (&'static str, &'static str, &'static str);

/// Keys in the order of the manual. The value `default` means the default of any key.
const KEYS: [Key; 16] = [
    ("delay", "13ms", "0"),
    (
        "jitter",
        "2ms, uniform:2ms, lognormal:2ms, 2ms,correlation=1s, 2ms,reorder or none",
        "none",
    ),
    ("allow-reordering", "no or yes", "no"),
    ("rate", "10gbit or unlimited", "unlimited"),
    ("trace", "none", "none"),
    ("overhead", "38", "0"),
    ("queue", "1bdp, 64KB, 1000p or default", "default"),
    ("aqm", "tail, codel, red or red:min=100KB", "tail"),
    ("loss", "0.1%, gilbert:p=1%,r=30%, at:5,17 or none", "none"),
    ("duplicate", "0.1% or none", "none"),
    ("corrupt", "0.1% or none", "none"),
    ("reorder", "1%:5ms or none", "none"),
    ("ack-thin", "3 (one pure ACK in 2^3)", "0"),
    ("max-ack-delay", "10ms", "10ms"),
    (
        "ack-rate",
        "60000 (pure ACKs a second) or unlimited",
        "unlimited",
    ),
    ("ack-buffer", "1000", "1000"),
];

/// Error in a setting, or in a combination of settings.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SettingError {
    /// The key does not exist.
    #[error("unknown setting {0:?}; the settings are {list}", list = key_list())]
    UnknownKey(String),
    /// The value is not valid for the key.
    #[error("{key} {value:?}: {reason}")]
    BadValue {
        /// The key.
        key: &'static str,
        /// The value as given.
        value: String,
        /// Reason of the refusal, with an example of a valid value.
        reason: String,
    },
    /// The settings exclude each other.
    #[error("{0}")]
    Conflict(&'static str),
}

/// Reads a file that a setting names. The error is a text.
pub type ReadFile<'a> = &'a dyn Fn(&str) -> Result<String, String>;

fn key_list() -> String {
    KEYS.map(|(key, ..)| key).join(", ")
}

impl Setting {
    /// Parses a setting.
    ///
    /// # Errors
    ///
    /// An unknown key, or a value that is not valid for it.
    pub fn parse(key: &str, value: &str) -> Result<Self, SettingError> {
        // Underscores are dashes, as in a file.
        let name = key.replace('_', "-");
        let (key, example, default) = *KEYS
            .iter()
            .find(|(known, ..)| *known == name)
            .ok_or_else(|| SettingError::UnknownKey(key.to_owned()))?;
        let text = match value.trim() {
            "default" => default,
            text => text,
        };
        Self::parse_value(key, text).map_err(|reason| SettingError::BadValue {
            key,
            value: value.to_owned(),
            reason: format!("{reason} (for example {example})"),
        })
    }

    /// Parses a setting, whose file `read` reads: a trace of the rate or the delays of a jitter.
    ///
    /// # Errors
    ///
    /// As [`Setting::parse`], or a file that cannot be read or is not valid.
    pub fn read(key: &str, value: &str, read: ReadFile<'_>) -> Result<Self, String> {
        let is_file = value.starts_with("table:") || value.starts_with("trace:");
        match key {
            "jitter" if is_file => {
                let jitter = Jitter::parse(value, read).map(Self::Jitter);
                jitter.map_err(|error| error.to_string())
            }
            "trace" if !["none", "default"].contains(&value) => {
                let named = |problem: String| format!("trace {value}: {problem}");
                let trace = read(value).map_err(named)?.parse::<Trace>();
                let trace = trace.map_err(|error| named(error.to_string()))?;
                Ok(Self::Rate(Rate::Trace(Arc::new(trace))))
            }
            _ => Self::parse(key, value).map_err(|error| error.to_string()),
        }
    }

    /// Returns whether a setting has this key.
    #[must_use]
    pub fn is_key(key: &str) -> bool {
        KEYS.iter().any(|(known, ..)| *known == key)
    }

    fn parse_value(key: &str, value: &str) -> Result<Self, String> {
        match key {
            "delay" => parse_text(value).map(Self::Delay),
            "jitter" => parse_spec(value).map(Self::Jitter),
            "allow-reordering" => parse_yes_or_no(value).map(Self::AllowReordering),
            "rate" => parse_unless("unlimited", value, parse_text::<BitRate>)
                .map(|rate| Self::Rate(rate.map_or(Rate::Unlimited, Rate::Constant))),
            "trace" if value == "none" => Ok(Self::EndTrace),
            "trace" => Err("a file is accepted only at the start and by longhaul link set; the other value is none".to_owned()),
            "overhead" => parse_whole(value, 0, 1_000).map(Self::Overhead),
            "queue" => parse_unless("default", value, parse_text).map(Self::Queue),
            "aqm" => parse_spec(value).map(Self::Aqm),
            "loss" => parse_spec(value).map(Self::Loss),
            "duplicate" => parse_text(value).map(|share: Percentage| Self::Duplicate(share.0)),
            "corrupt" => parse_text(value).map(|share: Percentage| Self::Corrupt(share.0)),
            "reorder" => parse_text(value).map(Self::Reorder),
            "ack-thin" => parse_whole(value, 0, 10).map(|n| Self::AckThin(n as u8)),
            "max-ack-delay" => parse_text(value).map(Self::MaxAckDelay),
            "ack-rate" => parse_unless("unlimited", value, |v| parse_whole(v, 1, 100_000_000))
                .map(Self::AckRate),
            _ => parse_whole(value, 1, 1_000_000).map(Self::AckBuffer),
        }
    }
}

fn parse_yes_or_no(value: &str) -> Result<bool, String> {
    match value {
        "no" => Ok(false),
        "yes" => Ok(true),
        _ => Err("neither no nor yes".to_owned()),
    }
}

/// Parses a loss, jitter or AQM. The error is the reason alone, because [`SettingError`] names key and value.
fn parse_spec<T: FromStr<Err = SpecError>>(value: &str) -> Result<T, String> {
    value.parse().map_err(SpecError::into_reason)
}

/// Parses `value`; `None` if it is `word`.
fn parse_unless<T>(
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

/// Reordering: a random segment is delayed further, so that later ones overtake it.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Reorder {
    /// Probability for each segment.
    pub probability: Ratio,
    /// Extra delay of such a segment.
    pub hold: Time,
}

impl FromStr for Reorder {
    type Err = String;

    fn from_str(value: &str) -> Result<Self, String> {
        let Some((share, hold)) = value.split_once(':') else {
            return match parse_text::<Percentage>(value)? {
                Percentage(Ratio::ZERO) => Ok(Self::default()),
                Percentage(_) => Err("needs a share and a time, as in 1%:5ms".to_owned()),
            };
        };
        let Percentage(probability) = parse_text(share)?;
        Ok(Self {
            probability,
            hold: parse_text(hold)?,
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

/// Settings of ACK thinning and ACK pacing, the rules for pure ACKs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AckConfig {
    /// ACK thinning: one ACK in 2^`thin` is kept; 0 keeps all.
    pub thin: u8,
    /// Longest time for which thinning holds an ACK. Should be well below the path's RTT, so that the
    /// sender's window opens in time, and below Linux's smallest retransmission time-out, 200 ms.
    pub max_delay: Time,
    /// ACK pacing: the most ACKs a second; `None` is unlimited.
    pub rate: Option<u32>,
    /// ACKs that may wait for pacing. Memory: about 100 KB for 1,000 ACKs.
    pub buffer: u32,
}

/// Settings of one direction of a link, together.
#[derive(Debug, Clone)]
pub struct LinkConfig {
    /// Propagation delay, one way.
    pub delay: Time,
    /// Random part of the delay.
    pub jitter: Jitter,
    /// Whether segments sent after a change to a shorter delay may overtake those in flight. If so, the path was
    /// switched, and segments in flight keep their arrival times. If not, the wire became shorter.
    pub allow_reordering: bool,
    /// Rate of the transmitter.
    pub rate: Rate,
    /// Bytes added to each segment for its sending time.
    pub overhead: u32,
    /// Queue limit; `None` is 1 BDP, or 1,000 segments if 1 BDP is less than 1,000 × 1,500 bytes. That
    /// is enough for a window-limited flow on any path. Memory: rate × RTT.
    pub queue: Option<QueueLimit>,
    /// Active queue management.
    pub aqm: QueueDiscipline,
    /// Loss ahead of the queue.
    pub loss: Loss,
    /// Share of segments that are duplicated.
    pub duplicate: Ratio,
    /// Share of segments with a flipped bit.
    pub corrupt: Ratio,
    /// Share of segments that are delayed further, and the extra delay.
    pub reorder: Reorder,
    /// Rules for pure ACKs.
    pub ack: AckConfig,
    /// Largest segment in bytes, for CoDel, RED and ACK thinning.
    pub mtu: u32,
}

impl Default for LinkConfig {
    /// An ideal wire: no delay, no loss, unlimited rate.
    fn default() -> Self {
        Self {
            delay: Time::ZERO,
            jitter: Jitter::default(),
            allow_reordering: false,
            rate: Rate::Unlimited,
            overhead: 0,
            queue: None,
            aqm: QueueDiscipline::Tail,
            loss: Loss::None,
            duplicate: Ratio::ZERO,
            corrupt: Ratio::ZERO,
            reorder: Reorder::default(),
            ack: AckConfig {
                thin: 0,
                max_delay: Time::from_millis(10),
                rate: None,
                buffer: 1_000,
            },
            mtu: 1_500,
        }
    }
}

/// Default queue limit in segments for a small BDP, as Linux's txqueuelen.
const DEFAULT_PACKETS: u32 = 1_000;
/// Bytes of a full segment.
const FULL_SEGMENT: u64 = 1_500;

impl LinkConfig {
    /// Changes one setting.
    pub fn apply(&mut self, setting: Setting) {
        match setting {
            Setting::Delay(delay) => self.delay = delay,
            Setting::Jitter(jitter) => self.jitter = jitter,
            Setting::AllowReordering(allow) => self.allow_reordering = allow,
            Setting::Rate(rate) => self.rate = rate,
            Setting::Overhead(bytes) => self.overhead = bytes,
            Setting::EndTrace if matches!(self.rate, Rate::Trace(_)) => self.rate = Rate::Unlimited,
            Setting::EndTrace => {}
            Setting::Queue(limit) => self.queue = limit,
            Setting::Aqm(discipline) => self.aqm = discipline,
            Setting::Loss(loss) => self.loss = loss,
            Setting::Duplicate(ratio) => self.duplicate = ratio,
            Setting::Corrupt(ratio) => self.corrupt = ratio,
            Setting::Reorder(reorder) => self.reorder = reorder,
            Setting::AckThin(n) => self.ack.thin = n,
            Setting::MaxAckDelay(delay) => self.ack.max_delay = delay,
            Setting::AckRate(rate) => self.ack.rate = rate,
            Setting::AckBuffer(n) => self.ack.buffer = n,
        }
    }

    /// Checks that the settings fit together.
    ///
    /// # Errors
    ///
    /// A queue in BDPs without a rate or a delay, or a queue limit or an AQM at an unlimited rate.
    pub fn check(&self) -> Result<(), SettingError> {
        let is_limited = self.rate.mean().is_some();
        if matches!(self.queue, Some(QueueLimit::Bdp(_)))
            && (!is_limited || self.delay == Time::ZERO)
        {
            return Err(SettingError::Conflict(
                "a queue in bdp needs a rate and a delay; give bytes (64KB) or packets (1000p)",
            ));
        }
        if !is_limited && (self.queue.is_some() || self.aqm != QueueDiscipline::Tail) {
            return Err(SettingError::Conflict(
                "a queue needs a rate: at an unlimited rate nothing waits",
            ));
        }
        Ok(())
    }

    /// Queue limit in bytes and in segments, computed from the present rate and delay.
    #[must_use]
    pub fn queue_capacity(&self) -> QueueCapacity {
        match self.queue {
            Some(QueueLimit::Bytes(bytes)) => QueueCapacity {
                bytes: bytes.get(),
                packets: usize::MAX,
            },
            Some(QueueLimit::Packets(n)) => QueueCapacity {
                bytes: u64::MAX,
                packets: n as usize,
            },
            Some(QueueLimit::Bdp(factor)) => self.bdp_capacity(factor),
            None => self.default_capacity(),
        }
    }

    /// Keys with their values, as [`Setting::parse`] accepts them. Only a trace can't be parsed back: `rate` is
    /// then `by trace`, and `trace` the mean rate.
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
        let text_or =
            |number: Option<String>, word: &str| number.unwrap_or_else(|| word.to_owned());
        vec![
            ("delay", self.delay.exact()),
            ("jitter", self.jitter.to_string()),
            (
                "allow-reordering",
                if self.allow_reordering { "yes" } else { "no" }.to_owned(),
            ),
            ("rate", rate),
            ("trace", trace),
            ("overhead", self.overhead.to_string()),
            (
                "queue",
                text_or(self.queue.map(|limit| limit.to_string()), "default"),
            ),
            ("aqm", self.aqm.to_string()),
            ("loss", self.loss.to_string()),
            ("duplicate", share(self.duplicate)),
            ("corrupt", share(self.corrupt)),
            ("reorder", self.reorder.to_string()),
            ("ack-thin", self.ack.thin.to_string()),
            ("max-ack-delay", self.ack.max_delay.exact()),
            (
                "ack-rate",
                text_or(self.ack.rate.map(|rate| rate.to_string()), "unlimited"),
            ),
            ("ack-buffer", self.ack.buffer.to_string()),
        ]
    }

    /// AQM with all its parameters; RED's thresholds may follow from the queue limit.
    pub(crate) fn aqm_with_defaults(&self) -> QueueDiscipline {
        self.aqm.with_defaults(self.queue_capacity(), self.mtu)
    }

    /// Rate at which a queue drains, for RED's estimate of an idle queue.
    pub(crate) fn drain_rate(&self) -> BitRate {
        self.rate.mean().unwrap_or(BitRate::from_bits(u64::MAX))
    }

    fn bdp_capacity(&self, factor: f64) -> QueueCapacity {
        let bytes = self
            .rate
            .mean()
            .map_or(0, |rate| bdp(rate, self.delay * 2).get());
        QueueCapacity {
            bytes: (bytes as f64 * factor) as u64,
            packets: usize::MAX,
        }
    }

    fn default_capacity(&self) -> QueueCapacity {
        let one_bdp = self.bdp_capacity(1.0);
        if one_bdp.bytes < u64::from(DEFAULT_PACKETS) * FULL_SEGMENT {
            QueueCapacity {
                bytes: u64::MAX,
                packets: DEFAULT_PACKETS as usize,
            }
        } else {
            one_bdp
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_the_bad_value_and_an_example() {
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
            ("aqm", "red:p=1"),
            ("trace", "file"),
        ] {
            let text = message(key, value);
            assert!(
                text.contains(value) && text.contains("for example"),
                "{text}"
            );
        }
    }

    fn config(settings: &[(&str, &str)]) -> LinkConfig {
        let mut config = LinkConfig::default();
        for (key, value) in settings {
            config.apply(Setting::parse(key, value).unwrap());
        }
        config
    }

    #[test]
    fn formats_every_setting_as_parsed_and_resets_it_to_its_default() {
        let set = [
            ("delay", "13ms"),
            ("jitter", "uniform:2ms,reorder"),
            ("allow-reordering", "yes"),
            ("rate", "10Mbit/s"),
            ("overhead", "38"),
            ("queue", "0.5bdp"),
            ("aqm", "red:p=5%,weight=0.2%"),
            ("loss", "0.7%"),
            ("duplicate", "1%"),
            ("corrupt", "2%"),
            ("reorder", "1%:5ms"),
            ("ack-thin", "3"),
            ("max-ack-delay", "20ms"),
            ("ack-rate", "60000"),
            ("ack-buffer", "10"),
        ];
        let mut formatted = config(&set).settings();
        formatted.retain(|(key, _)| *key != "trace");
        assert_eq!(formatted, set.map(|(key, value)| (key, value.to_owned())));
        let mut reset = config(&set);
        for (key, ..) in KEYS {
            reset.apply(Setting::parse(key, "default").unwrap());
        }
        let defaults = KEYS.map(|(key, _, default)| (key, default));
        let formatted = LinkConfig::default().settings();
        assert_eq!(reset.settings(), formatted);
        assert_eq!(config(&defaults).settings(), formatted);
        for (key, value) in formatted {
            assert!(Setting::parse(key, &value).is_ok(), "{key} {value}");
        }
    }

    #[test]
    fn derives_red_thresholds_from_the_limit() {
        let thresholds =
            |queue, aqm| match config(&[("rate", "1gbit"), ("queue", queue), ("aqm", aqm)])
                .aqm_with_defaults()
            {
                QueueDiscipline::Red { thresholds, .. } => {
                    thresholds.map(|(min, max)| (min.get(), max.get()))
                }
                _ => None,
            };
        assert_eq!(thresholds("600KB", "red"), Some((100_000, 300_000)));
        assert_eq!(thresholds("40p", "red:p=5%"), Some((10_000, 30_000)));
        assert_eq!(thresholds("40p", "red:min=1KB"), Some((1_000, 3_000)));
        assert_eq!(thresholds("40p", "red:max=6KB"), Some((2_000, 6_000)));
    }

    #[test]
    fn computes_a_bdp_from_rate_and_twice_the_delay() {
        let mut config = LinkConfig::default();
        for (key, value) in [("rate", "10gbit"), ("delay", "13ms"), ("queue", "0.5bdp")] {
            config.apply(Setting::parse(key, value).unwrap());
        }
        assert_eq!(config.queue_capacity().bytes, 16_250_000);
        assert_eq!(config.check(), Ok(()));
    }

    #[test]
    fn rejects_a_queue_without_a_rate() {
        let mut config = LinkConfig::default();
        config.apply(Setting::parse("queue", "64KB").unwrap());
        assert!(config.check().is_err());
    }
}
