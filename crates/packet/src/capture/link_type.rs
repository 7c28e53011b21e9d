// SPDX-License-Identifier: MIT OR Apache-2.0
//! What frames begin with, and where in them the IP packet is.

/// What a frame begins with: LINKTYPE values of the tcpdump group's registry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LinkType {
    /// BSD loopback, protocol family in the writer's byte order: 0.
    Null,
    /// Ethernet: 1.
    Ethernet,
    /// IPv4 or IPv6 without anything before: 101 (and 12, 14, 228, 229).
    Raw,
    /// OpenBSD loopback, protocol family in network byte order: 108.
    Loop,
    /// Linux cooked capture: 113.
    LinuxCooked,
    /// Linux cooked capture, version 2: 276.
    LinuxCooked2,
    /// Anything else, which is not analysed.
    Other(u16),
}

/// Why no IP packet was found in a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoIp {
    /// The link type is [`LinkType::Other`].
    LinkType,
    /// The frame carries something else.
    Protocol,
    /// The capture ends before it.
    Short,
}

/// EtherTypes (IEEE 802.3 clause 3.2.6, registered with IANA).
mod ether_type {
    pub(super) const IPV4: u16 = 0x0800;
    pub(super) const IPV6: u16 = 0x86dd;
    /// 802.1Q, 802.1ad, and what was used for stacked tags before that.
    pub(super) const VLAN: [u16; 4] = [0x8100, 0x88a8, 0x9100, 0x9200];
    pub(super) const MPLS: [u16; 2] = [0x8847, 0x8848];
    pub(super) const PPPOE_SESSION: u16 = 0x8864;
    /// Up to here it is the length of an LLC frame.
    pub(super) const LENGTH_MAX: u16 = 1500;
}

/// PPP's protocol numbers of IPv4 and IPv6 (RFC 1661, RFC 5072).
const PPP_IP: [u16; 2] = [0x0021, 0x0057];

/// Most VLAN tags, and most MPLS labels, that are passed over.
const STACK_MAX: usize = 8;

impl LinkType {
    /// From its number in the registry.
    #[must_use]
    pub const fn from_number(number: u16) -> Self {
        match number {
            0 => Self::Null,
            1 => Self::Ethernet,
            // DLT_RAW of several BSDs, LINKTYPE_RAW, and one for each IP.
            12 | 14 | 101 | 228 | 229 => Self::Raw,
            108 => Self::Loop,
            113 => Self::LinuxCooked,
            276 => Self::LinuxCooked2,
            number => Self::Other(number),
        }
    }

    /// Its number in the registry.
    #[must_use]
    pub const fn number(self) -> u16 {
        match self {
            Self::Null => 0,
            Self::Ethernet => 1,
            Self::Raw => 101,
            Self::Loop => 108,
            Self::LinuxCooked => 113,
            Self::LinuxCooked2 => 276,
            Self::Other(number) => number,
        }
    }

    /// Where the IP packet begins in a frame, past VLAN tags, LLC and SNAP, PPPoE and MPLS; its version
    /// is right, and nothing else of it is looked at.
    ///
    /// # Errors
    ///
    /// If there is none, or the capture ends before it.
    #[inline]
    pub fn ip_offset(self, frame: &[u8]) -> Result<usize, NoIp> {
        match self {
            Self::Ethernet => by_type(frame, word(frame, 12)?, 14),
            Self::Raw => is_ip(frame, 0),
            Self::Null | Self::Loop => loopback(frame),
            Self::LinuxCooked => by_type(frame, word(frame, 14)?, 16),
            Self::LinuxCooked2 => by_type(frame, word(frame, 0)?, 20),
            Self::Other(_) => Err(NoIp::LinkType),
        }
    }
}

/// The payload at `at`, whose type was `ether_type`.
#[inline]
fn by_type(frame: &[u8], ether_type: u16, at: usize) -> Result<usize, NoIp> {
    match ether_type {
        ether_type::IPV4 | ether_type::IPV6 => is_ip(frame, at),
        _ => encapsulated(frame, ether_type, at),
    }
}

