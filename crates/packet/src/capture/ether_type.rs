// SPDX-License-Identifier: MIT OR Apache-2.0
//! What an EtherType says comes next: IP, or what can stand between Ethernet and IP.

use super::ip_start::{NoIp, is_ip, word};
use super::{mpls::mpls, ppp};

/// EtherTypes (IEEE 802.3 clause 3.2.6, registered with IANA).
mod number {
    pub(super) const IPV4: u16 = 0x0800;
    pub(super) const IPV6: u16 = 0x86dd;
    /// 802.1Q, 802.1ad, and what was used for stacked tags before that.
    pub(super) const VLAN: [u16; 4] = [0x8100, 0x88a8, 0x9100, 0x9200];
    pub(super) const MPLS: [u16; 2] = [0x8847, 0x8848];
    pub(super) const PPPOE_SESSION: u16 = 0x8864;
    /// Up to here it is the length of an LLC frame.
    pub(super) const LENGTH_MAX: u16 = 1500;
}

/// Most VLAN tags that are passed over.
pub(super) const TAGS_MAX: usize = 8;

/// Where the IP packet of an Ethernet frame begins, whose addresses are at `at`.
#[inline]
pub(crate) fn ethernet(frame: &[u8], at: usize) -> Result<usize, NoIp> {
    by_type(frame, word(frame, at + 12)?, at + 14)
}

/// The payload at `at`, whose type was `ether_type`.
#[inline]
pub(crate) fn by_type(frame: &[u8], ether_type: u16, at: usize) -> Result<usize, NoIp> {
    match ether_type {
        number::IPV4 | number::IPV6 => is_ip(frame, at),
        _ => encapsulated(frame, ether_type, at),
    }
}

/// Passes over what can stand between the link and IP; each round takes bytes of the frame.
fn encapsulated(frame: &[u8], ether_type: u16, at: usize) -> Result<usize, NoIp> {
    let (mut ether_type, mut at) = (ether_type, at);
    for _ in 0..=TAGS_MAX {
        match ether_type {
            number::IPV4 | number::IPV6 => return is_ip(frame, at),
            // RFC 2516 §4: six bytes, then PPP.
            number::PPPOE_SESSION => return ppp::unframed(frame, at + 6),
            ..=number::LENGTH_MAX => match llc(frame, at)? {
                Llc::Ip => return is_ip(frame, at + 3),
                Llc::Snap(inner) => (ether_type, at) = (inner, at + 8),
            },
            _ if number::MPLS.contains(&ether_type) => return mpls(frame, at),
            _ if number::VLAN.contains(&ether_type) => {
                (ether_type, at) = (word(frame, at + 2)?, at + 4);
            }
            _ => break,
        }
    }
    Err(NoIp::Protocol)
}

/// Where the IP packet behind an LLC header begins.
pub(super) fn behind_llc(frame: &[u8], at: usize) -> Result<usize, NoIp> {
    encapsulated(frame, 0, at)
}

/// What an LLC header (IEEE 802.2) says comes next.
enum Llc {
    /// IP (RFC 948), after three bytes.
    Ip,
    /// This EtherType (RFC 1042), after eight.
    Snap(u16),
}

fn llc(frame: &[u8], at: usize) -> Result<Llc, NoIp> {
    let header = frame.get(at..at + 3).ok_or(NoIp::Short)?;
    match header {
        [0x06, 0x06, 0x03] => Ok(Llc::Ip),
        [0xaa, 0xaa, 0x03] => match frame.get(at + 3..at + 6).ok_or(NoIp::Short)? {
            [0, 0, 0] => snap(word(frame, at + 6)?),
            _ => Err(NoIp::Protocol),
        },
        _ => Err(NoIp::Protocol),
    }
}

/// Within SNAP it is a type, never a length.
fn snap(ether_type: u16) -> Result<Llc, NoIp> {
    match ether_type {
        ..=number::LENGTH_MAX => Err(NoIp::Protocol),
        ether_type => Ok(Llc::Snap(ether_type)),
    }
}
