// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which segments are lost on the wire.

use super::grammar::{Arguments, RuleError, Share, head, serde_as_rule};
use super::random::Trials;
use longhaul_units::Ratio;
use rand_xoshiro::Xoshiro256PlusPlus;
use std::{fmt, ops::RangeInclusive, str::FromStr};

/// The rule by which segments are lost.
///
/// Text forms: `none`, `0.1%`, `gilbert:p=1%,r=30%[,good=0%,bad=100%]`, `at:5,17,100-110`.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum Loss {
    /// Nothing is lost.
    #[default]
    None,
    /// Each segment is lost with this probability, whatever happened to the others.
    Independent(Ratio),
    /// The channel of Gilbert and Elliott: two states, each with its own loss probability. It
    /// starts good, and may change state before each segment. The mean stay in the bad state is
    /// 1/r segments; the share of time in it is p/(p + r).
    GilbertElliott {
        /// p: chance to turn bad before a segment.
        good_to_bad: Ratio,
        /// r: chance to turn good before a segment.
        bad_to_good: Ratio,
        /// Loss probability of a segment in the good state; 0 unless said.
        loss_in_good: Ratio,
        /// Loss probability of a segment in the bad state; 1 unless said (Gilbert's own model).
        loss_in_bad: Ratio,
    },
    /// Exactly these segments, counted from 1 at the start of the link.
    Exact(Numbers),
}

impl Loss {
    /// The share of segments that is lost in the long run; 0 for [`Loss::Exact`].
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
    type Err = RuleError;

    fn from_str(input: &str) -> Result<Self, RuleError> {
        let parsed = match head(input) {
            ("none", "") => Ok(Self::None),
            ("gilbert", rest) => gilbert(rest),
            ("at", rest) => rest.parse().map(Self::Exact),
            _ => independent(input),
        };
        parsed.map_err(|reason| RuleError::new("loss", input, reason))
    }
}

fn independent(text: &str) -> Result<Loss, String> {
    text.parse()
        .map(|share: Share| Loss::Independent(share.0))
        .map_err(|e| format!("{e}; or gilbert:p=1%,r=30% or at:5,17,100-110 or none"))
}

