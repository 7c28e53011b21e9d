// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ranges in `[vary]`: `"2ms..10ms + 2ms"` goes on by adding, `"1ms..100ms * 10"` by multiplying, and
//! `"1ms..10ms / 5"` is five values at even distances, both ends among them.

use indexmap::IndexMap;
use longhaul_units::{BitRate, Bytes, Ratio, Time};
use serde::{Deserialize, Deserializer, de::Error as _};
use toml::Value;

/// Values of one range: as many as anybody runs.
const VALUES_MAX: usize = 1_000;

/// What a range looks like, for those who wrote something else.
const NOTATION: &str = "a range is \"2ms..10ms + 2ms\" (by adding), \"1ms..100ms * 10\" (by multiplying) \
                        or \"1ms..10ms / 5\" (five values, evenly)";

/// Why a text is no range.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?}: {problem}")]
pub(crate) struct RangeError {
    text: String,
    problem: String,
}

/// The values of every key of `[vary]`: lists, whose ranges are spelt out, and ranges by themselves.
///
/// # Errors
/// A text that is no range, as the deserialiser's error, at its place.
pub(crate) fn varied<'de, D: Deserializer<'de>>(
    input: D,
) -> Result<IndexMap<String, Vec<Value>>, D::Error> {
    let all = IndexMap::<String, Varied>::deserialize(input)?;
    Ok(all
        .into_iter()
        .map(|(name, Varied(values))| (name, values))
        .collect())
}

/// The values of one key.
struct Varied(Vec<Value>);

impl<'de> Deserialize<'de> for Varied {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        let values = match Value::deserialize(input)? {
            Value::String(text) => spelt_out(&text).map_err(D::Error::custom)?,
            Value::Array(all) => listed(all).map_err(D::Error::custom)?,
            other => {
                let problem =
                    format!("{other} is neither a list of values nor a range; {NOTATION}");
                return Err(D::Error::custom(problem));
            }
        };
        Ok(Self(values))
    }
}

fn listed(all: Vec<Value>) -> Result<Vec<Value>, RangeError> {
    let mut values = Vec::new();
    for value in all {
        match &value {
            Value::String(text) if is_range(text) => values.extend(spelt_out(text)?),
            _ => values.push(value),
        }
    }
    Ok(values)
}

/// Whether a text in a list is meant as a range: other texts may have two points in them.
fn is_range(text: &str) -> bool {
    let words: Vec<&str> = text.split_whitespace().collect();
    matches!(words[..], [ends, "+" | "*" | "/", _] if ends.contains(".."))
}

/// The values of a range, in its first end's unit.
///
/// # Errors
/// What is no range, goes nowhere, mixes kinds of units or has more than a thousand values.
pub(crate) fn spelt_out(text: &str) -> Result<Vec<Value>, RangeError> {
    let refused = |problem: String| RangeError {
        text: text.to_owned(),
        problem,
    };
    let range = Range::read(text).map_err(refused)?;
    let bases = range.bases().map_err(refused)?;
    Ok(range.written(&bases))
}

/// A range as it is written.
struct Range<'a> {
    first: End<'a>,
    last: End<'a>,
    step: Step,
}

/// A number with its unit.
#[derive(Clone, Copy)]
struct End<'a> {
    kind: Kind,
    unit: &'a str,
    /// What `1` of the unit is in the kind's base.
    scale: f64,
    /// The value in the kind's base.
    base: f64,
    /// Written without a point: then so are the values between, if they can be.
    whole: bool,
}

/// What a unit is one of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Number,
    Percent,
    Time,
    Rate,
    Size,
}

/// How a range goes on.
enum Step {
    Adding(f64),
    Multiplying(f64),
    Evenly(usize),
}

