// SPDX-License-Identifier: MIT OR Apache-2.0
//! Headers that name the link type of the frame after them: PPI, PKTAP, and ERF (in `erf`).

use super::ip_start::{IpNotFound, read_bytes};

/// Frame after a header that names its link type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct InnerFrame {
    /// Offset of the frame.
    pub(super) at: usize,
    /// Number of its link type in the registry; 65,535 for any number above.
    pub(super) link_type: u16,
}

/// Reads a PPI header. Its fields are version, flags, the length of the header with all options, and the link type of
/// the frame after it, in little-endian order.
pub(super) fn after_ppi(frame: &[u8]) -> Result<InnerFrame, IpNotFound> {
    let len = u16::from_le_bytes(read_bytes(frame, 2)?);
    let link_type = read_u32(frame, 4)?;
    Ok(InnerFrame {
        at: len.into(),
        link_type: u16::try_from(link_type).unwrap_or(u16::MAX),
    })
}

/// Type of a PKTAP record with a packet.
const PKTAP_PACKET: u32 = 1;

/// Reads a PKTAP header of macOS. Its first fields are its length, the type of the record, and the link type of the
/// frame after it, in little-endian order.
pub(super) fn after_pktap(frame: &[u8]) -> Result<InnerFrame, IpNotFound> {
    let (len, record_type) = (read_u32(frame, 0)?, read_u32(frame, 4)?);
    let link_type = read_u32(frame, 8)?;
    if record_type != PKTAP_PACKET {
        return Err(IpNotFound::Protocol);
    }
    Ok(InnerFrame {
        at: len as usize,
        link_type: u16::try_from(link_type).unwrap_or(u16::MAX),
    })
}

fn read_u32(frame: &[u8], at: usize) -> Result<u32, IpNotFound> {
    read_bytes(frame, at).map(u32::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_per_packet_information() {
        let ppi = [0, 0, 20, 0, 105, 0, 0, 0];
        let inner = |at, link_type| Ok(InnerFrame { at, link_type });
        assert_eq!(after_ppi(&ppi), inner(20, 105));
        let unknown = [0, 0, 8, 0, 1, 0, 1, 0];
        assert_eq!(after_ppi(&unknown), inner(8, u16::MAX));
        for len in 0..ppi.len() {
            assert_eq!(after_ppi(&ppi[..len]), Err(IpNotFound::Short));
        }
    }

    #[test]
    fn reads_pktap_headers() {
        let header = |record_type: u8| [108, 0, 0, 0, record_type, 0, 0, 0, 12, 0, 0, 0];
        let inner = InnerFrame {
            at: 108,
            link_type: 12,
        };
        assert_eq!(after_pktap(&header(1)), Ok(inner));
        assert_eq!(after_pktap(&header(2)), Err(IpNotFound::Protocol));
        for len in 0..12 {
            let found = after_pktap(&header(1)[..len]);
            assert_eq!(found, Err(IpNotFound::Short));
        }
    }
}