/// Passes over what can stand between the link and IP; each round takes bytes of the frame.
fn encapsulated(frame: &[u8], ether_type: u16, at: usize) -> Result<usize, NoIp> {
    let (mut ether_type, mut at) = (ether_type, at);
    for _ in 0..=STACK_MAX {
        match ether_type {
            ether_type::IPV4 | ether_type::IPV6 => return is_ip(frame, at),
            ether_type::PPPOE_SESSION => return pppoe(frame, at),
            ..=ether_type::LENGTH_MAX => match llc(frame, at)? {
                Llc::Ip => return is_ip(frame, at + 3),
                Llc::Snap(inner) => (ether_type, at) = (inner, at + 8),
            },
            _ if ether_type::MPLS.contains(&ether_type) => return mpls(frame, at),
            _ if ether_type::VLAN.contains(&ether_type) => {
                (ether_type, at) = (word(frame, at + 2)?, at + 4);
            }
            _ => break,
        }
    }
    Err(NoIp::Protocol)
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
        ..=ether_type::LENGTH_MAX => Err(NoIp::Protocol),
        ether_type => Ok(Llc::Snap(ether_type)),
    }
}

/// RFC 2516 §4: six bytes, then PPP with its protocol field.
fn pppoe(frame: &[u8], at: usize) -> Result<usize, NoIp> {
    match PPP_IP.contains(&word(frame, at + 6)?) {
        true => is_ip(frame, at + 8),
        false => Err(NoIp::Protocol),
    }
}

/// RFC 3032 §2.1: labels of four bytes up to the one with the bottom-of-stack bit. Nothing says what is
/// below, but IP's version does (and a pseudo-wire's control word begins with 0, RFC 4385 §3).
fn mpls(frame: &[u8], at: usize) -> Result<usize, NoIp> {
    let labels = frame.get(at..).ok_or(NoIp::Short)?;
    let bottom = |label: &[u8]| label[2] & 1 == 1;
    match labels.chunks_exact(4).take(STACK_MAX).position(bottom) {
        Some(before) => is_ip(frame, at + 4 * (before + 1)),
        None if labels.len() < 4 * STACK_MAX => Err(NoIp::Short),
        None => Err(NoIp::Protocol),
    }
}

/// IPv6's protocol family on NetBSD and OpenBSD, FreeBSD, macOS, Linux and Windows; IPv4's is 2
/// everywhere.
const FAMILIES: [u32; 6] = [2, 24, 28, 30, 10, 23];

/// In either byte order, because the writer's need not be that of the file.
fn loopback(frame: &[u8]) -> Result<usize, NoIp> {
    let family = *frame.first_chunk().ok_or(NoIp::Short)?;
    let orders = [u32::from_be_bytes(family), u32::from_le_bytes(family)];
    match orders.iter().any(|family| FAMILIES.contains(family)) {
        true => is_ip(frame, 4),
        false => Err(NoIp::Protocol),
    }
}

/// `at`, if an IP packet begins there.
#[inline]
fn is_ip(frame: &[u8], at: usize) -> Result<usize, NoIp> {
    match frame.get(at).ok_or(NoIp::Short)? >> 4 {
        4 | 6 => Ok(at),
        _ => Err(NoIp::Protocol),
    }
}

