// SPDX-License-Identifier: MIT OR Apache-2.0
//! Loss of segments on the wire: the models, and their decisions on each segment.

use super::grammar::{Arguments, Percentage, SpecError, serde_as_text, split_name};
use super::random::BernoulliTrials;
use longhaul_units::Ratio;
use rand_xoshiro::Xoshiro256PlusPlus;
use std::{fmt, ops::RangeInclusive, str::FromStr};

/// Loss model.
///
/// Text forms: `none`, `0.1%`, `gilbert:p=1%,r=30%[,good=0%,bad=100%]`, `at:5,17,100-110`.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum Loss {
    /// No loss.
    #[default]
    None,
    /// Independent loss: each segment is lost with this probability.
    Independent(Ratio),
    /// Gilbert–Elliott channel: two states, each with its own loss probability. The channel starts in
    /// the good state, and may change state before each segment. It stays in the bad state for 1/r
    /// segments on average, and is in it for a share p/(p + r) of segments.
    GilbertElliott {
        /// Probability p of a change from good to bad before a segment.
        good_to_bad: Ratio,
        /// Probability r of a change from bad to good before a segment.
        bad_to_good: Ratio,
        /// Loss probability of a segment in the good state; 0 by default.
        loss_in_good: Ratio,
        /// Loss probability of a segment in the bad state; 1 by default (Gilbert's own model).
        loss_in_bad: Ratio,
    },
    /// Loss of exactly these segments, counted from 1 at the start of the link.
    Exact(SegmentNumbers),
}

impl Loss {
    /// Share of segments that are lost in the long run; 0 for [`Loss::Exact`].
    #[must_use]
    pub fn mean(&self) -> f64 {
        match self {
            Self::None | Self::Exact(_) => 0.0,
            Self::Independent(p) => p.get(),
            Self::GilbertElliott {
                good_to_bad,
                bad_to_good,
                loss_in_good,
                loss_in_bad,
            } => {
                let (p, r) = (good_to_bad.get(), bad_to_good.get());
                let bad = if p == 0.0 { 0.0 } else { p / (p + r) };
                bad * loss_in_bad.get() + (1.0 - bad) * loss_in_good.get()
            }
        }
    }
}

impl FromStr for Loss {
    type Err = SpecError;

    fn from_str(input: &str) -> Result<Self, SpecError> {
        let parsed = match split_name(input) {
            ("none", "") => Ok(Self::None),
            ("gilbert", rest) => parse_gilbert(rest),
            ("at", rest) => rest.parse().map(Self::Exact),
            _ => parse_independent(input),
        };
        parsed.map_err(|reason| SpecError::new("loss", input, reason))
    }
}

fn parse_independent(text: &str) -> Result<Loss, String> {
    text.parse()
        .map(|share: Percentage| Loss::Independent(share.0))
        .map_err(|e| format!("{e}; or gilbert:p=1%,r=30% or at:5,17,100-110 or none"))
}

fn parse_gilbert(text: &str) -> Result<Loss, String> {
    let mut arguments = Arguments::parse(text)?;
    let share = |share: Percentage| share.0;
    let loss = Loss::GilbertElliott {
        good_to_bad: share(arguments.require("p")?),
        bad_to_good: share(arguments.require("r")?),
        loss_in_good: arguments.take("good")?.map_or(Ratio::ZERO, share),
        loss_in_bad: arguments.take("bad")?.map_or(Ratio::ONE, share),
    };
    arguments.finish("p, r, good, bad")?;
    Ok(loss)
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Independent(p) => f.write_str(&p.percent()),
            Self::Exact(numbers) => write!(f, "at:{numbers}"),
            Self::GilbertElliott {
                good_to_bad,
                bad_to_good,
                loss_in_good,
                loss_in_bad,
            } => write!(
                f,
                "gilbert:p={},r={},good={},bad={}",
                good_to_bad.percent(),
                bad_to_good.percent(),
                loss_in_good.percent(),
                loss_in_bad.percent()
            ),
        }
    }
}

