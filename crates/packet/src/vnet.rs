// SPDX-License-Identifier: MIT OR Apache-2.0
//! The virtio-net header, `struct virtio_net_hdr` (`include/uapi/linux/virtio_net.h`): 10 bytes before each packet of a
//! TUN device or an AF_PACKET socket with PACKET_VNET_HDR. Its fields
//! are little-endian here. A TUN device uses this order after TUNSETVNETLE.

/// Length of the header in bytes.
pub const LEN: usize = 10;

/// Flag VIRTIO_NET_HDR_F_NEEDS_CSUM: the transport checksum field holds only the sum of the pseudo-header.
pub const NEEDS_CSUM: u8 = 1;
/// Flag VIRTIO_NET_HDR_GSO_ECN of a TCP type: ECN as in RFC 3168, so that CWR belongs on the first segment only.
pub const GSO_ECN: u8 = 0x80;

/// GSO type: the way in which a super-packet is cut into segments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gso {
    /// Packet without GSO: a single segment.
    None,
    /// TCP over IPv4.
    Tcp4,
    /// TCP over IPv6.
    Tcp6,
    /// UDP datagrams of equal size (USO, Linux 6.2 and later).
    Udp,
}

impl Gso {
    const fn code(self) -> u8 {
        match self {
            Self::None => 0,
            Self::Tcp4 => 1,
            Self::Tcp6 => 4,
            Self::Udp => 5,
        }
    }

    const fn from_code(code: u8) -> Option<Self> {
        match code {
            0 => Some(Self::None),
            1 => Some(Self::Tcp4),
            4 => Some(Self::Tcp6),
            5 => Some(Self::Udp),
            _ => None,
        }
    }
}

/// The fields of the header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VnetHeader {
    /// The transport checksum is not complete: its field holds only the sum of the pseudo-header.
    pub needs_csum: bool,
    /// Other bits of `flags` (DATA_VALID, RSC_INFO), kept as they are.
    pub other_flags: u8,
    /// GSO type.
    pub gso: Gso,
    /// ECN as in RFC 3168: CWR belongs on the first segment only.
    pub ecn: bool,
    /// Length of all headers in bytes. A hint, which may be wrong.
    pub header_len: u16,
    /// Payload of each segment in bytes; 0 without GSO.
    pub gso_size: u16,
    /// Offset of the transport header, where the part begins that the checksum covers.
    pub csum_start: u16,
    /// Offset of the checksum field from `csum_start`.
    pub csum_offset: u16,
}

impl VnetHeader {
    /// Header of a packet without GSO whose checksums are complete.
    pub const PLAIN: Self = Self {
        needs_csum: false,
        other_flags: 0,
        gso: Gso::None,
        ecn: false,
        header_len: 0,
        gso_size: 0,
        csum_start: 0,
        csum_offset: 0,
    };

    /// Reads the header; `None` for any other GSO type, which no device is asked for.
    #[must_use]
    pub fn read(bytes: &[u8; LEN]) -> Option<Self> {
        let word = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        Some(Self {
            needs_csum: bytes[0] & NEEDS_CSUM != 0,
            other_flags: bytes[0] & !NEEDS_CSUM,
            gso: Gso::from_code(bytes[1] & !GSO_ECN)?,
            ecn: bytes[1] & GSO_ECN != 0,
            header_len: word(2),
            gso_size: word(4),
            csum_start: word(6),
            csum_offset: word(8),
        })
    }

    /// Encodes the header.
    #[must_use]
    pub fn bytes(&self) -> [u8; LEN] {
        let mut out = [0; LEN];
        out[0] = self.other_flags | u8::from(self.needs_csum);
        out[1] = self.gso.code() | if self.ecn { GSO_ECN } else { 0 };
        out[2..4].copy_from_slice(&self.header_len.to_le_bytes());
        out[4..6].copy_from_slice(&self.gso_size.to_le_bytes());
        out[6..8].copy_from_slice(&self.csum_start.to_le_bytes());
        out[8..10].copy_from_slice(&self.csum_offset.to_le_bytes());
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trips() {
        let bytes = [1, 0x81, 52, 0, 0xa8, 5, 20, 0, 16, 0];
        let header = VnetHeader::read(&bytes).unwrap();
        assert_eq!(
            (header.gso, header.gso_size, header.ecn),
            (Gso::Tcp4, 1448, true)
        );
        assert_eq!(header.bytes(), bytes);
    }

    #[test]
    fn rejects_udp_fragmentation_offload() {
        assert_eq!(VnetHeader::read(&[0, 3, 0, 0, 0, 0, 0, 0, 0, 0]), None);
    }
}
