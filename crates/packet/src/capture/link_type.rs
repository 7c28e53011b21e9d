// SPDX-License-Identifier: MIT OR Apache-2.0
//! Link types: the link-layer headers of frames, and the offset of the IP packet after them.

use super::ether_type::{ip_after_ether_type, ip_in_ethernet};
use super::ip_start::{IpNotFound, ip_at, read_u16};
use super::wrapped::{self, InnerFrame};
use super::{bsd, erf, nflog, ppp, wifi};

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
    /// The `enc` device of OpenBSD and FreeBSD, which shows packets of IPsec: 109.
    Enc,
    /// Linux cooked capture: 113.
    LinuxCooked,
    /// The BSDs' packet filter log, pflog: 117.
    Pflog,
    /// Radiotap, then 802.11: 127.
    Radiotap,
    /// Per-packet information (PPI), then a frame of the link type that it names: 192.
    Ppi,
    /// A record of Endace's ERF: 197.
    Erf,
    /// A byte for the direction, then PPP: 204 (and 166).
    PppWithDirection,
    /// Linux's NFLOG: 239.
    Nflog,
    /// A PKTAP header of macOS, then a frame of the link type that it names: 258.
    Pktap,
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
            109 => Self::Enc,
            113 => Self::LinuxCooked,
            117 => Self::Pflog,
            127 => Self::Radiotap,
            192 => Self::Ppi,
            197 => Self::Erf,
            166 | 204 => Self::PppWithDirection,
            239 => Self::Nflog,
            258 => Self::Pktap,
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
            Self::Enc => 109,
            Self::LinuxCooked => 113,
            Self::Pflog => 117,
            Self::Radiotap => 127,
            Self::Ppi => 192,
            Self::Erf => 197,
            Self::PppWithDirection => 204,
            Self::Nflog => 239,
            Self::Pktap => 258,
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
            Self::Null | Self::Loop => bsd::ip_in_loopback(frame),
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
            Self::Enc => bsd::ip_in_enc(frame),
            Self::Pflog => bsd::ip_in_pflog(frame),
            Self::Nflog => nflog::ip_in_nflog(frame),
            Self::Ppi => ip_in_inner_frame(frame, wrapped::after_ppi(frame)?),
            Self::Pktap => ip_in_inner_frame(frame, wrapped::after_pktap(frame)?),
            Self::Erf => ip_in_inner_frame(frame, erf::after_erf(frame)?),
            other => Err(IpNotFound::LinkType(other.number())),
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

/// Returns the offset of the IP packet in a frame inside another. Refuses further such frames in it, so that they are not
/// nested.
fn ip_in_inner_frame(frame: &[u8], inner: InnerFrame) -> Result<usize, IpNotFound> {
    let link_type = LinkType::from_number(inner.link_type);
    if matches!(link_type, LinkType::Ppi | LinkType::Pktap | LinkType::Erf) {
        return Err(IpNotFound::LinkType(inner.link_type));
    }
    let bytes = frame.get(inner.at..).ok_or(IpNotFound::Short)?;
    link_type.ip_offset(bytes).map(|at| inner.at + at)
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
    fn finds_ip_in_cooked_and_raw_frames() {
        assert_eq!(offset(LinkType::Raw, &[]), Ok(0));
        let cooked = [&[0; 14][..], &[8, 0]].concat();
        assert_eq!(offset(LinkType::LinuxCooked, &cooked), Ok(16));
        let cooked2 = [&[0x86, 0xdd][..], &[0; 18]].concat();
        assert_eq!(offset(LinkType::LinuxCooked2, &cooked2), Ok(20));
        let other = offset(LinkType::Other(147), &[]);
        assert_eq!(other, Err(IpNotFound::LinkType(147)));
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

    /// Each has tests of its own beside its code.
    #[test]
    fn finds_ip_in_frames_of_other_headers() {
        let number = |link_type: u16| LinkType::from_number(link_type);
        assert_eq!(offset(number(0), &[2, 0, 0, 0]), Ok(4));
        assert_eq!(offset(number(108), &[0, 0, 0, 2]), Ok(4));
        assert_eq!(offset(number(109), &[&[2][..], &[0; 11]].concat()), Ok(12));
        assert_eq!(
            offset(number(117), &[&[61, 2][..], &[0; 62]].concat()),
            Ok(64)
        );
        let erf = [&[0; 8][..], &[2], &[0; 9], &[1; 12], &[8, 0]].concat();
        assert_eq!(offset(number(197), &erf), Ok(32));
        assert_eq!(offset(number(239), &[2, 0, 0, 0, 5, 0, 9, 0]), Ok(8));
        let pktap = [&[108, 0, 0, 0, 1, 0, 0, 0, 101][..], &[0; 99]].concat();
        assert_eq!(offset(number(258), &pktap), Ok(108));
        assert_eq!(offset(number(192), &ppi(101)), Ok(8));
    }

    /// A PPI header of the least length before a frame of this type.
    fn ppi(link_type: u8) -> [u8; 8] {
        [0, 0, 8, 0, link_type, 0, 0, 0]
    }

    #[test]
    fn refuses_unknown_and_nested_frames_inside_others() {
        for link_type in [147, 192, 197] {
            let found = offset(LinkType::Ppi, &ppi(link_type));
            assert_eq!(found, Err(IpNotFound::LinkType(link_type.into())));
        }
        let itself = [0, 0, 0, 0, 2, 1, 0, 0];
        let found = offset(LinkType::Ppi, &itself);
        assert_eq!(found, Err(IpNotFound::LinkType(258)));
        let beyond = [0, 0, 99, 0, 101, 0, 0, 0];
        assert_eq!(offset(LinkType::Ppi, &beyond), Err(IpNotFound::Short));
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
