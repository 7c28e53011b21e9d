// SPDX-License-Identifier: MIT OR Apache-2.0
//! EtherTypes: finds the IP packet after one, past the headers that can come between Ethernet and IP.

use super::ip_start::{IpNotFound, ip_at, read_u16};
use super::mpls::{below_labels, ip_in_mpls};
use super::ppp;

/// EtherTypes (IEEE 802.3 clause 3.2.6, registered with IANA).
mod number {
    pub(super) const IPV4: u16 = 0x0800;
    pub(super) const IPV6: u16 = 0x86dd;
    /// 802.1Q, 802.1ad, and two numbers that were used for stacked tags before 802.1ad.
    pub(super) const VLAN: [u16; 4] = [0x8100, 0x88a8, 0x9100, 0x9200];
    pub(super) const MPLS: [u16; 2] = [0x8847, 0x8848];
    pub(super) const PPPOE_SESSION: u16 = 0x8864;
    /// Greatest value that is the length of an LLC frame instead of a type.
    pub(super) const LENGTH_MAX: u16 = 1500;
}

/// Most VLAN tags that are skipped.
pub(super) const TAGS_MAX: usize = 8;

/// Returns the offset of the IP packet in an Ethernet frame, which begins at `at` with its addresses.
#[inline]
pub(crate) fn ip_in_ethernet(frame: &[u8], at: usize) -> Result<usize, IpNotFound> {
    ip_after_ether_type(frame, read_u16(frame, at + 12)?, at + 14)
}

/// Returns the offset of the IP packet in a payload of type `ether_type`, which begins at `at`.
#[inline]
pub(crate) fn ip_after_ether_type(
    frame: &[u8],
    ether_type: u16,
    at: usize,
) -> Result<usize, IpNotFound> {
    match ether_type {
        number::IPV4 | number::IPV6 => ip_at(frame, at),
        _ => skip_headers(frame, ether_type, at, ip_in_mpls_or_pseudowire),
    }
}

/// Function that finds the IP packet below the labels at an offset.
type Labels = fn(&[u8], usize) -> Result<usize, IpNotFound>;

/// Skips headers between the link layer and IP. Each iteration consumes bytes of the frame.
fn skip_headers(
    frame: &[u8],
    ether_type: u16,
    at: usize,
    ip_below_labels: Labels,
) -> Result<usize, IpNotFound> {
    let (mut ether_type, mut at) = (ether_type, at);
    for _ in 0..=TAGS_MAX {
        match ether_type {
            number::IPV4 | number::IPV6 => return ip_at(frame, at),
            // RFC 2516 §4: six bytes, then PPP.
            number::PPPOE_SESSION => return ppp::ip_in_unframed_ppp(frame, at + 6),
            ..=number::LENGTH_MAX => match llc_payload(frame, at)? {
                LlcPayload::Ip => return ip_at(frame, at + 3),
                LlcPayload::Snap(inner) => (ether_type, at) = (inner, at + 8),
            },
            _ if number::MPLS.contains(&ether_type) => return ip_below_labels(frame, at),
            _ if number::VLAN.contains(&ether_type) => {
                (ether_type, at) = (read_u16(frame, at + 2)?, at + 4);
            }
            _ => break,
        }
    }
    Err(IpNotFound::Protocol)
}

/// Length of the control word of a pseudowire (RFC 4385 §3).
const CONTROL_WORD: usize = 4;

/// Returns the offset of the IP packet below MPLS labels at `at`, or of that in the Ethernet frame of a pseudowire there
/// (RFC 4448). No field names the payload. The first four bits are the version of IP, or 0 in a control word. Others, or
/// a control word without Ethernet after it, may begin an Ethernet frame. A frame without a control word whose first
/// address begins with 4 or 6 is taken for IP (RFC 8469).
fn ip_in_mpls_or_pseudowire(frame: &[u8], at: usize) -> Result<usize, IpNotFound> {
    let payload = below_labels(frame, at)?;
    match frame.get(payload).ok_or(IpNotFound::Short)? >> 4 {
        4 | 6 => Ok(payload),
        0 => match ip_in_pseudowire(frame, payload + CONTROL_WORD) {
            Err(IpNotFound::Protocol) => ip_in_pseudowire(frame, payload),
            found => found,
        },
        _ => ip_in_pseudowire(frame, payload),
    }
}

/// Returns the offset of the IP packet in the Ethernet frame of a pseudowire, which begins at `at`. Labels in it may
/// have IP below them, but no further pseudowire, so that frames are not nested.
fn ip_in_pseudowire(frame: &[u8], at: usize) -> Result<usize, IpNotFound> {
    skip_headers(frame, read_u16(frame, at + 12)?, at + 14, ip_in_mpls)
}

