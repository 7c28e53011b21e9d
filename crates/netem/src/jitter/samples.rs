// SPDX-License-Identifier: MIT OR Apache-2.0
//! Delays from a file: a table of measured delays, from which each segment draws, and a trace of delays over time.
//!
//! Values are times with a unit, or numbers of milliseconds. Text after `#` and blank lines are ignored.

use longhaul_units::Time;
use std::fmt;

/// Most lines of a file. Memory: 8 bytes a line of a table, 16 of a trace.
pub const LINES_MAX: usize = 1 << 22;

/// Error in a file. Lines are counted from 1.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SamplesError {
    /// The line is neither a value nor, in a trace, a time and a value.
    #[error("line {line}: {text:?} is not {expected}")]
    BadLine {
        /// Number of the line.
        line: usize,
        /// Text of the line, cut to 40 characters.
        text: String,
        /// Form of a line.
        expected: &'static str,
    },
    /// The time is not after the time of the line before.
    #[error("line {line}: the time is not after that of the line before")]
    NotIncreasing {
        /// Number of the line.
        line: usize,
    },
    /// The file has too few lines.
    #[error("the file has {0} values, and needs at least 2")]
    TooShort(usize),
    /// The file has more than [`LINES_MAX`] lines.
    #[error("the file has more than {LINES_MAX} lines")]
    TooLong,
}

/// Measured delays. A segment's delay is drawn from them, interpolated between neighbours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DelayTable {
    name: String,
    /// In order.
    delays: Vec<Time>,
}

impl DelayTable {
    /// Parses a file with a delay on each line, in any order. `name` is the file's name.
    ///
    /// # Errors
    ///
    /// A line that is not a delay, or too few or too many of them.
    pub fn parse(name: &str, text: &str) -> Result<Self, SamplesError> {
        let expected = "a delay, such as 12.5ms or 12.5";
        let mut delays = lines(text, expected, |words| match words {
            [delay] => delay_of(delay),
            _ => None,
        })?;
        delays.sort_unstable();
        Ok(Self {
            name: name.to_owned(),
            delays,
        })
    }

    /// Delay that the share `p` of segments is below, in nanoseconds.
    #[must_use]
    pub(super) fn quantile(&self, p: f64) -> f64 {
        let at = p.clamp(0.0, 1.0) * (self.delays.len() - 1) as f64;
        let below = at as usize;
        let above = (below + 1).min(self.delays.len() - 1);
        let [low, high] = [below, above].map(|index| self.delays[index].as_nanos() as f64);
        low + (high - low) * at.fract()
    }

    /// Share of segments with a delay of at most `x_ns`.
    #[must_use]
    pub(super) fn cdf(&self, x_ns: f64) -> f64 {
        let above = self
            .delays
            .partition_point(|delay| delay.as_nanos() as f64 <= x_ns);
        if above == 0 || above == self.delays.len() {
            return if above == 0 { 0.0 } else { 1.0 };
        }
        let [low, high] = [above - 1, above].map(|index| self.delays[index].as_nanos() as f64);
        ((above - 1) as f64 + (x_ns - low) / (high - low)) / (self.delays.len() - 1) as f64
    }

    /// Longest delay.
    #[must_use]
    pub(super) fn longest(&self) -> Time {
        self.delays.last().copied().unwrap_or(Time::ZERO)
    }
}

/// Delay over time, a straight line between two points. After the last point it begins again at the first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DelayTrace {
    name: String,
    /// Time and delay, in order of time.
    points: Vec<(Time, Time)>,
}

impl DelayTrace {
    /// Parses a file with a time and a delay on each line, in order of time. `name` is the file's name.
    ///
    /// # Errors
    ///
    /// A line that is not a time and a delay, a time that is not after the one before, or too few or too many lines.
    pub fn parse(name: &str, text: &str) -> Result<Self, SamplesError> {
        let expected = "a time and a delay, such as 1.5s 40ms";
        let points = lines(text, expected, |words| match words {
            [time, delay] => Some((delay_of(time)?, delay_of(delay)?)),
            _ => None,
        })?;
        let disorder = points.windows(2).position(|pair| pair[1].0 <= pair[0].0);
        match disorder {
            Some(index) => Err(SamplesError::NotIncreasing { line: index + 2 }),
            None => Ok(Self {
                name: name.to_owned(),
                points,
            }),
        }
    }

