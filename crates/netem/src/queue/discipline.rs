// SPDX-License-Identifier: MIT OR Apache-2.0
//! Queue disciplines: tail drop, and active queue management (AQM) by CoDel or RED.
//!
//! Each holds beside the queue limit, which the line itself enforces (tail drop).

pub use super::codel::AqmVerdict;
use super::codel::CoDel;
use super::limit::QueueCapacity;
use super::red::Red;
use crate::grammar::{Arguments, Percentage, SpecError, serde_as_text, split_name};
use longhaul_units::{BitRate, Bytes, Ratio, Time};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::{fmt, str::FromStr};

/// Queue discipline.
///
/// Text forms: `tail`, `codel[:target=5ms,interval=100ms]`,
/// `red[:min=100KB,max=300KB,p=10%,weight=0.2%]`.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum QueueDiscipline {
    /// Tail drop: only the queue limit drops segments.
    #[default]
    Tail,
    /// CoDel (RFC 8289): drops at the head of the queue while segments wait too long.
    CoDel {
        /// Accepted standing delay; [`CODEL_TARGET`] by default.
        target: Time,
        /// Time for which the delay must be above the target, about the largest common RTT;
        /// [`CODEL_INTERVAL`] by default. On a path of 350 ms, 100 ms is too short: a single flow can't
        /// fill the link.
        interval: Time,
    },
    /// Random early detection in its gentle form: drops arrivals at random. The drop probability rises
    /// from 0 to `probability` between the thresholds `min` and `max`, and to 1 at twice `max`.
    Red {
        /// Thresholds `min` and `max` of the mean backlog. By default `max` is 3 × `min`, as Floyd advises.
        /// `None`: a sixth and a half of the queue limit, so that all arrivals are dropped when the mean
        /// reaches the limit. That suits a queue of a BDP.
        thresholds: Option<(Bytes, Bytes)>,
        /// Drop probability at `max`; [`RED_PROBABILITY`] by default.
        probability: Ratio,
        /// Weight of an arrival in the mean backlog; [`RED_WEIGHT`] by default.
        weight: Ratio,
    },
}

/// Default target of CoDel (RFC 8289 §4.3).
pub const CODEL_TARGET: Time = Time::from_millis(5);
/// Default interval of CoDel (RFC 8289 §4.3).
pub const CODEL_INTERVAL: Time = Time::from_millis(100);
/// Default drop probability of RED at `max` (Floyd's advice of 1997; the paper of 1993 has 2 %).
pub const RED_PROBABILITY: f64 = 0.1;
/// Default weight of RED (Floyd and Jacobson 1993, §IV: at least 0.001, 0.002 recommended).
pub const RED_WEIGHT: f64 = 0.002;

impl FromStr for QueueDiscipline {
    type Err = SpecError;

    fn from_str(input: &str) -> Result<Self, SpecError> {
        let parsed = match split_name(input) {
            ("tail", "") => Ok(Self::Tail),
            ("codel", rest) => parse_codel(rest),
            ("red", rest) => parse_red(rest),
            _ => Err(
                "known: tail, codel[:target=5ms,interval=100ms], red[:min=100KB,max=300KB,p=10%]"
                    .to_owned(),
            ),
        };
        parsed.map_err(|reason| SpecError::new("aqm", input, reason))
    }
}

fn parse_codel(text: &str) -> Result<QueueDiscipline, String> {
    let mut arguments = Arguments::parse(text)?;
    let target = arguments.take("target")?.unwrap_or(CODEL_TARGET);
    let interval = arguments.take("interval")?.unwrap_or(CODEL_INTERVAL);
    arguments.finish("target, interval")?;
    if target == Time::ZERO || target >= interval {
        return Err("the target must be above 0 and below the interval".to_owned());
    }
    Ok(QueueDiscipline::CoDel { target, interval })
}

fn parse_red(text: &str) -> Result<QueueDiscipline, String> {
    let mut arguments = Arguments::parse(text)?;
    let thresholds = red_thresholds(arguments.take("min")?, arguments.take("max")?)?;
    let probability = arguments.take("p")?;
    let probability = probability.map_or_else(
        || constant_ratio(RED_PROBABILITY),
        |Percentage(share)| share,
    );
    // The weight is not a share of segments: papers write it as a number.
    let weight = arguments.take("weight")?;
    let weight = weight.unwrap_or_else(|| constant_ratio(RED_WEIGHT));
    arguments.finish("min, max, p, weight")?;
    if probability == Ratio::ZERO || weight == Ratio::ZERO {
        return Err("p and weight must be above 0".to_owned());
    }
    Ok(QueueDiscipline::Red {
        thresholds,
        probability,
        weight,
    })
}

/// Both thresholds; a missing one follows from the other. `None` if both are missing.
fn red_thresholds(
    min: Option<Bytes>,
    max: Option<Bytes>,
) -> Result<Option<(Bytes, Bytes)>, String> {
    let thresholds = match (min, max) {
        (None, None) => return Ok(None),
        (Some(min), None) => (min, Bytes::new(min.get().saturating_mul(3))),
        (None, Some(max)) => (Bytes::new(max.get() / 3), max),
        (Some(min), Some(max)) => (min, max),
    };
    if thresholds.0 == Bytes::new(0) || thresholds.0 >= thresholds.1 {
        Err("min must be above 0 and below max".to_owned())
    } else {
        Ok(Some(thresholds))
    }
}

