// SPDX-License-Identifier: MIT OR Apache-2.0
//! Queue rules: which segments the queue in front of the transmitter gives up, and when.
//!
//! Every rule works beside the queue's limit, which the line itself enforces (tail drop).

use super::codel::CoDel;
pub use super::codel::Verdict;
use super::limit::Limit;
use super::red::Red;
use crate::grammar::{Arguments, RuleError, Share, head, serde_as_rule};
use longhaul_units::{BitRate, Bytes, Ratio, Time};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::{fmt, str::FromStr};

/// The rule of a queue.
///
/// Text forms: `tail`, `codel[:target=5ms,interval=100ms]`,
/// `red[:min=100KB,max=300KB,p=10%,weight=0.2%]`.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum Discipline {
    /// Only the limit drops.
    #[default]
    Tail,
    /// RFC 8289: drop at the head while segments have stayed too long.
    CoDel {
        /// The standing delay that is tolerated; [`CODEL_TARGET`] unless said.
        target: Time,
        /// How long the delay must stand: about the largest common RTT; [`CODEL_INTERVAL`] unless
        /// said. On a 350 ms path 100 ms is too short: a single flow can't fill the link.
        interval: Time,
    },
    /// Random early detection in its gentle form: drop arrivals with a probability that rises from
    /// 0 to `probability` between `min` and `max`, and to 1 at twice `max`.
    Red {
        /// Mean backlogs where drops begin, and where the probability is reached. The second is 3 × the first unless said, as
        /// Floyd advises. Without either they follow from the queue's limit: a sixth and a half of it, so that all
        /// arrivals are dropped when the mean reaches the limit. That suits a queue of a BDP.
        marks: Option<(Bytes, Bytes)>,
        /// Drop probability at `max`; [`RED_PROBABILITY`] unless said.
        probability: Ratio,
        /// Weight of one arrival in the mean backlog; [`RED_WEIGHT`] unless said.
        weight: Ratio,
    },
}

/// RFC 8289 §4.3.
pub const CODEL_TARGET: Time = Time::from_millis(5);
/// RFC 8289 §4.3.
pub const CODEL_INTERVAL: Time = Time::from_millis(100);
/// Floyd's later advice, 1997; the paper of 1993 had 2 %.
pub const RED_PROBABILITY: f64 = 0.1;
/// Floyd and Jacobson 1993, §IV: at least 0.001, 0.002 recommended.
pub const RED_WEIGHT: f64 = 0.002;

impl FromStr for Discipline {
    type Err = RuleError;

    fn from_str(input: &str) -> Result<Self, RuleError> {
        let parsed = match head(input) {
            ("tail", "") => Ok(Self::Tail),
            ("codel", rest) => codel(rest),
            ("red", rest) => red(rest),
            _ => Err(
                "known: tail, codel[:target=5ms,interval=100ms], red[:min=100KB,max=300KB,p=10%]"
                    .to_owned(),
            ),
        };
        parsed.map_err(|reason| RuleError::new("queue rule", input, reason))
    }
}

fn codel(text: &str) -> Result<Discipline, String> {
    let mut arguments = Arguments::read(text)?;
    let target = arguments.take("target")?.unwrap_or(CODEL_TARGET);
    let interval = arguments.take("interval")?.unwrap_or(CODEL_INTERVAL);
    arguments.finish("target, interval")?;
    if target == Time::ZERO || target >= interval {
        return Err("the target must be above 0 and below the interval".to_owned());
    }
    Ok(Discipline::CoDel { target, interval })
}

fn red(text: &str) -> Result<Discipline, String> {
    let mut arguments = Arguments::read(text)?;
    let marks = red_marks(arguments.take("min")?, arguments.take("max")?)?;
    let probability = arguments.take("p")?;
    let probability = probability.map_or_else(|| ratio(RED_PROBABILITY), |Share(share)| share);
    // No share of segments: papers write it as a number.
    let weight = arguments.take("weight")?;
    let weight = weight.unwrap_or_else(|| ratio(RED_WEIGHT));
    arguments.finish("min, max, p, weight")?;
    if probability == Ratio::ZERO || weight == Ratio::ZERO {
        return Err("p and weight must be above 0".to_owned());
    }
    Ok(Discipline::Red {
        marks,
        probability,
        weight,
    })
}

/// Both backlogs, of which the other follows from one.
fn red_marks(min: Option<Bytes>, max: Option<Bytes>) -> Result<Option<(Bytes, Bytes)>, String> {
    let marks = match (min, max) {
        (None, None) => return Ok(None),
        (Some(min), None) => (min, Bytes::new(min.get().saturating_mul(3))),
        (None, Some(max)) => (Bytes::new(max.get() / 3), max),
        (Some(min), Some(max)) => (min, max),
    };
    match marks.0 == Bytes::new(0) || marks.0 >= marks.1 {
        true => Err("min must be above 0 and below max".to_owned()),
        false => Ok(Some(marks)),
    }
}

impl Discipline {
    /// The rule for a queue of this limit, whose largest segment is `mtu`.
    #[must_use]
    pub fn within(&self, limit: Limit, mtu: u32) -> Self {
        let Self::Red {
            marks,
            probability,
            weight,
        } = *self
        else {
            return self.clone();
        };
        let packets = (limit.packets as u64).saturating_mul(mtu.into());
        let bytes = limit.bytes.min(packets).max(mtu.into());
        let of_limit = (Bytes::new(bytes / 6), Bytes::new(bytes / 2));
        Self::Red {
            marks: marks.or(Some(of_limit)),
            probability,
            weight,
        }
    }
}

