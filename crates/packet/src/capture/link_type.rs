// SPDX-License-Identifier: MIT OR Apache-2.0
//! Link types: the link-layer headers of frames, and the offset of the IP packet after them.

use super::ether_type::{ip_after_ether_type, ip_in_ethernet};
use super::ip_start::{IpNotFound, ip_at, read_bytes, read_u16};
use super::{ppp, wifi};

/// Link-layer header type of a frame. Numbers are the LINKTYPE values of the tcpdump group's registry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LinkType {
    /// BSD loopback, with the protocol family in the writer's byte order: 0.
    Null,
    /// Ethernet: 1.
    Ethernet,
    /// PPP, with or without HDLC-like framing: 9.
    Ppp,
    /// PPP in HDLC-like framing, or Cisco's HDLC: 50 (and 104).
    Hdlc,
    /// PPPoE session header, then PPP: 51.
    PppOverEthernet,
    /// IPv4 or IPv6 without a link-layer header: 101 (and 12, 14, 228, 229).
    Raw,
    /// 802.11: 105.
    Wifi,
    /// OpenBSD loopback, with the protocol family in network byte order: 108.
    Loop,
    /// Linux cooked capture: 113.
    LinuxCooked,
    /// Radiotap, then 802.11: 127.
    Radiotap,
    /// Per-packet information (PPI), then a frame of the link type that it names: 192.
    Ppi,
    /// A byte for the direction, then PPP: 204 (and 166).
    PppWithDirection,
    /// Linux cooked capture, version 2: 276.
    LinuxCooked2,
    /// Any other number. Such frames are not analysed.
    Other(u16),
}

impl LinkType {
    /// Returns the link type of a number in the registry.
    #[must_use]
    pub const fn from_number(number: u16) -> Self {
        match number {
            0 => Self::Null,
            1 => Self::Ethernet,
            9 => Self::Ppp,
            50 | 104 => Self::Hdlc,
            51 => Self::PppOverEthernet,
            // DLT_RAW of several BSDs, LINKTYPE_RAW, and a number for each IP version.
            12 | 14 | 101 | 228 | 229 => Self::Raw,
            105 => Self::Wifi,
            108 => Self::Loop,
            113 => Self::LinuxCooked,
            127 => Self::Radiotap,
            192 => Self::Ppi,
            166 | 204 => Self::PppWithDirection,
            276 => Self::LinuxCooked2,
            number => Self::Other(number),
        }
    }

    /// Returns the number in the registry. Where several numbers mean one type, returns the usual one.
    #[must_use]
    pub const fn number(self) -> u16 {
        match self {
            Self::Null => 0,
            Self::Ethernet => 1,
            Self::Ppp => 9,
            Self::Hdlc => 50,
            Self::PppOverEthernet => 51,
            Self::Raw => 101,
            Self::Wifi => 105,
            Self::Loop => 108,
            Self::LinuxCooked => 113,
            Self::Radiotap => 127,
            Self::Ppi => 192,
            Self::PppWithDirection => 204,
            Self::LinuxCooked2 => 276,
            Self::Other(number) => number,
        }
    }

    /// Returns the offset of the IP packet in a frame, in bytes. Skips VLAN tags, LLC and SNAP, PPPoE and MPLS. Of the
    /// IP packet only the version is checked.
    ///
    /// # Errors
    ///
    /// Fails if the frame has no IP packet, or the captured bytes end before it.
    #[inline]
    pub fn ip_offset(self, frame: &[u8]) -> Result<usize, IpNotFound> {
        match self {
            Self::Ethernet => ip_in_ethernet(frame, 0),
            Self::Raw => ip_at(frame, 0),
            Self::Null | Self::Loop => ip_in_loopback(frame),
            Self::LinuxCooked => ip_after_ether_type(frame, read_u16(frame, 14)?, 16),
            Self::LinuxCooked2 => ip_after_ether_type(frame, read_u16(frame, 0)?, 20),
            _ => self.rare_ip_offset(frame),
        }
    }

    #[cold]
    fn rare_ip_offset(self, frame: &[u8]) -> Result<usize, IpNotFound> {
        match self {
            Self::Ppp => ppp::ip_in_ppp(frame, 0),
            Self::PppWithDirection => ppp::ip_in_ppp(frame, 1),
            Self::PppOverEthernet => ppp::ip_in_unframed_ppp(frame, 6),
            Self::Hdlc => ip_in_hdlc(frame),
            Self::Wifi => wifi::ip_in_wifi(frame, 0, false),
            Self::Radiotap => wifi::ip_after_radiotap(frame),
            Self::Ppi => ip_after_ppi(frame),
            _ => Err(IpNotFound::LinkType),
        }
    }
}

