// SPDX-License-Identifier: MIT OR Apache-2.0
//! Round trips and loss, by single packets at a constant interval.

use super::responder::Responder;
use anyhow::Result;
use longhaul_linux::clock;
use longhaul_units::Time;
use std::{collections::BTreeMap, time::Duration};

/// Round-trip times and number of packets sent.
#[derive(Debug)]
pub(super) struct RttSamples {
    pub(super) sent: u32,
    /// Round-trip times of the requests with a reply.
    pub(super) times: Vec<Time>,
}

/// Timeout of the last reply, for a path around the world with a deep queue.
const LAST_REPLY_TIMEOUT: Time = Time::from_secs(1);
/// Length of a packet with its IP header, in bytes.
const PACKET_LEN: usize = 100;

pub(super) fn measure(
    responder: &mut dyn Responder,
    count: u32,
    interval: Time,
) -> Result<RttSamples> {
    let mut requests = BTreeMap::new();
    let mut times = BTreeMap::new();
    let start = clock::now();
    for index in 0..count {
        let sent_at = clock::wall();
        // A request that the remote host refused counts as lost.
        if let Ok(number) = responder.send_request(PACKET_LEN.max(responder.len_min())) {
            requests.insert(number, sent_at);
        }
        let next = start + interval * u64::from(index + 1);
        receive_replies(responder, next, &mut requests, &mut times)?;
    }
    let end = clock::now() + LAST_REPLY_TIMEOUT;
    while times.len() < requests.len() && clock::now() < end {
        let step = (clock::now() + Time::from_millis(20)).min(end);
        receive_replies(responder, step, &mut requests, &mut times)?;
    }
    Ok(RttSamples {
        sent: count,
        times: times.into_values().collect(),
    })
}

/// Receives replies until `end`. Only the first reply to a request counts. `requests` has the time of each, by number.
fn receive_replies(
    responder: &mut dyn Responder,
    end: Time,
    requests: &mut BTreeMap<u32, Time>,
    times: &mut BTreeMap<u32, Time>,
) -> Result<()> {
    loop {
        let left = end - clock::now();
        if left == Time::ZERO {
            return Ok(());
        }
        let reply = responder
            .receive_reply(Duration::from(left))
            .unwrap_or(None);
        while let Some(departure) = responder.departure()? {
            requests
                .entry(departure.message)
                .and_modify(|at| *at = departure.at);
        }
        if let Some(reply) = reply
            && let Some(&sent) = requests.get(&reply.number)
        {
            times.entry(reply.number).or_insert(reply.at - sent);
        }
    }
}