impl<'a> Range<'a> {
    fn read(text: &'a str) -> Result<Self, String> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let [ends, sign, step] = words[..] else {
            return Err(NOTATION.to_owned());
        };
        let (first, last) = ends.split_once("..").ok_or(NOTATION)?;
        let (first, last) = (End::read(first)?, End::read(last)?);
        if first.kind != last.kind {
            return Err("both ends must have units of the same kind".to_owned());
        }
        if first.base >= last.base {
            return Err("it must go upward".to_owned());
        }
        let step = Step::read(sign, step, first)?;
        Ok(Self { first, last, step })
    }

    /// The values in the base of their kind, the last never above the end.
    fn bases(&self) -> Result<Vec<f64>, String> {
        let (first, last) = (self.first.base, self.last.base);
        // What rounding adds does not lose the end.
        let end = last + (last - first) * 1e-9;
        let nth = |n: usize| match self.step {
            Step::Adding(step) => first + n as f64 * step,
            Step::Multiplying(factor) => first * factor.powi(n as i32),
            Step::Evenly(count) => first + (last - first) * n as f64 / (count - 1) as f64,
        };
        let values: Vec<f64> = (0..=VALUES_MAX)
            .map(nth)
            .take_while(|value| *value <= end)
            .collect();
        match values.len() {
            0..=VALUES_MAX => Ok(values),
            _ => Err(format!("it has more than {VALUES_MAX} values")),
        }
    }

    fn written(&self, bases: &[f64]) -> Vec<Value> {
        let numbers: Vec<f64> = bases
            .iter()
            .map(|base| clean(base / self.first.scale))
            .collect();
        let whole = self.first.whole && self.last.whole && numbers.iter().all(|n| n.fract() == 0.0);
        let value = |number: f64| match (self.first.kind, whole) {
            (Kind::Number, true) => Value::Integer(number as i64),
            (Kind::Number, false) => Value::Float(number),
            _ => Value::String(format!("{number}{}", self.first.unit)),
        };
        numbers.into_iter().map(value).collect()
    }
}

impl<'a> End<'a> {
    fn read(text: &'a str) -> Result<Self, String> {
        let unit_at = text
            .find(|c: char| !matches!(c, '0'..='9' | '.' | '-'))
            .unwrap_or(text.len());
        let (number, unit) = text.split_at(unit_at);
        let wrong = || format!("{text:?} is no number with a unit");
        let value: f64 = number.parse().map_err(|_| wrong())?;
        let (kind, scale) = scale(unit).ok_or_else(wrong)?;
        Ok(Self {
            kind,
            unit,
            scale,
            base: value * scale,
            whole: !number.contains('.'),
        })
    }
}

/// What a unit measures, and how much of the kind's base it is.
fn scale(unit: &str) -> Option<(Kind, f64)> {
    let one = format!("1{unit}");
    let time = || Some((Kind::Time, one.parse::<Time>().ok()?.as_nanos() as f64));
    let rate = || Some((Kind::Rate, one.parse::<BitRate>().ok()?.bits() as f64));
    let size = || Some((Kind::Size, one.parse::<Bytes>().ok()?.get() as f64));
    match unit {
        "" => Some((Kind::Number, 1.0)),
        "%" => Some((Kind::Percent, one.parse::<Ratio>().ok()?.get())),
        _ => time().or_else(size).or_else(rate),
    }
}

impl Step {
    fn read(sign: &str, text: &str, first: End<'_>) -> Result<Self, String> {
        match sign {
            "+" => Self::adding(text, first),
            "*" => Self::multiplying(text, first),
            "/" => Self::evenly(text),
            _ => Err(NOTATION.to_owned()),
        }
    }

    fn adding(text: &str, first: End<'_>) -> Result<Self, String> {
        let step = End::read(text)?;
        match step.kind == first.kind && step.base > 0.0 {
            true => Ok(Self::Adding(step.base)),
            false => Err(format!("{text:?} must be above 0 and of the ends' kind")),
        }
    }

    fn multiplying(text: &str, first: End<'_>) -> Result<Self, String> {
        let factor = text
            .parse()
            .ok()
            .filter(|factor: &f64| factor.is_finite() && *factor > 1.0);
        let factor = factor.ok_or_else(|| format!("{text:?} must be a number above 1"))?;
        match first.base > 0.0 {
            true => Ok(Self::Multiplying(factor)),
            false => Err("what is multiplied must begin above 0".to_owned()),
        }
    }