fn ratio(constant: f64) -> Ratio {
    Ratio::new(constant).unwrap_or(Ratio::ONE)
}

impl fmt::Display for Discipline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tail => f.write_str("tail"),
            Self::CoDel { target, interval } => {
                write!(
                    f,
                    "codel:target={},interval={}",
                    target.exact(),
                    interval.exact()
                )
            }
            Self::Red {
                marks,
                probability,
                weight,
            } => {
                f.write_str("red:")?;
                if let Some((min, max)) = marks {
                    write!(f, "min={},max={},", min.exact(), max.exact())?;
                }
                write!(f, "p={},weight={}", probability.percent(), weight.percent())
            }
        }
    }
}

serde_as_rule!(
    Discipline,
    "a queue rule such as \"tail\", \"codel\" or \"red:min=100KB\""
);

/// A [`Discipline`] at work on one queue.
///
/// Call [`admit`](Self::admit) for each arrival that the limit lets in, and [`keep`](Self::keep)
/// for each segment taken from the head, including the one after a drop.
#[derive(Debug, Clone)]
pub struct QueueRule {
    rule: Rule,
    rng: Xoshiro256PlusPlus,
}

#[derive(Debug, Clone)]
enum Rule {
    Tail,
    CoDel(CoDel),
    Red(Red),
}

impl QueueRule {
    /// `mtu` is the largest segment in bytes and `rate` the transmitter's rate, which tells RED
    /// how fast an idle queue would have drained. Draws from `rng` only.
    #[must_use]
    pub fn new(discipline: &Discipline, mtu: u32, rate: BitRate, rng: Xoshiro256PlusPlus) -> Self {
        let rule = Rule::new(discipline, mtu, rate);
        Self { rule, rng }
    }

    /// Starts afresh under another rule, MTU or rate.
    pub fn change(&mut self, discipline: &Discipline, mtu: u32, rate: BitRate) {
        self.rule = Rule::new(discipline, mtu, rate);
    }

    /// Whether an arrival may join the queue. `backlog` is what waits in bytes without it, and
    /// `idle_since` the time when the queue last ran empty, if it is empty now.
    #[inline]
    pub fn admit(&mut self, now: Time, backlog: u64, idle_since: Option<Time>) -> bool {
        match &mut self.rule {
            Rule::Red(red) => red.admit(now, backlog, idle_since, &mut self.rng),
            Rule::Tail | Rule::CoDel(_) => true,
        }
    }

    /// Whether [`keep`](Self::keep) can drop what [`admit`](Self::admit) let in.
    #[inline]
    #[must_use]
    pub fn decides_at_head(&self) -> bool {
        matches!(self.rule, Rule::CoDel(_))
    }

    /// What becomes of the segment just taken from the head: `sojourn` is how long it waited and
    /// `backlog` what still waits in bytes behind it.
    #[inline]
    pub fn keep(&mut self, now: Time, sojourn: Time, backlog: u64) -> Verdict {
        match &mut self.rule {
            Rule::CoDel(codel) => codel.keep(now, sojourn, backlog),
            Rule::Tail | Rule::Red(_) => Verdict::Keep,
        }
    }
}

impl Rule {
    fn new(discipline: &Discipline, mtu: u32, rate: BitRate) -> Self {
        match *discipline {
            Discipline::Tail => Self::Tail,
            Discipline::CoDel { target, interval } => {
                Self::CoDel(CoDel::new(target, interval, mtu))
            }
            Discipline::Red {
                marks,
                probability,
                weight,
            } => {
                // Who asks for a queue of unknown limit gets what suits the default one.
                let default = || (Bytes::new(250_000), Bytes::new(750_000));
                let (min, max) = marks.unwrap_or_else(default);
                let segment_time = rate.time_for(u64::from(mtu));
                Self::Red(Red::new(min, max, probability, weight, segment_time))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_reads_back() {
        for text in [
            "tail",
            "codel",
            "codel:interval=350ms",
            "red:min=100KB",
            "red:min=100KB,max=200KB,p=2%,weight=0.001",
            "red",
            "red:p=2%",
            "red:max=300KB",
        ] {
            let rule: Discipline = text.parse().unwrap();
            assert_eq!(rule.to_string().parse(), Ok(rule), "{text}");
        }
    }

    #[test]
    fn defaults_are_those_of_the_sources() {
        assert_eq!(
            "codel".parse(),
            "codel:target=5ms,interval=100ms".parse::<Discipline>()
        );
        let red = "red:min=100KB".parse::<Discipline>();
        assert_eq!(red, "red:min=100KB,max=300KB,p=10%,weight=0.2%".parse());
    }

    #[test]
    fn bad_text_is_refused_and_named() {
        for bad in [
            "",
            "sfq",
            "tail:1",
            "codel:target=0",
            "codel:target=200ms",
            "codel:aim=5ms",
            "red:min=0,max=1KB",
            "red:min=1KB,p=1",
            "red:min=300KB,max=100KB",
            "red:min=1KB,p=0",
            "red:min=1KB,p=101%",
            "red:min=-1KB",
        ] {
            let error = bad.parse::<Discipline>().unwrap_err().to_string();
            assert!(error.contains(&format!("{bad:?}")), "{error}");
        }
    }
}
