// SPDX-License-Identifier: MIT OR Apache-2.0
//! QUIC headers as far as an observer can read them (RFC 8999; RFC 9000 §17; RFC 9312 §2).

/// Bit of the first byte that marks a long header.
const LONG_HEADER: u8 = 0x80;
/// Bit of the first byte that QUIC version 1 and 2 set in every long header (RFC 9000 §17.2).
const FIXED_BIT: u8 = 0x40;
/// Latency spin bit of a short header (RFC 9000 §17.3.1).
const SPIN_BIT: u8 = 0x20;
/// Longest connection ID of the versions that are known, bytes (RFC 9000 §17.2).
const CONNECTION_ID_LEN_MAX: u8 = 20;

/// Version number of RFC 9000.
const VERSION_1: u32 = 1;
/// Version number of RFC 9369.
const VERSION_2: u32 = 0x6b33_43cf;
/// First version number of the drafts of RFC 9000; the last byte is the number of the draft.
const DRAFTS: u32 = 0xff00_0000;

/// Header of a datagram's first packet, if the datagram is of QUIC. One datagram does not tell: nearly half of all
/// first bytes would be a short header. A long header of a known version does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Header {
    /// Long header: of the handshake.
    Long {
        /// Version of QUIC, which [`version_name`] knows.
        version: u32,
    },
    /// Short header.
    Short {
        /// Spin bit.
        spin: bool,
    },
}

impl Header {
    /// Parses the captured part of a datagram's payload. `None` if it is neither a long header of a known version nor
    /// a short header. The fixed bit of a short header may have any value (RFC 9287).
    #[must_use]
    pub fn parse(payload: &[u8]) -> Option<Self> {
        let first = *payload.first()?;
        if first & LONG_HEADER == 0 {
            let spin = first & SPIN_BIT != 0;
            return Some(Self::Short { spin });
        }
        let version = u32::from_be_bytes(*payload.get(1..)?.first_chunk()?);
        let is_quic = first & FIXED_BIT != 0
            && *payload.get(5)? <= CONNECTION_ID_LEN_MAX
            && is_known(version);
        is_quic.then_some(Self::Long { version })
    }
}

/// Returns the name of a version: `1`, `2` or `draft-29`; `None` if the number is of no version that is known.
#[must_use]
pub fn version_name(version: u32) -> Option<String> {
    match version {
        VERSION_1 => Some("1".to_owned()),
        VERSION_2 => Some("2".to_owned()),
        _ if is_draft(version) => Some(format!("draft-{}", version & 0xff)),
        _ => None,
    }
}

fn is_known(version: u32) -> bool {
    matches!(version, VERSION_1 | VERSION_2) || is_draft(version)
}

fn is_draft(version: u32) -> bool {
    version & !0xff == DRAFTS
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a long header of this version with connection IDs of 8 and 0 bytes.
    fn long_header(version: u32) -> Vec<u8> {
        let ids = [8, 1, 2, 3, 4, 5, 6, 7, 8, 0];
        [&[0xc3][..], &version.to_be_bytes(), &ids].concat()
    }

    #[test]
    fn reads_version_of_long_header() {
        for (version, name) in [(1, "1"), (0x6b33_43cf, "2"), (0xff00_001d, "draft-29")] {
            let header = Header::parse(&long_header(version));
            assert_eq!(header, Some(Header::Long { version }));
            assert_eq!(version_name(version).as_deref(), Some(name));
        }
    }

    #[test]
    fn reads_spin_bit_of_short_header() {
        for (first, spin) in [(0x40, false), (0x60, true), (0x7f, true), (0x00, false)] {
            assert_eq!(Header::parse(&[first]), Some(Header::Short { spin }));
        }
    }

    /// Other protocols set the highest bit, too: RTP always, DNS in half of its transaction IDs.
    #[test]
    fn takes_no_other_protocol_for_a_long_header() {
        let version_0 = long_header(0);
        let greased = long_header(0x1a2a_3a4a);
        let rtp = [0x80, 0x60, 0, 0, 0, 1, 0, 0, 0, 2];
        let mut long_id = long_header(1);
        long_id[5] = 21;
        let mut without_fixed_bit = long_header(1);
        without_fixed_bit[0] = 0x83;
        for payload in [&version_0, &greased, &long_id, &without_fixed_bit] {
            assert_eq!(Header::parse(payload), None, "{payload:x?}");
        }
        assert_eq!(Header::parse(&rtp), None);
        for len in 0..6 {
            assert_eq!(Header::parse(&long_header(1)[..len]), None, "{len} bytes");
        }
    }
}
