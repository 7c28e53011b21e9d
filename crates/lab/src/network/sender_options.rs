// SPDX-License-Identifier: MIT OR Apache-2.0
//! Socket options of a flow's sender: congestion control and pacing.

use super::Topology;
use crate::scenario::{Flow, Pacing, Scenario};
use longhaul_linux::socket::Options;
use longhaul_units::{BitRate, Time};

/// Options of the sender's socket.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct SenderOptions {
    pub(crate) congestion_control: Option<String>,
    /// SO_MAX_PACING_RATE.
    pub(crate) pacing_rate: Option<BitRate>,
}

/// Pacing rate that limits nothing: a socket with a rate is paced (`SO_MAX_PACING_RATE`,
/// net/core/sock.c). It is the largest rate that fits in 32 bits of bytes a second, as iperf3
/// counts.
const UNLIMITED: BitRate = BitRate::from_bits((u32::MAX as u64 - 1) * 8);

/// Headers of a full segment in bytes: IPv4, and TCP with time stamps.
const HEADERS: u32 = 52;

impl SenderOptions {
    /// Sender options of a flow whose congestion control has the kernel's name.
    pub(crate) fn of(scenario: &Scenario, topology: &Topology, flow: &Flow) -> Self {
        let cc = flow.cc.as_ref();
        let paced =
            cc.is_some_and(|control| control.paced) || flow.pacing == Some(Pacing::Own(true));
        let rate = match (flow.pacing, flow.inter_packet_gap) {
            (Some(Pacing::Rate(rate)), _) => Some(rate),
            (_, Some(gap)) => Some(rate_for_gap(gap, segment_size(scenario, topology, flow))),
            _ => paced.then_some(UNLIMITED),
        };
        Self {
            congestion_control: cc.and_then(|control| control.name()).map(str::to_owned),
            pacing_rate: rate,
        }
    }

    /// Returns the options of a listening socket. Accepted connections inherit them.
    pub(crate) fn options(&self) -> Options {
        Options {
            congestion_control: self.congestion_control.clone(),
            pacing_rate: self.pacing_rate.map(|rate| rate.bits() / 8),
            ..Options::default()
        }
    }
}

/// Payload of a full segment in bytes: the smallest MTU of the path less headers.
pub(crate) fn segment_size(scenario: &Scenario, topology: &Topology, flow: &Flow) -> u32 {
    let mtu = topology.mtu(&scenario.links, &flow.from, &flow.to);
    mtu.unwrap_or(1500) - HEADERS
}

/// Pacing rate that gives this gap between segments. The kernel paces by payload
/// (`tcp_update_skb_after_send`).
fn rate_for_gap(gap: Time, segment: u32) -> BitRate {
    BitRate::from_bits((f64::from(segment) * 8.0 / gap.as_secs_f64()) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options_of(keys: &str) -> SenderOptions {
        let scenario: Scenario = toml::from_str(&format!(
            "title = 't'\nquestion = 'q'\n\
             [[links]]\nname = 'l'\nkind = 'veth'\nendpoints = ['a', 'b']\n\
             [[flows]]\nname = 'f'\nprogram = 'iperf3'\nfrom = 'a'\nto = 'b'\n{keys}"
        ))
        .unwrap();
        SenderOptions::of(&scenario, &Topology::of(&scenario), &scenario.flows[0])
    }

    #[test]
    fn pace_is_a_rate_or_unlimited_pacing() {
        let rate = |keys| options_of(keys).pacing_rate.map(BitRate::bits);
        assert_eq!(rate("pacing = '800mbit'"), Some(800_000_000));
        assert_eq!(rate("pacing = true"), Some(UNLIMITED.bits()));
        assert_eq!(rate("cc = 'reno+pace'"), Some(UNLIMITED.bits()));
        assert_eq!(rate("cc = '+pace'\npacing = '1gbit'"), Some(1_000_000_000));
        assert_eq!(rate("pacing = false"), None);
        assert_eq!(
            options_of("cc = 'reno'").congestion_control.as_deref(),
            Some("reno")
        );
        assert_eq!(options_of(""), SenderOptions::default());
    }

    #[test]
    fn gap_is_the_time_between_full_segments() {
        // 1448 bytes each 12 µs.
        let rate = options_of("inter_packet_gap = '12us'").pacing_rate;
        assert_eq!(rate, Some(BitRate::from_bits(965_333_333)));
    }
}