impl QueueDiscipline {
    /// This discipline with default thresholds from the queue limit. `mtu` is the largest segment in bytes.
    #[must_use]
    pub fn with_defaults(&self, capacity: QueueCapacity, mtu: u32) -> Self {
        let Self::Red {
            thresholds,
            probability,
            weight,
        } = *self
        else {
            return self.clone();
        };
        let packets = (capacity.packets as u64).saturating_mul(mtu.into());
        let bytes = capacity.bytes.min(packets).max(mtu.into());
        let default = (Bytes::new(bytes / 6), Bytes::new(bytes / 2));
        Self::Red {
            thresholds: thresholds.or(Some(default)),
            probability,
            weight,
        }
    }
}

fn constant_ratio(constant: f64) -> Ratio {
    Ratio::new(constant).unwrap_or(Ratio::ONE)
}

impl fmt::Display for QueueDiscipline {
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
                thresholds,
                probability,
                weight,
            } => {
                f.write_str("red:")?;
                if let Some((min, max)) = thresholds {
                    write!(f, "min={},max={},", min.exact(), max.exact())?;
                }
                write!(f, "p={},weight={}", probability.percent(), weight.percent())
            }
        }
    }
}

serde_as_text!(
    QueueDiscipline,
    "a queue discipline such as \"tail\", \"codel\" or \"red:min=100KB\""
);

/// State of a queue discipline for one queue.
///
/// Call [`admit`](Self::admit) for each arrival that the queue limit admits. Call
/// [`decide`](Self::decide) for each segment taken from the head, also for the one after a drop.
#[derive(Debug, Clone)]
pub struct Aqm {
    algorithm: Algorithm,
    rng: Xoshiro256PlusPlus,
}

/// State of each kind of queue discipline.
#[derive(Debug, Clone)]
enum Algorithm {
    Tail,
    CoDel(CoDel),
    Red(Red),
}

impl Aqm {
    /// State for an empty queue. `mtu` is the largest segment in bytes. `rate` is the transmitter's
    /// rate, from which RED computes how fast an idle queue drains. Draws from `rng` only.
    #[must_use]
    pub fn new(
        discipline: &QueueDiscipline,
        mtu: u32,
        rate: BitRate,
        rng: Xoshiro256PlusPlus,
    ) -> Self {
        let algorithm = Algorithm::new(discipline, mtu, rate);
        Self { algorithm, rng }
    }

    /// Changes discipline, MTU and rate. A discipline of the same kind goes on from its state, whatever its parameters
    /// are: the queue is the same.
    pub fn change(&mut self, discipline: &QueueDiscipline, mtu: u32, rate: BitRate) {
        let changed = Algorithm::new(discipline, mtu, rate);
        match (&mut self.algorithm, changed) {
            (Algorithm::CoDel(present), Algorithm::CoDel(changed)) => present.retune(&changed),
            (Algorithm::Red(present), Algorithm::Red(changed)) => present.retune(&changed),
            (present, changed) => *present = changed,
        }
    }

    /// Decides on an arrival, and returns whether it may join the queue. `backlog` is the queue in
    /// bytes without it. `idle_since` is the time at which the transmitter became idle, if it is now.
    #[inline]
    pub fn admit(&mut self, now: Time, backlog: u64, idle_since: Option<Time>) -> bool {
        match &mut self.algorithm {
            Algorithm::Red(red) => red.admit(now, backlog, idle_since, &mut self.rng),
            Algorithm::Tail | Algorithm::CoDel(_) => true,
        }
    }

    /// Whether [`decide`](Self::decide) may drop a segment that [`admit`](Self::admit) admitted.
    #[inline]
    #[must_use]
    pub fn decides_at_head(&self) -> bool {
        matches!(self.algorithm, Algorithm::CoDel(_))
    }

    /// Decides on the segment just taken from the head, which waited for `sojourn` and has `backlog`
    /// bytes behind it.
    #[inline]
    pub fn decide(&mut self, now: Time, sojourn: Time, backlog: u64) -> AqmVerdict {
        match &mut self.algorithm {
            Algorithm::CoDel(codel) => codel.decide(now, sojourn, backlog),
            Algorithm::Tail | Algorithm::Red(_) => AqmVerdict::Keep,
        }
    }
}

impl Algorithm {
    fn new(discipline: &QueueDiscipline, mtu: u32, rate: BitRate) -> Self {
        match *discipline {
            QueueDiscipline::Tail => Self::Tail,
            QueueDiscipline::CoDel { target, interval } => {
                Self::CoDel(CoDel::new(target, interval, mtu))
            }
            QueueDiscipline::Red {
                thresholds,
                probability,
                weight,
            } => {
                // A queue of unknown limit gets the thresholds that suit the default limit.
                let default = || (Bytes::new(250_000), Bytes::new(750_000));
                let (min, max) = thresholds.unwrap_or_else(default);
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
    fn parses_its_own_text() {
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
            let discipline: QueueDiscipline = text.parse().unwrap();
            assert_eq!(discipline.to_string().parse(), Ok(discipline), "{text}");
        }
    }

    #[test]
    fn uses_the_defaults_of_the_sources() {
        assert_eq!(
            "codel".parse(),
            "codel:target=5ms,interval=100ms".parse::<QueueDiscipline>()
        );
        let red = "red:min=100KB".parse::<QueueDiscipline>();
        assert_eq!(red, "red:min=100KB,max=300KB,p=10%,weight=0.2%".parse());
    }

    #[test]
    fn names_the_text_that_it_rejects() {
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
            let error = bad.parse::<QueueDiscipline>().unwrap_err().to_string();
            assert!(error.contains(&format!("{bad:?}")), "{error}");
        }
    }
}