    /// Delay at the time `since` after the start, in nanoseconds.
    #[must_use]
    pub(super) fn at(&self, since: Time) -> f64 {
        let (first, last) = (self.points[0].0, self.points[self.points.len() - 1].0);
        let into = since.as_nanos() % last.since(first).as_nanos();
        let now = first + Time::from_nanos(into);
        let after = self.points.partition_point(|(time, _)| *time <= now);
        let (from, to) = (self.points[after - 1], self.points[after]);
        let share = now.since(from.0).as_nanos() as f64 / to.0.since(from.0).as_nanos() as f64;
        let [low, high] = [from.1, to.1].map(|delay| delay.as_nanos() as f64);
        low + (high - low) * share
    }

    /// Longest delay.
    #[must_use]
    pub(super) fn longest(&self) -> Time {
        let delays = self.points.iter().map(|(_, delay)| *delay);
        delays.max().unwrap_or(Time::ZERO)
    }
}

impl fmt::Display for DelayTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "table:{}", self.name)
    }
}

impl fmt::Display for DelayTrace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "trace:{}", self.name)
    }
}

/// Parses each line that is not blank by its words.
fn lines<T>(
    text: &str,
    expected: &'static str,
    parse: impl Fn(&[&str]) -> Option<T>,
) -> Result<Vec<T>, SamplesError> {
    let mut parsed = Vec::new();
    for (line, content) in (1..).zip(text.lines()) {
        let content = content.split('#').next().unwrap_or_default();
        let separators = |letter: char| letter.is_whitespace() || letter == ',';
        let words: Vec<_> = content
            .split(separators)
            .filter(|word| !word.is_empty())
            .collect();
        if words.is_empty() {
            continue;
        }
        if parsed.len() == LINES_MAX {
            return Err(SamplesError::TooLong);
        }
        parsed.push(parse(&words).ok_or_else(|| SamplesError::BadLine {
            line,
            text: content.chars().take(40).collect(),
            expected,
        })?);
    }
    match parsed.len() {
        0 | 1 => Err(SamplesError::TooShort(parsed.len())),
        _ => Ok(parsed),
    }
}

/// Parses a time with a unit, or a number of milliseconds.
fn delay_of(text: &str) -> Option<Time> {
    match text.parse::<f64>() {
        Ok(ms) if ms >= 0.0 && ms.is_finite() => Some(Time::from_secs_f64(ms / 1e3)),
        Ok(_) => None,
        Err(_) => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_interpolates_between_its_delays() {
        let table = DelayTable::parse("rtt", "30ms\n10 # ms\n\n20ms\n").unwrap();
        assert_eq!(
            [0.0, 0.25, 0.5, 1.0].map(|p| table.quantile(p)),
            [1e7, 1.5e7, 2e7, 3e7]
        );
        assert_eq!(
            [9e6, 1e7, 1.5e7, 2.5e7, 3e7].map(|x| table.cdf(x)),
            [0.0, 0.0, 0.25, 0.75, 1.0]
        );
        assert_eq!(table.longest(), Time::from_millis(30));
    }

    #[test]
    fn trace_is_straight_between_its_points_and_repeats() {
        let trace = DelayTrace::parse("leo", "0,10\n1000,30\n2000,10\n").unwrap();
        let at = |ms| trace.at(Time::from_millis(ms));
        assert_eq!(
            [0, 500, 1000, 1750, 2000, 2500].map(at),
            [1e7, 2e7, 3e7, 1.5e7, 1e7, 2e7]
        );
    }

    #[test]
    fn names_the_line_that_it_rejects() {
        let table = |text| DelayTable::parse("f", text).unwrap_err().to_string();
        let trace = |text| DelayTrace::parse("f", text).unwrap_err().to_string();
        for (message, part) in [
            (table("1\nx\n"), "line 2: \"x\""),
            (table("1\n-1\n"), "line 2: \"-1\""),
            (table("1\n"), "1 values"),
            (trace("1\n"), "line 1: \"1\""),
            (trace("0 1\n0 2\n"), "line 2: the time"),
            (trace(""), "0 values"),
        ] {
            assert!(message.contains(part), "{message}");
        }
    }
}
