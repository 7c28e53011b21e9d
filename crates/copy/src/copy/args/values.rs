// SPDX-License-Identifier: MIT OR Apache-2.0
//! Parsers of values on the command line.

use crate::{
    copy::config,
    protocol::options::{self, DeletionLimit, Pacing, Ports, Streams},
};
use clap::ValueEnum;
use longhaul_units::{BitRate, Bytes, Time};
use std::{ops::RangeInclusive, str::FromStr};

/// Maximum number of streams.
const STREAMS_MAX: u16 = 256;

impl FromStr for Streams {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let number = || text.parse().ok().filter(|n| (1..=STREAMS_MAX).contains(n));
        match text {
            "auto" => Ok(Self::Auto),
            _ => number()
                .map(Self::Exactly)
                .ok_or_else(|| format!("want auto or 1 to {STREAMS_MAX}")),
        }
    }
}

impl FromStr for DeletionLimit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let limit = match text.strip_suffix('%') {
            Some(share) => {
                let share = share.parse().ok().filter(|share| *share <= 100);
                share.map(Self::Percent)
            }
            None => text.parse().ok().map(Self::Count),
        };
        limit.ok_or_else(|| "want a number of entries, or a share of 0% to 100%".to_owned())
    }
}

/// Shortest and longest time for which removed entries are kept.
const TRASH: RangeInclusive<Time> = Time::from_secs(60)..=Time::from_secs(3650 * 86_400);

/// Parses the time for which removed entries are kept.
///
/// # Errors
/// It is no time between a minute and ten years.
pub fn parse_trash(text: &str) -> Result<Time, String> {
    parse_within(text, &TRASH).ok_or_else(|| "want a time of 1min to 3650d, as 30d".to_owned())
}

/// Minimum rate, in bits per second. At lower rates a window of ten segments takes seconds.
const PACING_RATE_MIN: u64 = 100_000;

impl FromStr for Pacing {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "auto" => Ok(Self::Auto),
            "off" => Ok(Self::Off),
            _ => match text.parse::<BitRate>() {
                Ok(rate) if rate.bits() >= PACING_RATE_MIN => Ok(Self::Rate(rate.bits())),
                Ok(_) => Err("want auto, off or a rate of 100kbit or more, as 900mbit".to_owned()),
                Err(error) => Err(format!("{error}; want auto, off or a rate")),
            },
        }
    }
}

/// Splits the value of `--ssh` as a shell does.
pub(super) fn parse_command(text: &str) -> Result<Vec<String>, String> {
    let words = shlex::split(text).filter(|words| !words.is_empty());
    words.ok_or_else(|| {
        format!("--ssh {text:?}: want a program and its options, with each quote closed")
    })
}

pub(super) fn parse_limit(text: &str) -> Result<BitRate, String> {
    let rate = text.parse::<BitRate>().map_err(|error| error.to_string())?;
    let rate = Some(rate).filter(|rate| rate.bits() >= PACING_RATE_MIN);
    rate.ok_or_else(|| "want a rate of 100kbit or more, as 500mbit".to_owned())
}

pub(super) fn parse_extent(text: &str) -> Result<Bytes, String> {
    let allowed = Bytes::new(16_000_000)..=Bytes::new(longhaul_scheduling::extents::EXTENT_MAX);
    parse_within(text, &allowed).ok_or_else(|| "want a size from 16MB to 64GiB, as 4GB".to_owned())
}

pub(super) fn parse_lease_time(text: &str) -> Result<Time, String> {
    let time = parse_within(text, &(Time::from_secs(2)..=Time::from_secs(3600)));
    time.ok_or_else(|| "want a time from 2s to 1h, as 30s".to_owned())
}

/// Parses an idle timeout. Returns it in milliseconds.
pub(super) fn parse_idle_timeout(text: &str) -> Result<u32, String> {
    let time = parse_within(text, &(Time::from_secs(1)..=Time::from_secs(3600)));
    let millis = time.and_then(|time| u32::try_from(time.as_nanos() / 1_000_000).ok());
    millis.ok_or_else(|| "want a time from 1s to 1h, as 20s".to_owned())
}

fn parse_within<T: FromStr + PartialOrd>(text: &str, allowed: &RangeInclusive<T>) -> Option<T> {
    text.parse().ok().filter(|value| allowed.contains(value))
}

impl FromStr for Ports {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let port = |text: &str| text.parse().ok().filter(|port| *port > 0);
        match (port(first), port(last)) {
            (Some(first), Some(last)) if first <= last => Ok(Self { first, last }),
            _ => Err("want a port from 1 to 65535, or a range FIRST-LAST".to_owned()),
        }
    }
}

/// Transport of the data connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Transport {
    Tcp,
    Udt,
}

impl From<Transport> for options::Transport {
    fn from(given: Transport) -> Self {
        match given {
            Transport::Tcp => Self::Tcp,
            Transport::Udt => Self::Udt,
        }
    }
}

/// Setting that is on or off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Switch {
    On,
    Off,
}

impl From<Switch> for options::Switch {
    fn from(given: Switch) -> Self {
        match given {
            Switch::On => Self::On,
            Switch::Off => Self::Off,
        }
    }
}

/// Side of a distributed copy whose hosts store a share each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum DistributedSide {
    Source,
    Target,
    Both,
}

impl From<DistributedSide> for config::DistributedSide {
    fn from(given: DistributedSide) -> Self {
        match given {
            DistributedSide::Source => Self::Source,
            DistributedSide::Target => Self::Target,
            DistributedSide::Both => Self::Both,
        }
    }
}

/// Parses seconds. As for rsync, -1 compares nanoseconds, as 0 does here.
pub(super) fn parse_modify_window(text: &str) -> Result<u32, String> {
    match text {
        "-1" => Ok(0),
        _ => text
            .parse()
            .map_err(|_| "want whole seconds, 0 or more".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_numbers_and_keywords() {
        assert_eq!("auto".parse(), Ok(Streams::Auto));
        assert_eq!("256".parse(), Ok(Streams::Exactly(256)));
        assert!("0".parse::<Streams>().is_err() && "257".parse::<Streams>().is_err());
        assert_eq!("off".parse(), Ok(Pacing::Off));
        assert_eq!("900mbit".parse(), Ok(Pacing::Rate(900_000_000)));
        assert!("10kbit".parse::<Pacing>().is_err() && "fast".parse::<Pacing>().is_err());
    }

    #[test]
    fn rejects_idle_timeouts_out_of_range() {
        assert_eq!(parse_idle_timeout("1500ms"), Ok(1500));
        assert_eq!(parse_idle_timeout("3600s"), Ok(3_600_000));
        for text in ["999ms", "3601s", "soon", ""] {
            assert!(parse_idle_timeout(text).is_err(), "{text}");
        }
    }

    #[test]
    fn parses_a_port_or_a_range() {
        let ports = |text: &str| Ports::from_str(text).ok().map(|p| (p.first, p.last));
        assert_eq!(ports("7000"), Some((7000, 7000)));
        assert_eq!(ports("7000-7100"), Some((7000, 7100)));
        for text in ["0", "7100-7000", "70000", "a-b", ""] {
            assert_eq!(ports(text), None, "{text}");
        }
    }
}