/// Returns the offset of the IP packet after an LLC header, which begins at `at`.
pub(super) fn ip_after_llc(frame: &[u8], at: usize) -> Result<usize, IpNotFound> {
    // Any type up to LENGTH_MAX means LLC.
    skip_headers(frame, 0, at, ip_in_mpls)
}

/// Payload that an LLC header (IEEE 802.2) announces.
enum LlcPayload {
    /// IP, after three bytes (RFC 948).
    Ip,
    /// A SNAP payload of this EtherType, after eight bytes (RFC 1042).
    Snap(u16),
}

fn llc_payload(frame: &[u8], at: usize) -> Result<LlcPayload, IpNotFound> {
    let header = frame.get(at..at + 3).ok_or(IpNotFound::Short)?;
    match header {
        [0x06, 0x06, 0x03] => Ok(LlcPayload::Ip),
        [0xaa, 0xaa, 0x03] => match frame.get(at + 3..at + 6).ok_or(IpNotFound::Short)? {
            [0, 0, 0] => snap_payload(read_u16(frame, at + 6)?),
            _ => Err(IpNotFound::Protocol),
        },
        _ => Err(IpNotFound::Protocol),
    }
}

/// Checks the type field of SNAP, which is never a length.
fn snap_payload(ether_type: u16) -> Result<LlcPayload, IpNotFound> {
    match ether_type {
        ..=number::LENGTH_MAX => Err(IpNotFound::Protocol),
        ether_type => Ok(LlcPayload::Snap(ether_type)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LABELS: [u8; 8] = [0, 1, 0, 64, 0, 2, 1, 64];

    /// Finds the IPv4 packet after two labels and these headers.
    fn ip_below_labels(headers: &[u8]) -> Result<usize, IpNotFound> {
        let ip = [&[0x45][..], &[0; 19]].concat();
        ip_in_mpls_or_pseudowire(&[&LABELS[..], headers, &ip].concat(), 0)
    }

    /// Ethernet header whose first address begins with this byte.
    fn ethernet(first: u8, ether_type: &[u8]) -> Vec<u8> {
        [&[first], &[0x22; 11][..], ether_type].concat()
    }

    #[test]
    fn finds_ip_below_labels() {
        assert_eq!(ip_below_labels(&[]), Ok(8));
        assert_eq!(ip_in_mpls(&[&LABELS[..], &[0x60]].concat(), 0), Ok(8));
    }

    #[test]
    fn finds_ip_in_pseudowires_with_and_without_control_word() {
        let control_word = [0, 0, 0, 7];
        for first in [0x00, 0x02, 0x1c, 0x5c, 0xfe] {
            let frame = ethernet(first, &[8, 0]);
            assert_eq!(ip_below_labels(&frame), Ok(22), "{first:#x}");
            let controlled = [&control_word[..], &frame].concat();
            assert_eq!(ip_below_labels(&controlled), Ok(26), "{first:#x}");
        }
        let tagged = ethernet(
            0x02,
            &[0x81, 0, 0, 5, 0x88, 0x64, 0x11, 0, 0, 1, 0, 42, 0, 0x21],
        );
        assert_eq!(ip_below_labels(&tagged), Ok(34), "PPPoE");
        let arp = ethernet(0x02, &[8, 6]);
        assert_eq!(ip_below_labels(&arp), Err(IpNotFound::Protocol));
    }

    /// A control word would make each level two frames to try.
    #[test]
    fn reads_no_pseudowire_inside_another() {
        let labelled = ethernet(0x02, &[&[0x88, 0x47][..], &LABELS].concat());
        assert_eq!(ip_below_labels(&labelled), Ok(30), "IP below labels");
        let nested = [&labelled[..], &ethernet(0x02, &[8, 0])].concat();
        assert_eq!(ip_below_labels(&nested), Err(IpNotFound::Protocol));
        let deep = labelled.repeat(10_000);
        assert_eq!(ip_below_labels(&deep), Err(IpNotFound::Protocol));
    }

    #[test]
    fn reports_frames_that_end_before_the_ip_packet() {
        let whole = [&LABELS[..], &[0; 4], &ethernet(0x02, &[8, 0])].concat();
        for len in 0..=whole.len() {
            let found = ip_in_mpls_or_pseudowire(&whole[..len], 0);
            assert_eq!(found, Err(IpNotFound::Short), "{len}");
        }
    }
}