fn gilbert(text: &str) -> Result<Loss, String> {
    let mut arguments = Arguments::read(text)?;
    let share = |share: Share| share.0;
    let loss = Loss::GilbertElliott {
        good_to_bad: share(arguments.need("p")?),
        bad_to_good: share(arguments.need("r")?),
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

serde_as_rule!(
    Loss,
    "a loss such as \"0.1%\", \"gilbert:p=1%,r=30%\" or \"at:5,17\""
);

/// Segment numbers from 1, as sorted ranges that neither touch nor overlap. At most
/// [`Numbers::RANGES_MAX`] ranges, 16 bytes each.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Numbers(Vec<RangeInclusive<u64>>);

impl Numbers {
    /// The most ranges that a text may have (1.5 MB).
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

impl FromIterator<u64> for Numbers {
    fn from_iter<I: IntoIterator<Item = u64>>(numbers: I) -> Self {
        Self::new(numbers.into_iter().map(|n| n..=n).collect())
    }
}

impl FromStr for Numbers {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.split(',').count() > Self::RANGES_MAX {
            return Err(format!("more than {} ranges", Self::RANGES_MAX));
        }
        text.split(',')
            .map(range)
            .collect::<Result<_, _>>()
            .map(Self::new)
    }
}

/// `5` or `100-110`.
fn range(text: &str) -> Result<RangeInclusive<u64>, String> {
    let (from, to) = text.split_once('-').unwrap_or((text, text));
    let number = |digits: &str| match digits.trim().parse() {
        Ok(n @ 1..) => Ok(n),
        _ => Err(format!(
            "{text:?} is not a segment number from 1 or a range such as 100-110"
        )),
    };
    let (from, to) = (number(from)?, number(to)?);
    if from > to {
        return Err(format!("{text:?} runs backwards"));
    }
    Ok(from..=to)
}

impl fmt::Display for Numbers {
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

/// A [`Loss`] rule at work on one direction of a link.
#[derive(Debug, Clone)]
pub struct LossProcess {
    rule: Rule,
    rng: Xoshiro256PlusPlus,
    /// Segments asked about so far.
    count: u64,
}

#[derive(Debug, Clone)]
enum Rule {
    Never,
    Independent(Trials),
    GilbertElliott(Box<Channel>),
    Exact(Exact),
}

impl LossProcess {
    /// A process that draws from `rng` only (see [`stream`](super::random::stream)).
    #[must_use]
    pub fn new(loss: &Loss, rng: Xoshiro256PlusPlus) -> Self {
        Self {
            rule: Rule::new(loss, 0),
            rng,
            count: 0,
        }
    }

    /// Goes on under another rule. Segments keep their numbers; a Gilbert–Elliott channel starts
    /// good again.
    pub fn change(&mut self, loss: &Loss) {
        self.rule = Rule::new(loss, self.count);
    }

    /// Whether the next segment is lost. Call it once for each segment, in order.
    #[inline]
    pub fn lose(&mut self) -> bool {
        self.count += 1;
        match &mut self.rule {
            Rule::Never => false,
            Rule::Independent(trials) => trials.succeeds(&mut self.rng),
            Rule::GilbertElliott(channel) => channel.lose(&mut self.rng),
            Rule::Exact(exact) => exact.lose(self.count),
        }
    }

    /// The first of the next `n` segments that is lost, counted from 0. It and those before it are
    /// asked about by this, or all `n` where none is lost: the same answers as `n` calls of
    /// [`lose`](Self::lose) at the cost of the losses alone.
    pub fn first_lost(&mut self, n: u32) -> Option<u32> {
        let kept = match &mut self.rule {
            Rule::Never => n,
            Rule::Independent(trials) => {
                let kept = trials.failures(&mut self.rng).min(u64::from(n));
                trials.skip(kept);
                kept as u32
            }
            Rule::GilbertElliott(channel) => channel.keep(n, &mut self.rng),
            Rule::Exact(exact) => exact.keep(self.count, n),
        };
        self.count += u64::from(kept);
        (kept < n && self.lose_next()).then_some(kept)
    }

    /// A channel that was left in the middle of a segment knows already that this one is lost.
    fn lose_next(&mut self) -> bool {
        match &mut self.rule {
            Rule::GilbertElliott(_) => {
                self.count += 1;
                true
            }
            _ => self.lose(),
        }
    }
}

impl Rule {
    fn new(loss: &Loss, count: u64) -> Self {
        match loss {
            Loss::None => Self::Never,
            Loss::Independent(p) => Self::Independent(Trials::new(*p)),
            Loss::Exact(numbers) => Self::Exact(Exact::after(numbers, count)),
            Loss::GilbertElliott {
                good_to_bad,
                bad_to_good,
                loss_in_good,
                loss_in_bad,
            } => Self::GilbertElliott(Box::new(Channel {
                bad: false,
                leave: [Trials::new(*good_to_bad), Trials::new(*bad_to_good)],
                lose: [Trials::new(*loss_in_good), Trials::new(*loss_in_bad)],
            })),
        }
    }
}

/// The two-state channel; arrays are indexed by state, good first.
#[derive(Debug, Clone)]
struct Channel {
    bad: bool,
    leave: [Trials; 2],
    lose: [Trials; 2],
}

impl Channel {
    fn lose(&mut self, rng: &mut Xoshiro256PlusPlus) -> bool {
        self.bad ^= self.leave[usize::from(self.bad)].succeeds(rng);
        self.lose[usize::from(self.bad)].succeeds(rng)
    }
}

impl Channel {
    /// How many of the next `n` segments are kept before one is lost; that one is asked about too.
    /// Numbers are drawn in the order of `lose`.
    fn keep(&mut self, n: u32, rng: &mut Xoshiro256PlusPlus) -> u32 {
        let mut kept = 0;
        while kept < n {
            let state = usize::from(self.bad);
            let stay = self.leave[state].failures(rng).min(u64::from(n - kept));
            if stay == 0 {
                if self.lose(rng) {
                    break;
                }
                kept += 1;
                continue;
            }
            let run = self.lose[state].failures(rng).min(stay);
            self.lose[state].skip(run);
            self.leave[state].skip(run);
            kept += run as u32;
            if run < stay {
                self.lose(rng);
                break;
            }
        }
        kept
    }
}

/// The ranges that are still ahead, nearest last.
#[derive(Debug, Clone)]
struct Exact {
    ahead: Vec<RangeInclusive<u64>>,
}

impl Exact {
    fn after(numbers: &Numbers, count: u64) -> Self {
        let ahead = numbers.0.iter().rev().filter(|range| *range.end() > count);
        Self {
            ahead: ahead.cloned().collect(),
        }
    }

    /// How many of the `n` segments after number `count` are kept before one is lost.
    fn keep(&self, count: u64, n: u32) -> u32 {
        let next = self.ahead.last().map_or(u64::MAX, |next| *next.start());
        next.saturating_sub(count + 1).min(u64::from(n)) as u32
    }

    fn lose(&mut self, number: u64) -> bool {
        let Some(next) = self.ahead.last() else {
            return false;
        };
        let lost = next.contains(&number);
        if number == *next.end() {
            self.ahead.pop();
        }
        lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::stream;

    fn lost(rule: &str, segments: u64) -> Vec<u64> {
        let mut process = LossProcess::new(&rule.parse().unwrap(), stream(1, "loss"));
        (1..=segments).filter(|_| process.lose()).collect()
    }

    #[test]
    fn text_reads_back() {
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
    fn bad_text_is_refused_and_named() {
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
    fn a_file_may_hold_a_number_or_a_text() {
        let read = |json: &str| serde_json::from_str::<Loss>(json).unwrap();
        assert_eq!(read("0.001"), read("\"0.1%\""));
        assert_eq!(
            serde_json::to_string(&read("\"at:7\"")).unwrap(),
            "\"at:7\""
        );
    }

    #[test]
    fn exact_numbers_are_lost_and_no_others() {
        assert_eq!(lost("at:17,5,9-11,10-12", 100), [5, 9, 10, 11, 12, 17]);
        assert_eq!(
            "at:13,9-11,10-12".parse::<Loss>().unwrap().to_string(),
            "at:9-13"
        );
    }

    #[test]
    fn a_change_keeps_the_numbers() {
        let mut process = LossProcess::new(&Loss::None, stream(1, "loss"));
        (0..10).for_each(|_| assert!(!process.lose()));
        process.change(&"at:3,8-12".parse().unwrap());
        let lost: Vec<u64> = (11..=20).filter(|_| process.lose()).collect();
        assert_eq!(lost, [11, 12]);
    }

    #[test]
    fn certain_and_impossible_loss() {
        assert_eq!(lost("100%", 50).len(), 50);
        assert!(lost("0", 50).is_empty());
        assert_eq!(lost("gilbert:p=100%,r=0", 50).len(), 50);
    }

    #[test]
    fn many_at_once_are_lost_as_one_by_one() {
        for rule in [
            "none",
            "1%",
            "100%",
            "gilbert:p=1%,r=30%",
            "gilbert:p=5%,r=20%,good=1%,bad=60%",
            "at:5,17,44-47,100-300",
        ] {
            let mut process = LossProcess::new(&rule.parse().unwrap(), stream(1, "loss"));
            let (mut asked, mut found) = (0, Vec::new());
            for n in (1..=60).cycle().take(400) {
                let mut left = n;
                while let Some(at) = process.first_lost(left) {
                    left -= at + 1;
                    found.push(asked + u64::from(n - left));
                    if left == 0 {
                        break;
                    }
                }
                asked += u64::from(n);
            }
            assert_eq!(found, lost(rule, asked), "{rule}");
        }
    }

    #[test]
    fn a_seed_repeats_the_pattern() {
        assert_eq!(lost("1%", 10_000), lost("1%", 10_000));
        assert!(!lost("1%", 10_000).is_empty());
    }
}