/// Returns the offset of the IP packet in a frame of PPP or of Cisco's HDLC. The latter begins with a unicast or
/// multicast address that PPP does not use, and has an EtherType (RFC 1547 §4.3.1).
fn ip_in_hdlc(frame: &[u8]) -> Result<usize, IpNotFound> {
    match frame.first().ok_or(IpNotFound::Short)? {
        0x0f | 0x8f => ip_after_ether_type(frame, read_u16(frame, 2)?, 4),
        _ => ppp::ip_in_ppp(frame, 0),
    }
}

/// Returns the offset of the IP packet after a PPI header. Its fields are version, flags, the length of the header with
/// all options, and the link type of the frame after it, in little-endian order. PPI in PPI is refused.
fn ip_after_ppi(frame: &[u8]) -> Result<usize, IpNotFound> {
    let len = usize::from(u16::from_le_bytes(read_bytes(frame, 2)?));
    let inner = LinkType::from_number(u16::from_le_bytes(read_bytes(frame, 4)?));
    if inner == LinkType::Ppi {
        return Err(IpNotFound::LinkType);
    }
    let rest = frame.get(len..).ok_or(IpNotFound::Short)?;
    inner.ip_offset(rest).map(|at| len + at)
}

/// Protocol families of IPv4, which is 2 everywhere, and of IPv6 on NetBSD and OpenBSD, FreeBSD, macOS, Linux and
/// Windows.
const FAMILIES: [u32; 6] = [2, 24, 28, 30, 10, 23];

