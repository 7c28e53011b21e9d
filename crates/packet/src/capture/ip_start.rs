// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether an IP packet begins at a place, and why there is none.

/// Why no IP packet was found in a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoIp {
    /// The link type is [`LinkType::Other`](super::LinkType::Other).
    LinkType,
    /// The frame carries something else.
    Protocol,
    /// The capture ends before it.
    Short,
    /// An 802.11 data frame is encrypted (WEP, WPA).
    EncryptedWifi,
    /// An 802.11 data frame has several packets in it (A-MSDU).
    AggregatedWifi,
    /// The second or a later fragment of an 802.11 frame, which has no IP header.
    WifiFragment,
    /// PPP carries something compressed or encrypted.
    CompressedPpp,
}

/// `at`, if an IP packet begins there.
#[inline]
pub(crate) fn is_ip(frame: &[u8], at: usize) -> Result<usize, NoIp> {
    match frame.get(at).ok_or(NoIp::Short)? >> 4 {
        4 | 6 => Ok(at),
        _ => Err(NoIp::Protocol),
    }
}

/// Two bytes in network byte order.
#[inline]
pub(crate) fn word(frame: &[u8], at: usize) -> Result<u16, NoIp> {
    bytes(frame, at).map(u16::from_be_bytes)
}

/// So many bytes.
#[inline]
pub(crate) fn bytes<const N: usize>(frame: &[u8], at: usize) -> Result<[u8; N], NoIp> {
    let bytes = frame.get(at..).and_then(|rest| rest.first_chunk());
    bytes.copied().ok_or(NoIp::Short)
}