    fn evenly(text: &str) -> Result<Self, String> {
        let count = text
            .parse()
            .ok()
            .filter(|count| (2..=VALUES_MAX).contains(count));
        let count = count.ok_or_else(|| format!("{text:?} must be 2 to {VALUES_MAX} values"))?;
        Ok(Self::Evenly(count))
    }
}

/// Twelve significant digits: 0.1 + 0.2 is 0.3.
fn clean(number: f64) -> f64 {
    format!("{number:.11e}").parse().unwrap_or(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(text: &str) -> String {
        let all = spelt_out(text).unwrap();
        let all: Vec<String> = all.iter().map(Value::to_string).collect();
        all.join(" ")
    }

    #[test]
    fn steps_add_multiply_or_divide() {
        assert_eq!(values("2ms..10ms + 4ms"), r#""2ms" "6ms" "10ms""#);
        assert_eq!(values("1ms..100ms * 10"), r#""1ms" "10ms" "100ms""#);
        assert_eq!(
            values("1ms..10ms / 5"),
            r#""1ms" "3.25ms" "5.5ms" "7.75ms" "10ms""#
        );
        assert_eq!(values("1..6 + 1"), "1 2 3 4 5 6");
        assert_eq!(values("0.1..0.3 + 0.1"), "0.1 0.2 0.3");
        assert_eq!(values("0.0001..0.01 * 10"), "0.0001 0.001 0.01");
        assert_eq!(values("8..1024 * 2"), "8 16 32 64 128 256 512 1024");
        assert_eq!(
            values("250mbit..1gbit * 2"),
            r#""250mbit" "500mbit" "1000mbit""#
        );
        assert_eq!(values("0.1%..0.3% + 0.1%"), r#""0.1%" "0.2%" "0.3%""#);
        assert_eq!(values("-1..1 / 3"), "-1 0 1");
    }

    #[test]
    fn the_end_is_met_or_not_passed() {
        assert_eq!(values("1ms..10ms + 4ms"), r#""1ms" "5ms" "9ms""#);
        assert_eq!(values("500us..2ms * 3"), r#""500us" "1500us""#);
    }

    #[test]
    fn nonsense_is_refused() {
        let wrong = [
            "1ms",
            "1ms..10ms",
            "1ms..10ms / 1",
            "1ms..10ms / 2.5",
            "10ms..1ms / 3",
            "1ms..1ms / 3",
            "1ms..10ms + 0ms",
            "1ms..10ms + -1ms",
            "1ms..10ms + 1",
            "1ms..10MB / 3",
            "1ms..10ms * 1",
            "0ms..10ms * 2",
            "1ms..10ms - 1ms",
            "a..b / 3",
            "1stone..2stone / 3",
            "1..2000 + 1",
            "1..10 / 5000",
            "1ms..10ms * inf",
            "1ms..10ms / 3 4",
        ];
        for text in wrong {
            assert!(spelt_out(text).is_err(), "{text}");
        }
        assert_eq!(spelt_out("1..1000 + 1").unwrap().len(), VALUES_MAX);
    }

    #[test]
    fn lists_hold_ranges_and_texts_that_look_like_them() {
        #[derive(Deserialize)]
        struct File {
            #[serde(deserialize_with = "varied")]
            vary: IndexMap<String, Vec<Value>>,
        }
        let text = "[vary]\nloss = [0, '0.001..0.1 * 10']\npath = ['../x']\nn = '1..3 + 1'";
        let file: File = toml::from_str(text).unwrap();
        let lengths: Vec<usize> = file.vary.values().map(Vec::len).collect();
        assert_eq!(lengths, [4, 1, 3]);
        let place = |text: &str| {
            toml::from_str::<File>(text)
                .err()
                .unwrap()
                .span()
                .unwrap()
                .start
        };
        assert_eq!(place("[vary]\nn = '3..1 + 1'"), 11);
        assert_eq!(place("[vary]\nn = 7"), 11);
    }
}