/// Returns the offset of the IP packet in a loopback frame. The protocol family is read in both byte orders, because
/// the order of the capturing host need not be that of the file.
fn ip_in_loopback(frame: &[u8]) -> Result<usize, IpNotFound> {
    let family = read_bytes(frame, 0)?;
    let orders = [u32::from_be_bytes(family), u32::from_le_bytes(family)];
    match orders.iter().any(|family| FAMILIES.contains(family)) {
        true => ip_at(frame, 4),
        false => Err(IpNotFound::Protocol),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{ether_type::TAGS_MAX, mpls::LABELS_MAX};
    use super::*;

    /// Finds the first byte of an IPv4 header after these headers, and checks its offset.
    fn offset(link_type: LinkType, headers: &[u8]) -> Result<usize, IpNotFound> {
        let found = link_type.ip_offset(&[headers, &[0x45]].concat());
        assert!(found.is_err() || found == Ok(headers.len()), "{found:?}");
        found
    }

    fn ethernet(after_addresses: &[u8]) -> Result<usize, IpNotFound> {
        offset(LinkType::Ethernet, &[&[0x11; 12], after_addresses].concat())
    }

    #[test]
    fn finds_ip_in_ethernet_with_vlan_tags() {
        assert_eq!(ethernet(&[0x08, 0x00]), Ok(14));
        assert_eq!(ethernet(&[0x86, 0xdd]), Ok(14));
        assert_eq!(ethernet(&[0x81, 0x00, 0x20, 0x05, 0x08, 0x00]), Ok(18));
        for outer in [[0x88, 0xa8], [0x91, 0x00], [0x92, 0x00]] {
            let tags = [&outer[..], &[0, 1, 0x81, 0, 0, 2, 8, 0]].concat();
            assert_eq!(ethernet(&tags), Ok(22));
        }
        assert_eq!(ethernet(&[0x08, 0x06]), Err(IpNotFound::Protocol));
    }

    #[test]
    fn bounds_stacks_of_tags_and_labels() {
        let tags = |count| [[0x81, 0, 0, 1].repeat(count), vec![8, 0]].concat();
        assert_eq!(ethernet(&tags(TAGS_MAX)), Ok(14 + 4 * TAGS_MAX));
        assert_eq!(ethernet(&tags(TAGS_MAX + 1)), Err(IpNotFound::Protocol));
        let labels = |count| {
            [
                vec![0x88, 0x47],
                [0, 0, 0, 64].repeat(count),
                vec![0, 0, 1, 64],
            ]
        };
        assert_eq!(ethernet(&labels(7).concat()), Ok(14 + 4 * LABELS_MAX));
        assert_eq!(ethernet(&labels(8).concat()), Err(IpNotFound::Protocol));
    }

    #[test]
    fn finds_ip_in_llc_snap_and_pppoe() {
        assert_eq!(ethernet(&[0, 40, 6, 6, 3]), Ok(17));
        assert_eq!(ethernet(&[0, 40, 0xaa, 0xaa, 3, 0, 0, 0, 8, 0]), Ok(22));
        let cisco = [0, 40, 0xaa, 0xaa, 3, 0, 0, 12, 8, 0];
        assert_eq!(ethernet(&cisco), Err(IpNotFound::Protocol));
        let length_again = [0, 40, 0xaa, 0xaa, 3, 0, 0, 0, 0, 40];
        assert_eq!(ethernet(&length_again), Err(IpNotFound::Protocol));
        assert_eq!(ethernet(&[0, 40, 0x42, 0x42, 3]), Err(IpNotFound::Protocol));
        let session = [0x88, 0x64, 0x11, 0, 0, 1, 0, 42, 0, 0x21];
        assert_eq!(ethernet(&session), Ok(22));
        let control = [0x88, 0x64, 0x11, 0, 0, 1, 0, 42, 0xc0, 0x21];
        assert_eq!(ethernet(&control), Err(IpNotFound::Protocol));
    }

    #[test]
    fn finds_ip_in_cooked_raw_and_loopback_frames() {
        assert_eq!(offset(LinkType::Raw, &[]), Ok(0));
        let cooked = [&[0; 14][..], &[8, 0]].concat();
        assert_eq!(offset(LinkType::LinuxCooked, &cooked), Ok(16));
        let cooked2 = [&[0x86, 0xdd][..], &[0; 18]].concat();
        assert_eq!(offset(LinkType::LinuxCooked2, &cooked2), Ok(20));
        for family in [2, 10, 23, 24, 28, 30] {
            assert_eq!(offset(LinkType::Null, &[family, 0, 0, 0]), Ok(4));
            assert_eq!(offset(LinkType::Loop, &[0, 0, 0, family]), Ok(4));
        }
        assert_eq!(
            offset(LinkType::Null, &[7, 0, 0, 0]),
            Err(IpNotFound::Protocol)
        );
        assert_eq!(offset(LinkType::Other(147), &[]), Err(IpNotFound::LinkType));
    }

    #[test]
    fn finds_ip_in_ppp_with_and_without_framing() {
        assert_eq!(offset(LinkType::Ppp, &[0, 0x21]), Ok(2));
        assert_eq!(offset(LinkType::Ppp, &[0xff, 3, 0, 0x57]), Ok(4));
        assert_eq!(offset(LinkType::Ppp, &[0x21]), Ok(1), "compressed field");
        assert_eq!(
            offset(LinkType::Ppp, &[0xc0, 0x21]),
            Err(IpNotFound::Protocol)
        );
        let labelled = [0x02, 0x81, 0, 0, 1, 64];
        assert_eq!(offset(LinkType::Ppp, &labelled), Ok(6));
        for compressed in [[0, 0x2d], [0, 0xfd], [0, 0x53]] {
            let found = offset(LinkType::Ppp, &compressed);
            assert_eq!(found, Err(IpNotFound::CompressedPpp));
        }
        assert_eq!(offset(LinkType::Hdlc, &[0xff, 3, 0, 0x21]), Ok(4));
        assert_eq!(offset(LinkType::Hdlc, &[0x0f, 0, 0x86, 0xdd]), Ok(4));
        let session = [0x11, 0, 0, 1, 0, 42, 0, 0x21];
        assert_eq!(offset(LinkType::PppOverEthernet, &session), Ok(8));
        let sent = [1, 0xff, 3, 0, 0x21];
        assert_eq!(offset(LinkType::PppWithDirection, &sent), Ok(5));
    }

    #[test]
    fn finds_ip_after_per_packet_information() {
        let with = |link_type, field: &[u8]| {
            let len = 8 + field.len() as u8;
            offset(
                LinkType::Ppi,
                &[&[0, 0, len, 0, link_type, 0, 0, 0][..], field].concat(),
            )
        };
        assert_eq!(with(101, &[0; 12]), Ok(20));
        assert_eq!(with(192, &[]), Err(IpNotFound::LinkType));
        assert_eq!(with(147, &[]), Err(IpNotFound::LinkType));
    }

    #[test]
    fn reports_frames_that_end_before_the_ip_packet() {
        let tagged = [&[0x11; 12][..], &[0x81, 0, 0, 1, 0x88, 0x47, 0, 0, 1, 1]].concat();
        for len in 0..=tagged.len() {
            let found = LinkType::Ethernet.ip_offset(&tagged[..len]);
            assert_eq!(found, Err(IpNotFound::Short), "{len}");
        }
    }

    #[test]
    fn rejects_other_ip_versions() {
        let arp_as_ip = [[0; 12].as_slice(), &[8, 0, 0x15]].concat();
        let found = LinkType::Ethernet.ip_offset(&arp_as_ip);
        assert_eq!(found, Err(IpNotFound::Protocol));
    }

    #[test]
    fn round_trips_every_number() {
        for number in 0..=u16::MAX {
            let link_type = LinkType::from_number(number);
            let canonical = link_type.number();
            assert_eq!(LinkType::from_number(canonical), link_type);
            let named = [9, 50, 51, 105, 127, 192, 204].contains(&canonical);
            assert!(canonical == number || named || link_type == LinkType::Raw);
        }
    }
}
