// SPDX-License-Identifier: MIT OR Apache-2.0
//! Frames of Linux's NFLOG (LINKTYPE_NFLOG): four bytes, then attributes, one of which is the IP packet.

use super::endianness::Endianness;
use super::ip_start::{IpNotFound, ip_at, read_bytes};

/// Bytes before the attributes: address family, version, group.
const HEADER: usize = 4;

/// Length of an attribute's own header in bytes: its whole length without padding, then its type.
const ATTRIBUTE_HEADER: usize = 4;

/// Type of the attribute with the packet: `NFULA_PAYLOAD`.
const PAYLOAD: u16 = 9;

/// Returns the offset of the IP packet in an NFLOG frame. Each attribute is padded to four bytes.
pub(super) fn ip_in_nflog(frame: &[u8]) -> Result<usize, IpNotFound> {
    let endianness = endianness(read_bytes(frame, HEADER)?);
    let mut at = HEADER;
    loop {
        let header: [u8; ATTRIBUTE_HEADER] = read_bytes(frame, at)?;
        let len = usize::from(endianness.u16(&header, 0));
        if len < ATTRIBUTE_HEADER {
            return Err(IpNotFound::Protocol);
        }
        if endianness.u16(&header, 2) == PAYLOAD {
            return ip_at(frame, at + ATTRIBUTE_HEADER);
        }
        at += len.next_multiple_of(4);
    }
}

/// Returns the byte order of the capturing host, which need not be that of the file. Types of attributes are less than
/// 256, so one byte of the first one's is zero.
fn endianness(first: [u8; ATTRIBUTE_HEADER]) -> Endianness {
    match first[2] {
        0 => Endianness::Big,
        _ => Endianness::Little,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Packet header, mark with padding, prefix of three bytes with padding, payload.
    fn frame(big: bool) -> Vec<u8> {
        let mut frame = vec![2, 0, 0, 5];
        let attributes: [(u16, &[u8]); 4] = [
            (1, &[8, 0, 3, 0]),
            (3, &[0; 4]),
            (10, b"fw\0"),
            (PAYLOAD, &[0x45]),
        ];
        for (kind, value) in attributes {
            for number in [4 + value.len() as u16, kind] {
                if big {
                    frame.extend(number.to_be_bytes());
                } else {
                    frame.extend(number.to_le_bytes());
                }
            }
            frame.extend(value);
            frame.resize(frame.len().next_multiple_of(4), 0);
        }
        frame
    }

    #[test]
    fn finds_ip_in_payload_attribute_in_both_byte_orders() {
        for big in [false, true] {
            assert_eq!(ip_in_nflog(&frame(big)), Ok(4 + 8 + 8 + 8 + 4));
        }
    }

    #[test]
    fn reports_frames_without_payload() {
        let whole = frame(false);
        for len in 0..=28 + 4 {
            let found = ip_in_nflog(&whole[..len]);
            assert_eq!(found, Err(IpNotFound::Short), "{len}");
        }
    }

    #[test]
    fn rejects_attributes_without_length() {
        for len in 0..4 {
            let mut whole = frame(false);
            whole[12] = len;
            assert_eq!(ip_in_nflog(&whole), Err(IpNotFound::Protocol));
        }
    }
}
