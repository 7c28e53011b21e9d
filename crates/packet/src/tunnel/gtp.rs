// SPDX-License-Identifier: MIT OR Apache-2.0
//! GTP-U, which carries IP in mobile networks (3GPP TS 29.281 §5).

use crate::capture::IpNotFound;
use crate::capture::ip_start::{ip_at, read_bytes};

/// Bits of the first byte of the header.
mod flag {
    /// Version, three bits, and the protocol type, which GTP' does not set.
    pub(super) const VERSION_AND_TYPE: u8 = 0xf0;
    pub(super) const GTP_1: u8 = 0x30;
    pub(super) const EXTENSION: u8 = 0x04;
    /// Extension headers, sequence number or N-PDU number. Each makes the header four bytes longer.
    pub(super) const OPTIONAL: u8 = 0x07;
}

/// Message type of a packet of a user. Others are of the tunnel itself.
const G_PDU: u8 = 255;

/// Most extension headers that are skipped.
const EXTENSIONS_MAX: usize = 8;

/// Returns the offset of the IP packet in a GTP-U message. Packets of other protocols, such as Ethernet, are not read.
pub(super) fn ip_in_gtp(packet: &[u8], at: usize) -> Result<usize, IpNotFound> {
    let [flags, message] = read_bytes(packet, at)?;
    if flags & flag::VERSION_AND_TYPE != flag::GTP_1 || message != G_PDU {
        return Err(IpNotFound::Protocol);
    }
    match (flags & flag::OPTIONAL, flags & flag::EXTENSION) {
        (0, _) => ip_at(packet, at + 8),
        (_, 0) => ip_at(packet, at + 12),
        _ => ip_after_extensions(packet, at + 12),
    }
}

/// Skips extension headers, the first of which begins at `at`. The byte before each has its type; 0 is no further one.
/// Their first byte is their length in words of four bytes (TS 29.281 §5.2.1).
fn ip_after_extensions(packet: &[u8], at: usize) -> Result<usize, IpNotFound> {
    let byte = |at: usize| packet.get(at).copied().ok_or(IpNotFound::Short);
    let mut at = at;
    for _ in 0..=EXTENSIONS_MAX {
        if byte(at - 1)? == 0 {
            return ip_at(packet, at);
        }
        match byte(at)? {
            0 => return Err(IpNotFound::Protocol),
            words => at += 4 * usize::from(words),
        }
    }
    Err(IpNotFound::Protocol)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Finds the first byte of an IPv4 header after this header.
    fn ip_after(header: &[u8]) -> Result<usize, IpNotFound> {
        ip_in_gtp(&[header, &[0x45]].concat(), 0)
    }

    #[test]
    fn skips_optional_fields() {
        assert_eq!(ip_after(&[0x30, 255, 0, 1, 0, 0, 0, 7]), Ok(8));
        for flags in [0x31, 0x32, 0x33] {
            // Without the flag, the type of an extension header has no meaning.
            let header = [flags, 255, 0, 5, 0, 0, 0, 7, 0, 1, 0, 0x85];
            assert_eq!(ip_after(&header), Ok(12), "{flags:#x}");
        }
    }

    #[test]
    fn skips_extension_headers() {
        let fixed = [0x34, 255, 0, 9, 0, 0, 0, 7, 0, 0, 0];
        assert_eq!(ip_after(&[&fixed[..], &[0]].concat()), Ok(12));
        // 5G's PDU session container, then a number of two words.
        let container = [0x85, 1, 0x10, 9, 0xc0, 2, 1, 2, 3, 4, 5, 6, 0];
        assert_eq!(ip_after(&[&fixed[..], &container].concat()), Ok(24));
        let endless = [&fixed[..], &[0x85], &[1, 0, 0, 0x85].repeat(99)].concat();
        assert_eq!(ip_after(&endless), Err(IpNotFound::Protocol));
        let empty = [&fixed[..], &[0x85, 0, 0, 0, 0]].concat();
        assert_eq!(ip_after(&empty), Err(IpNotFound::Protocol));
        let most = [
            &fixed[..],
            &[0x85],
            &[1, 0, 0, 0x85].repeat(7),
            &[1, 0, 0, 0],
        ]
        .concat();
        assert_eq!(ip_after(&most), Ok(12 + 4 * EXTENSIONS_MAX));
    }

    #[test]
    fn rejects_other_messages_and_versions() {
        for start in [
            [0x30, 1],
            [0x30, 254],
            [0x20, 255],
            [0x50, 255],
            [0x10, 255],
        ] {
            let header = [&start[..], &[0, 1, 0, 0, 0, 7]].concat();
            assert_eq!(ip_after(&header), Err(IpNotFound::Protocol), "{start:?}");
        }
    }

    #[test]
    fn reports_captures_that_end_before_the_inner_packet() {
        let header = [
            0x34, 255, 0, 9, 0, 0, 0, 7, 0, 0, 0, 0x85, 1, 0x10, 9, 0xc0, 1, 2, 3, 0,
        ];
        for len in 0..=header.len() {
            let found = ip_in_gtp(&header[..len], 0);
            assert_eq!(found, Err(IpNotFound::Short), "{len}");
        }
    }
}
