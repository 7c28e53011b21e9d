// SPDX-License-Identifier: MIT OR Apache-2.0
//! Round trips and loss: single packets at an even pace.

use super::echo::Echo;
use anyhow::Result;
use longhaul_linux::clock;
use longhaul_units::Time;
use std::{collections::BTreeMap, time::Duration};

/// What became of the packets.
#[derive(Debug)]
pub(super) struct Rounds {
    pub(super) sent: u32,
    /// Round trips of those that were answered.
    pub(super) times: Vec<Time>,
}

/// How long the last may take: a path around the world and a deep queue.
const PATIENCE: Time = Time::from_secs(1);
/// Bytes of a packet from its IP header on.
const LEN: usize = 100;

pub(super) fn measure(far: &mut dyn Echo, count: u32, interval: Time) -> Result<Rounds> {
    let mut asked = BTreeMap::new();
    let mut times = BTreeMap::new();
    let start = clock::now();
    for turn in 0..count {
        let sent_at = clock::wall();
        // A packet that the far end refused counts as one that was lost.
        if let Ok(number) = far.ask(LEN.max(far.len_min())) {
            asked.insert(number, sent_at);
        }
        let next = start + interval * u64::from(turn + 1);
        collect(far, next, &mut asked, &mut times)?;
    }
    let end = clock::now() + PATIENCE;
    while times.len() < asked.len() && clock::now() < end {
        let step = (clock::now() + Time::from_millis(20)).min(end);
        collect(far, step, &mut asked, &mut times)?;
    }
    Ok(Rounds {
        sent: count,
        times: times.into_values().collect(),
    })
}

/// Answers until `end`, of which the first to a question counts.
fn collect(
    far: &mut dyn Echo,
    end: Time,
    asked: &mut BTreeMap<u32, Time>,
    times: &mut BTreeMap<u32, Time>,
) -> Result<()> {
    loop {
        let left = end - clock::now();
        if left == Time::ZERO {
            return Ok(());
        }
        let answer = far.answer(Duration::from(left)).unwrap_or(None);
        while let Some(departure) = far.departure()? {
            asked
                .entry(departure.message)
                .and_modify(|at| *at = departure.at);
        }
        if let Some(answer) = answer
            && let Some(&sent) = asked.get(&answer.number)
        {
            times.entry(answer.number).or_insert(answer.at - sent);
        }
    }
}
