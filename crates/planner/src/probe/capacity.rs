// SPDX-License-Identifier: MIT OR Apache-2.0
//! The slowest link's rate, from how far apart packets come that left together (Dovrolis, Ramanathan,
//! Moore, Packet-Dispersion Techniques and a Capacity-Estimation Methodology, 2004).

use super::{config::Config, echo::Echo};
use anyhow::Result;
use longhaul_linux::clock;
use longhaul_stats::sample;
use longhaul_units::Time;
use serde::Serialize;
use std::{collections::BTreeSet, time::Duration};

/// What trains came to, bits a second of IP bytes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct Capacity {
    pub(super) median_bps: f64,
    pub(super) min_bps: f64,
    pub(super) max_bps: f64,
    /// Trains that gave a figure.
    pub(super) trains: usize,
    /// The sender was no faster than that: the path may carry more.
    pub(super) at_least: bool,
}

/// Pause between two trains, at least: queues empty meanwhile.
const PAUSE: Time = Time::from_millis(50);
/// A sender that is not faster than this many times what arrives tells of itself.
const MARGIN: f64 = 1.25;

pub(super) fn measure(
    far: &mut dyn Echo,
    mtu: u32,
    config: &Config,
    patience: Time,
) -> Result<Option<Capacity>> {
    let mut rates = Vec::new();
    let mut slow_sender = 0;
    for _ in 0..config.trains {
        let train = train(far, mtu as usize, config.train, patience)?;
        let Some(rate) = train.arrival_bps(mtu) else {
            continue;
        };
        let departure = train.departure_bps(mtu).unwrap_or(f64::INFINITY);
        slow_sender += usize::from(departure < MARGIN * rate);
        rates.push(rate);
    }
    Ok(summary(rates, slow_sender))
}

fn summary(rates: Vec<f64>, slow_sender: usize) -> Option<Capacity> {
    let rates = sample::sorted(rates);
    let (min_bps, max_bps) = (*rates.first()?, *rates.last()?);
    Some(Capacity {
        median_bps: sample::median(&rates)?,
        min_bps,
        max_bps,
        trains: rates.len(),
        at_least: slow_sender * 2 > rates.len(),
    })
}

/// When packets of one train left here and came there.
#[derive(Debug, Default)]
struct Train {
    departures: Vec<Time>,
    arrivals: Vec<Time>,
}

impl Train {
    fn arrival_bps(&self, mtu: u32) -> Option<f64> {
        spread_bps(&self.arrivals, mtu)
    }

    fn departure_bps(&self, mtu: u32) -> Option<f64> {
        spread_bps(&self.departures, mtu)
    }
}

/// The first packet's own bytes are before its stamp.
fn spread_bps(times: &[Time], mtu: u32) -> Option<f64> {
    let (first, last) = (times.iter().min()?, times.iter().max()?);
    let span = (*last - *first).as_secs_f64();
    (span > 0.0).then(|| (times.len() - 1) as f64 * f64::from(mtu) * 8.0 / span)
}

fn train(far: &mut dyn Echo, len: usize, packets: u32, patience: Time) -> Result<Train> {
    let mut numbers = BTreeSet::new();
    for _ in 0..packets {
        if let Ok(number) = far.ask(len) {
            numbers.insert(number);
        }
    }
    let mut train = Train::default();
    let end = clock::now() + patience;
    while train.arrivals.len() < numbers.len() && clock::now() < end {
        let left = Duration::from(end - clock::now()).max(Duration::from_micros(1));
        let answer = far.answer(left).unwrap_or(None);
        let there = answer.filter(|answer| numbers.contains(&answer.number));
        train.arrivals.extend(there.and_then(|answer| answer.there));
    }
    while let Some(departure) = far.departure()? {
        if numbers.contains(&departure.message) {
            train.departures.push(departure.at);
        }
    }
    std::thread::sleep(PAUSE.into());
    Ok(train)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_train_tells_the_rate_of_what_came() {
        let train = Train {
            arrivals: [0, 120, 360, 240].map(Time::from_micros).to_vec(),
            departures: vec![Time::ZERO],
        };
        assert_eq!(train.arrival_bps(1500), Some(100e6));
        assert_eq!(train.departure_bps(1500), None);
    }

    #[test]
    fn a_slow_sender_makes_it_a_lower_bound() {
        let rates = || vec![3.0, 1.0, 2.0];
        assert!(summary(rates(), 2).unwrap().at_least);
        let known = summary(rates(), 1).unwrap();
        assert!(!known.at_least);
        assert_eq!(
            (known.min_bps, known.median_bps, known.max_bps),
            (1.0, 2.0, 3.0)
        );
        let even = summary(vec![4.0, 1.0, 3.0, 2.0], 0).unwrap();
        assert_eq!(even.median_bps, 2.5);
        assert_eq!(summary(vec![], 0), None);
    }
}