serde_as_text!(
    Loss,
    "a loss such as \"0.1%\", \"gilbert:p=1%,r=30%\" or \"at:5,17\""
);

/// Segment numbers from 1, as sorted ranges that neither touch nor overlap. Holds at most
/// [`SegmentNumbers::RANGES_MAX`] ranges.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SegmentNumbers(Vec<RangeInclusive<u64>>);

impl SegmentNumbers {
    /// Most ranges that a text may have. Memory: 1.5 MB.
    pub const RANGES_MAX: usize = 65_536;

    fn new(mut ranges: Vec<RangeInclusive<u64>>) -> Self {
        ranges.sort_unstable_by_key(|range| *range.start());
        let mut merged: Vec<RangeInclusive<u64>> = Vec::with_capacity(ranges.len());
        for range in ranges {
            match merged.last_mut() {
                Some(last) if *range.start() <= last.end().saturating_add(1) => {
                    *last = *last.start()..=*last.end().max(range.end());
                }
                _ => merged.push(range),
            }
        }
        Self(merged)
    }
}

impl FromIterator<u64> for SegmentNumbers {
    fn from_iter<I: IntoIterator<Item = u64>>(numbers: I) -> Self {
        Self::new(numbers.into_iter().map(|n| n..=n).collect())
    }
}

impl FromStr for SegmentNumbers {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.split(',').count() > Self::RANGES_MAX {
            return Err(format!("more than {} ranges", Self::RANGES_MAX));
        }
        text.split(',')
            .map(parse_range)
            .collect::<Result<_, _>>()
            .map(Self::new)
    }
}

/// Parses `5` or `100-110`.
fn parse_range(text: &str) -> Result<RangeInclusive<u64>, String> {
    let (from, to) = text.split_once('-').unwrap_or((text, text));
    let number = |digits: &str| match digits.trim().parse() {
        Ok(n @ 1..) => Ok(n),
        _ => Err(format!(
            "{text:?} is not a segment number from 1 or a range such as 100-110"
        )),
    };
    let (from, to) = (number(from)?, number(to)?);
    if from > to {
        return Err(format!("the range {text:?} ends before it begins"));
    }
    Ok(from..=to)
}

impl fmt::Display for SegmentNumbers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, range) in self.0.iter().enumerate() {
            let comma = if i == 0 { "" } else { "," };
            match (range.start(), range.end()) {
                (from, to) if from == to => write!(f, "{comma}{from}")?,
                (from, to) => write!(f, "{comma}{from}-{to}")?,
            }
        }
        Ok(())
    }
}

/// State of a [`Loss`] for one direction of a link.
#[derive(Debug, Clone)]
pub struct LossProcess {
    model: LossModel,
    rng: Xoshiro256PlusPlus,
    /// Segments decided so far.
    count: u64,
}

/// State of each loss model.
#[derive(Debug, Clone)]
enum LossModel {
    Never,
    Independent(BernoulliTrials),
    GilbertElliott(Box<Channel>),
    Exact(ExactLoss),
}

impl LossProcess {
    /// A process that draws from `rng` only (see [`stream`](super::random::stream)).
    #[must_use]
    pub fn new(loss: &Loss, rng: Xoshiro256PlusPlus) -> Self {
        Self {
            model: LossModel::new(loss, 0),
            rng,
            count: 0,
        }
    }

    /// Changes the model. Segments keep their numbers; a Gilbert–Elliott channel starts in the good
    /// state again.
    pub fn change(&mut self, loss: &Loss) {
        self.model = LossModel::new(loss, self.count);
    }

    /// Decides on the next segment, and returns whether it is lost. Call it once for each segment, in
    /// order.
    #[inline]
    pub fn occurs(&mut self) -> bool {
        self.count += 1;
        match &mut self.model {
            LossModel::Never => false,
            LossModel::Independent(trials) => trials.succeeds(&mut self.rng),
            LossModel::GilbertElliott(channel) => channel.lose(&mut self.rng),
            LossModel::Exact(exact) => exact.lose(self.count),
        }
    }