#[inline]
fn word(frame: &[u8], at: usize) -> Result<u16, NoIp> {
    let bytes = frame.get(at..).and_then(|rest| rest.first_chunk());
    bytes.copied().map(u16::from_be_bytes).ok_or(NoIp::Short)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The words of each case, then an IPv4 header's first byte.
    fn offset(link_type: LinkType, before: &[u8]) -> Result<usize, NoIp> {
        let found = link_type.ip_offset(&[before, &[0x45]].concat());
        assert!(found.is_err() || found == Ok(before.len()), "{found:?}");
        found
    }

    fn ethernet(after_addresses: &[u8]) -> Result<usize, NoIp> {
        offset(LinkType::Ethernet, &[&[0x11; 12], after_addresses].concat())
    }

    #[test]
    fn ethernet_ii_with_tags() {
        assert_eq!(ethernet(&[0x08, 0x00]), Ok(14));
        assert_eq!(ethernet(&[0x86, 0xdd]), Ok(14));
        assert_eq!(ethernet(&[0x81, 0x00, 0x20, 0x05, 0x08, 0x00]), Ok(18));
        for outer in [[0x88, 0xa8], [0x91, 0x00], [0x92, 0x00]] {
            let tags = [&outer[..], &[0, 1, 0x81, 0, 0, 2, 8, 0]].concat();
            assert_eq!(ethernet(&tags), Ok(22));
        }
        assert_eq!(ethernet(&[0x08, 0x06]), Err(NoIp::Protocol));
    }

    #[test]
    fn stacks_are_bounded() {
        let tags = |count| [[0x81, 0, 0, 1].repeat(count), vec![8, 0]].concat();
        assert_eq!(ethernet(&tags(STACK_MAX)), Ok(14 + 4 * STACK_MAX));
        assert_eq!(ethernet(&tags(STACK_MAX + 1)), Err(NoIp::Protocol));
        let labels = |count| {
            [
                vec![0x88, 0x47],
                [0, 0, 0, 64].repeat(count),
                vec![0, 0, 1, 64],
            ]
        };
        assert_eq!(ethernet(&labels(7).concat()), Ok(14 + 4 * STACK_MAX));
        assert_eq!(ethernet(&labels(8).concat()), Err(NoIp::Protocol));
    }

    #[test]
    fn llc_snap_and_pppoe() {
        assert_eq!(ethernet(&[0, 40, 6, 6, 3]), Ok(17));
        assert_eq!(ethernet(&[0, 40, 0xaa, 0xaa, 3, 0, 0, 0, 8, 0]), Ok(22));
        let cisco = [0, 40, 0xaa, 0xaa, 3, 0, 0, 12, 8, 0];
        assert_eq!(ethernet(&cisco), Err(NoIp::Protocol));
        let length_again = [0, 40, 0xaa, 0xaa, 3, 0, 0, 0, 0, 40];
        assert_eq!(ethernet(&length_again), Err(NoIp::Protocol));
        assert_eq!(ethernet(&[0, 40, 0x42, 0x42, 3]), Err(NoIp::Protocol));
        let session = [0x88, 0x64, 0x11, 0, 0, 1, 0, 42, 0, 0x21];
        assert_eq!(ethernet(&session), Ok(22));
        let control = [0x88, 0x64, 0x11, 0, 0, 1, 0, 42, 0xc0, 0x21];
        assert_eq!(ethernet(&control), Err(NoIp::Protocol));
    }

    #[test]
    fn cooked_raw_and_loopback() {
        assert_eq!(offset(LinkType::Raw, &[]), Ok(0));
        let cooked = [&[0; 14][..], &[8, 0]].concat();
        assert_eq!(offset(LinkType::LinuxCooked, &cooked), Ok(16));
        let cooked2 = [&[0x86, 0xdd][..], &[0; 18]].concat();
        assert_eq!(offset(LinkType::LinuxCooked2, &cooked2), Ok(20));
        for family in [2, 10, 23, 24, 28, 30] {
            assert_eq!(offset(LinkType::Null, &[family, 0, 0, 0]), Ok(4));
            assert_eq!(offset(LinkType::Loop, &[0, 0, 0, family]), Ok(4));
        }
        assert_eq!(offset(LinkType::Null, &[7, 0, 0, 0]), Err(NoIp::Protocol));
        assert_eq!(offset(LinkType::Other(147), &[]), Err(NoIp::LinkType));
    }

    #[test]
    fn frames_may_end_anywhere() {
        let tagged = [&[0x11; 12][..], &[0x81, 0, 0, 1, 0x88, 0x47, 0, 0, 1, 1]].concat();
        for len in 0..=tagged.len() {
            let found = LinkType::Ethernet.ip_offset(&tagged[..len]);
            assert_eq!(found, Err(NoIp::Short), "{len}");
        }
    }

    #[test]
    fn the_version_must_be_one() {
        let arp_as_ip = [[0; 12].as_slice(), &[8, 0, 0x15]].concat();
        let found = LinkType::Ethernet.ip_offset(&arp_as_ip);
        assert_eq!(found, Err(NoIp::Protocol));
    }

    #[test]
    fn numbers_read_back() {
        for number in 0..=u16::MAX {
            let link_type = LinkType::from_number(number);
            assert!(link_type.number() == number || link_type == LinkType::Raw);
        }
    }
}
