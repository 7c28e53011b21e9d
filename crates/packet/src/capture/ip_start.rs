// SPDX-License-Identifier: MIT OR Apache-2.0
//! The start of an IP packet in a frame, the reasons why there is none, and bounded reads of header fields.

/// Reason why no IP packet was found in a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IpNotFound {
    /// The link type of the frame, or that of the frame inside a header that names one, is not read. The number is the
    /// registry's.
    LinkType(u16),
    /// The frame carries another protocol.
    Protocol,
    /// The captured bytes end before the IP packet.
    Short,
    /// An 802.11 data frame is encrypted (WEP, WPA).
    EncryptedWifi,
    /// An 802.11 data frame aggregates several packets (A-MSDU).
    AggregatedWifi,
    /// The frame is the second or a later fragment of an 802.11 frame, which has no IP header.
    WifiFragment,
    /// The payload of PPP is compressed or encrypted.
    CompressedPpp,
}

/// Returns `at` if the version of an IP header is there.
#[inline]
pub(crate) fn ip_at(frame: &[u8], at: usize) -> Result<usize, IpNotFound> {
    match frame.get(at).ok_or(IpNotFound::Short)? >> 4 {
        4 | 6 => Ok(at),
        _ => Err(IpNotFound::Protocol),
    }
}

/// Reads 16 bits in network byte order.
#[inline]
pub(crate) fn read_u16(frame: &[u8], at: usize) -> Result<u16, IpNotFound> {
    read_bytes(frame, at).map(u16::from_be_bytes)
}

/// Reads `N` bytes at offset `at`.
#[inline]
pub(crate) fn read_bytes<const N: usize>(frame: &[u8], at: usize) -> Result<[u8; N], IpNotFound> {
    let found = frame.get(at..).and_then(|rest| rest.first_chunk());
    found.copied().ok_or(IpNotFound::Short)
}