    /// Decides on the next segments until one is lost, at most `n`. Returns the position of the lost
    /// segment, from 0; `None` if all `n` pass. The decisions are those of [`occurs`](Self::occurs), but
    /// only losses and changes of state cost time.
    pub fn first_lost(&mut self, n: u32) -> Option<u32> {
        let passed = match &mut self.model {
            LossModel::Never => n,
            LossModel::Independent(trials) => {
                let passed = trials.failures_ahead(&mut self.rng).min(u64::from(n));
                trials.skip(passed);
                passed as u32
            }
            LossModel::GilbertElliott(channel) => channel.pass_until_loss(n, &mut self.rng),
            LossModel::Exact(exact) => exact.segments_before_loss(self.count, n),
        };
        self.count += u64::from(passed);
        (passed < n && self.finish_loss()).then_some(passed)
    }

    /// Decides on the segment at which [`first_lost`](Self::first_lost) stopped, and returns whether it is lost. A
    /// Gilbert–Elliott channel has decided on it already.
    fn finish_loss(&mut self) -> bool {
        match &mut self.model {
            LossModel::GilbertElliott(_) => {
                self.count += 1;
                true
            }
            _ => self.occurs(),
        }
    }
}

impl LossModel {
    fn new(loss: &Loss, count: u64) -> Self {
        match loss {
            Loss::None => Self::Never,
            Loss::Independent(p) => Self::Independent(BernoulliTrials::new(*p)),
            Loss::Exact(numbers) => Self::Exact(ExactLoss::after(numbers, count)),
            Loss::GilbertElliott {
                good_to_bad,
                bad_to_good,
                loss_in_good,
                loss_in_bad,
            } => Self::GilbertElliott(Box::new(Channel {
                bad: false,
                transition: [
                    BernoulliTrials::new(*good_to_bad),
                    BernoulliTrials::new(*bad_to_good),
                ],
                loss: [
                    BernoulliTrials::new(*loss_in_good),
                    BernoulliTrials::new(*loss_in_bad),
                ],
            })),
        }
    }
}

/// A Gilbert–Elliott channel. Arrays are indexed by state, good first.
#[derive(Debug, Clone)]
struct Channel {
    bad: bool,
    transition: [BernoulliTrials; 2],
    loss: [BernoulliTrials; 2],
}

impl Channel {
    fn lose(&mut self, rng: &mut Xoshiro256PlusPlus) -> bool {
        self.bad ^= self.transition[usize::from(self.bad)].succeeds(rng);
        self.loss[usize::from(self.bad)].succeeds(rng)
    }
}

impl Channel {
    /// Decides on the next segments until one is lost, at most `n`, and returns how many pass. Draws
    /// random numbers in the order of [`occurs`](Self::occurs).
    fn pass_until_loss(&mut self, n: u32, rng: &mut Xoshiro256PlusPlus) -> u32 {
        let mut passed = 0;
        while passed < n {
            let state = usize::from(self.bad);
            let stay = self.transition[state]
                .failures_ahead(rng)
                .min(u64::from(n - passed));
            if stay == 0 {
                if self.lose(rng) {
                    break;
                }
                passed += 1;
                continue;
            }
            let run = self.loss[state].failures_ahead(rng).min(stay);
            self.loss[state].skip(run);
            self.transition[state].skip(run);
            passed += run as u32;
            if run < stay {
                self.lose(rng);
                break;
            }
        }
        passed
    }
}

/// Ranges of lost segments that are still to come, the nearest last.
#[derive(Debug, Clone)]
struct ExactLoss {
    remaining: Vec<RangeInclusive<u64>>,
}

impl ExactLoss {
    /// The ranges of `numbers` that do not end before segment `count` + 1.
    fn after(numbers: &SegmentNumbers, count: u64) -> Self {
        let remaining = numbers.0.iter().rev().filter(|range| *range.end() > count);
        Self {
            remaining: remaining.cloned().collect(),
        }
    }

    /// Number of segments after number `count` before the next loss, at most `n`.
    fn segments_before_loss(&self, count: u64, n: u32) -> u32 {
        let next = self.remaining.last().map_or(u64::MAX, |next| *next.start());
        next.saturating_sub(count + 1).min(u64::from(n)) as u32
    }

