// SPDX-License-Identifier: MIT OR Apache-2.0
//! L2TP version 2 in UDP, which carries PPP (RFC 2661 §3.1).

use crate::capture::IpNotFound;
use crate::capture::ip_start::read_u16;
use crate::capture::ppp::ip_in_ppp;

/// Bits of the first 16 of the header.
mod flag {
    pub(super) const CONTROL: u16 = 0x8000;
    pub(super) const LENGTH: u16 = 0x4000;
    pub(super) const SEQUENCE: u16 = 0x0800;
    pub(super) const OFFSET: u16 = 0x0200;
    pub(super) const VERSION: u16 = 0x000f;
}

/// Returns the offset of the IP packet in a data message. Control messages and version 3 are not read: the headers of
/// the latter have lengths that only its control messages tell (RFC 3931 §4.1).
pub(super) fn ip_in_l2tp(packet: &[u8], at: usize) -> Result<usize, IpNotFound> {
    let flags = read_u16(packet, at)?;
    if flags & (flag::CONTROL | flag::VERSION) != 2 {
        return Err(IpNotFound::Protocol);
    }
    let len = |flag: u16, len: usize| if flags & flag != 0 { len } else { 0 };
    // Flags, tunnel and session have two bytes each.
    let offset_field = at + 6 + len(flag::LENGTH, 2) + len(flag::SEQUENCE, 4);
    match flags & flag::OFFSET {
        0 => ip_in_ppp(packet, offset_field),
        _ => {
            let padding = usize::from(read_u16(packet, offset_field)?);
            ip_in_ppp(packet, offset_field + 2 + padding)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Finds the first byte of an IPv4 header after this header and that of PPP.
    fn ip_after(header: &[u8]) -> Result<usize, IpNotFound> {
        ip_in_l2tp(&[header, &[0xff, 3, 0, 0x21, 0x45]].concat(), 0)
    }

    #[test]
    fn skips_optional_fields() {
        assert_eq!(ip_after(&[0, 2, 0, 1, 0, 2]), Ok(10));
        assert_eq!(ip_after(&[0x40, 2, 0, 99, 0, 1, 0, 2]), Ok(12));
        assert_eq!(ip_after(&[0x48, 2, 0, 99, 0, 1, 0, 2, 0, 3, 0, 4]), Ok(16));
        assert_eq!(ip_after(&[0x02, 2, 0, 1, 0, 2, 0, 0]), Ok(12));
        assert_eq!(ip_after(&[0x02, 2, 0, 1, 0, 2, 0, 3, 9, 9, 9]), Ok(15));
    }

    #[test]
    fn rejects_control_messages_and_other_versions() {
        for first in [[0xc8, 2], [0, 3], [0, 1], [0, 0]] {
            let header = [&first[..], &[0; 10]].concat();
            assert_eq!(ip_after(&header), Err(IpNotFound::Protocol), "{first:?}");
        }
    }

    #[test]
    fn reports_captures_that_end_before_the_inner_packet() {
        let header = [
            0x4a, 2, 0, 99, 0, 1, 0, 2, 0, 3, 0, 4, 0, 1, 9, 0xff, 3, 0, 0x21,
        ];
        for len in 0..=header.len() {
            let found = ip_in_l2tp(&header[..len], 0);
            assert_eq!(found, Err(IpNotFound::Short), "{len}");
        }
    }
}
