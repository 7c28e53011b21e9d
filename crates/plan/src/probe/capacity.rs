// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bottleneck capacity from the dispersion of packet trains (Dovrolis, Ramanathan,
//! Moore, Packet-Dispersion Techniques and a Capacity-Estimation Methodology, 2004).

use super::{config::Config, responder::Responder};
use anyhow::Result;
use longhaul_linux::clock;
use longhaul_stats::sample;
use longhaul_units::Time;
use serde::Serialize;
use std::{collections::BTreeSet, time::Duration};

/// Capacity estimate from all trains, bits a second of IP bytes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct Capacity {
    pub(super) median_bps: f64,
    pub(super) min_bps: f64,
    pub(super) max_bps: f64,
    /// Number of trains that gave a figure.
    pub(super) trains: usize,
    /// Whether the sender was no faster, so that the capacity may be greater.
    #[serde(rename = "lower_bound")]
    pub(super) is_lower_bound: bool,
}

/// Minimum pause between two trains, in which queues drain.
const TRAIN_INTERVAL_MIN: Time = Time::from_millis(50);
/// Minimum ratio of departure rate to arrival rate. Below it, the sender itself limits the arrival rate.
const DEPARTURE_RATIO_MIN: f64 = 1.25;

pub(super) fn measure(
    responder: &mut dyn Responder,
    mtu: u32,
    config: &Config,
    timeout: Time,
) -> Result<Option<Capacity>> {
    let mut rates = Vec::new();
    let mut slow_trains = 0;
    for _ in 0..config.trains {
        let train = send_train(responder, mtu as usize, config.train_length, timeout)?;
        let Some(rate) = train.arrival_bps(mtu) else {
            continue;
        };
        let departure = train.departure_bps(mtu).unwrap_or(f64::INFINITY);
        slow_trains += usize::from(departure < DEPARTURE_RATIO_MIN * rate);
        rates.push(rate);
    }
    Ok(summary(rates, slow_trains))
}

fn summary(rates: Vec<f64>, slow_trains: usize) -> Option<Capacity> {
    let rates = sample::sorted(rates);
    let (min_bps, max_bps) = (*rates.first()?, *rates.last()?);
    Some(Capacity {
        median_bps: sample::median(&rates)?,
        min_bps,
        max_bps,
        trains: rates.len(),
        is_lower_bound: slow_trains * 2 > rates.len(),
    })
}

/// Departure times and arrival times of the packets of one train.
#[derive(Debug, Default)]
struct Train {
    departures: Vec<Time>,
    arrivals: Vec<Time>,
}

impl Train {
    fn arrival_bps(&self, mtu: u32) -> Option<f64> {
        dispersion_bps(&self.arrivals, mtu)
    }

    fn departure_bps(&self, mtu: u32) -> Option<f64> {
        dispersion_bps(&self.departures, mtu)
    }
}

/// Returns the rate of packets with these times. The first packet's bytes precede its time stamp.
fn dispersion_bps(times: &[Time], mtu: u32) -> Option<f64> {
    let (first, last) = (times.iter().min()?, times.iter().max()?);
    let span = (*last - *first).as_secs_f64();
    (span > 0.0).then(|| (times.len() - 1) as f64 * f64::from(mtu) * 8.0 / span)
}

fn send_train(
    responder: &mut dyn Responder,
    len: usize,
    packets: u32,
    timeout: Time,
) -> Result<Train> {
    let mut numbers = BTreeSet::new();
    for _ in 0..packets {
        if let Ok(number) = responder.send_request(len) {
            numbers.insert(number);
        }
    }
    let mut train = Train::default();
    let end = clock::now() + timeout;
    while train.arrivals.len() < numbers.len() && clock::now() < end {
        let left = Duration::from(end - clock::now()).max(Duration::from_micros(1));
        let reply = responder.receive_reply(left).unwrap_or(None);
        let reply = reply.filter(|reply| numbers.contains(&reply.number));
        train
            .arrivals
            .extend(reply.and_then(|reply| reply.responder_time));
    }
    while let Some(departure) = responder.departure()? {
        if numbers.contains(&departure.message) {
            train.departures.push(departure.at);
        }
    }
    std::thread::sleep(TRAIN_INTERVAL_MIN.into());
    Ok(train)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn computes_rate_from_train_dispersion() {
        let train = Train {
            arrivals: [0, 120, 360, 240].map(Time::from_micros).to_vec(),
            departures: vec![Time::ZERO],
        };
        assert_eq!(train.arrival_bps(1500), Some(100e6));
        assert_eq!(train.departure_bps(1500), None);
    }

    #[test]
    fn slow_sender_gives_a_lower_bound() {
        let rates = || vec![3.0, 1.0, 2.0];
        assert!(summary(rates(), 2).unwrap().is_lower_bound);
        let known = summary(rates(), 1).unwrap();
        assert!(!known.is_lower_bound);
        assert_eq!(
            (known.min_bps, known.median_bps, known.max_bps),
            (1.0, 2.0, 3.0)
        );
        let even = summary(vec![4.0, 1.0, 3.0, 2.0], 0).unwrap();
        assert_eq!(even.median_bps, 2.5);
        assert_eq!(summary(vec![], 0), None);
    }
}