    fn lose(&mut self, number: u64) -> bool {
        let Some(next) = self.remaining.last() else {
            return false;
        };
        let lost = next.contains(&number);
        if number == *next.end() {
            self.remaining.pop();
        }
        lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::stream;

    fn lost(model: &str, segments: u64) -> Vec<u64> {
        let mut process = LossProcess::new(&model.parse().unwrap(), stream(1, "loss"));
        (1..=segments).filter(|_| process.occurs()).collect()
    }

    #[test]
    fn parses_its_own_text() {
        for text in [
            "none",
            "0.1%",
            "gilbert:p=1%,r=30%",
            "at:5,17,100-110",
            "0%",
            "3.3e-5%",
        ] {
            let loss: Loss = text.parse().unwrap();
            assert_eq!(loss.to_string().parse(), Ok(loss), "{text}");
        }
    }

    #[test]
    fn names_the_text_that_it_rejects() {
        for bad in [
            "1.5",
            "1",
            "0.001",
            "gilbert:p=1%,r=1",
            "-1%",
            "often",
            "",
            "gilbert",
            "gilbert:p=1%",
            "gilbert:p=1%,r=2",
            "none:1",
            "gilbert:p=1%,r=1%,x=1",
            "at:",
            "at:0",
            "at:9-3",
            "at:1,,2",
            "at:x",
        ] {
            let error = bad.parse::<Loss>().unwrap_err().to_string();
            assert!(error.contains(&format!("{bad:?}")), "{error}");
        }
    }

    #[test]
    fn deserialises_numbers_and_texts() {
        let read = |json: &str| serde_json::from_str::<Loss>(json).unwrap();
        assert_eq!(read("0.001"), read("\"0.1%\""));
        assert_eq!(
            serde_json::to_string(&read("\"at:7\"")).unwrap(),
            "\"at:7\""
        );
    }

    #[test]
    fn loses_exactly_the_numbered_segments() {
        assert_eq!(lost("at:17,5,9-11,10-12", 100), [5, 9, 10, 11, 12, 17]);
        assert_eq!(
            "at:13,9-11,10-12".parse::<Loss>().unwrap().to_string(),
            "at:9-13"
        );
    }

    #[test]
    fn counts_segments_across_a_change() {
        let mut process = LossProcess::new(&Loss::None, stream(1, "loss"));
        (0..10).for_each(|_| assert!(!process.occurs()));
        process.change(&"at:3,8-12".parse().unwrap());
        let lost: Vec<u64> = (11..=20).filter(|_| process.occurs()).collect();
        assert_eq!(lost, [11, 12]);
    }

    #[test]
    fn loses_all_at_one_and_none_at_zero() {
        assert_eq!(lost("100%", 50).len(), 50);
        assert!(lost("0", 50).is_empty());
        assert_eq!(lost("gilbert:p=100%,r=0", 50).len(), 50);
    }

    #[test]
    fn finds_the_losses_of_many_segments_as_one_by_one() {
        for model in [
            "none",
            "1%",
            "100%",
            "gilbert:p=1%,r=30%",
            "gilbert:p=5%,r=20%,good=1%,bad=60%",
            "at:5,17,44-47,100-300",
        ] {
            let mut process = LossProcess::new(&model.parse().unwrap(), stream(1, "loss"));
            let (mut offered, mut found) = (0, Vec::new());
            for n in (1..=60).cycle().take(400) {
                let mut left = n;
                while let Some(at) = process.first_lost(left) {
                    left -= at + 1;
                    found.push(offered + u64::from(n - left));
                    if left == 0 {
                        break;
                    }
                }
                offered += u64::from(n);
            }
            assert_eq!(found, lost(model, offered), "{model}");
        }
    }

    #[test]
    fn repeats_the_pattern_of_a_seed() {
        assert_eq!(lost("1%", 10_000), lost("1%", 10_000));
        assert!(!lost("1%", 10_000).is_empty());
    }
}
