// SPDX-License-Identifier: MIT OR Apache-2.0
//! Headers of the BSDs that have a protocol family before the IP packet: of loopback, of IPsec, of the packet filter.

use super::ip_start::{IpNotFound, ip_at, read_bytes};

/// Protocol families of IPv4, which is 2 everywhere, and of IPv6 on NetBSD and OpenBSD, FreeBSD, macOS, Linux and
/// Windows.
const FAMILIES: [u32; 6] = [2, 24, 28, 30, 10, 23];

/// Returns the offset of the IP packet in a loopback frame.
pub(super) fn ip_in_loopback(frame: &[u8]) -> Result<usize, IpNotFound> {
    ip_after_family(frame, 4)
}

/// Returns the offset of the IP packet in a frame of OpenBSD's `enc` device: protocol family, SPI and flags, each of
/// four bytes.
pub(super) fn ip_in_enc(frame: &[u8]) -> Result<usize, IpNotFound> {
    ip_after_family(frame, 12)
}

/// Checks the protocol family at the beginning of the frame, then the IP packet at `at`. The family is read in both
/// byte orders, because the order of the capturing host need not be that of the file.
fn ip_after_family(frame: &[u8], at: usize) -> Result<usize, IpNotFound> {
    let family = read_bytes(frame, 0)?;
    let orders = [u32::from_be_bytes(family), u32::from_le_bytes(family)];
    if orders.iter().any(|family| FAMILIES.contains(family)) {
        ip_at(frame, at)
    } else {
        Err(IpNotFound::Protocol)
    }
}

/// Least length of a header of pflog in bytes. The fields that all of its versions have end there.
const PFLOG_MIN: u8 = 45;

/// Returns the offset of the IP packet after a header of pflog. The first byte is the length of the header without its
/// padding to four bytes, the second is the protocol family.
pub(super) fn ip_in_pflog(frame: &[u8]) -> Result<usize, IpNotFound> {
    let [len, family] = read_bytes(frame, 0)?;
    if len >= PFLOG_MIN && FAMILIES.contains(&family.into()) {
        ip_at(frame, usize::from(len).next_multiple_of(4))
    } else {
        Err(IpNotFound::Protocol)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_ip(header: &[u8]) -> Vec<u8> {
        [header, &[0x45]].concat()
    }

    #[test]
    fn finds_ip_after_protocol_families() {
        for family in [2, 10, 23, 24, 28, 30] {
            let little = with_ip(&[family, 0, 0, 0]);
            assert_eq!(ip_in_loopback(&little), Ok(4));
            let big = with_ip(&[0, 0, 0, family]);
            assert_eq!(ip_in_loopback(&big), Ok(4));
            let enc = with_ip(&[&[family, 0, 0, 0][..], &[9; 8]].concat());
            assert_eq!(ip_in_enc(&enc), Ok(12));
        }
        let other = with_ip(&[7, 0, 0, 0]);
        assert_eq!(ip_in_loopback(&other), Err(IpNotFound::Protocol));
    }

    #[test]
    fn finds_ip_after_pflog_headers_of_every_length() {
        let found = |len: u8, family: u8, padded: usize| {
            let mut header = vec![0; padded];
            (header[0], header[1]) = (len, family);
            ip_in_pflog(&with_ip(&header))
        };
        assert_eq!(found(45, 2, 48), Ok(48));
        assert_eq!(found(61, 2, 64), Ok(64));
        assert_eq!(found(61, 24, 64), Ok(64));
        assert_eq!(found(100, 28, 100), Ok(100));
        assert_eq!(found(255, 30, 256), Ok(256));
        assert_eq!(found(44, 2, 44), Err(IpNotFound::Protocol));
        assert_eq!(found(61, 7, 64), Err(IpNotFound::Protocol));
        assert_eq!(found(61, 2, 63), Err(IpNotFound::Short));
    }
}
