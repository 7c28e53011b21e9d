// SPDX-License-Identifier: MIT OR Apache-2.0
//! 802.11 data frames (IEEE 802.11-2020 clause 9), and the radiotap header that drivers put before them.

use super::ether_type::ip_after_llc;
use super::ip_start::{IpNotFound, read_bytes};

/// First byte of the frame control field: the mask of version and type, and the subtype's bits for "no data" and "QoS".
mod kind {
    pub(super) const MASK: u8 = 0x0f;
    pub(super) const DATA: u8 = 0x08;
    pub(super) const NULL: u8 = 0x40;
    pub(super) const QOS: u8 = 0x80;
}

/// Bits of the second byte of the frame control field.
mod flag {
    /// Frame to and from the distribution system (DS), with a fourth address.
    pub(super) const TO_AND_FROM_DS: u8 = 0x03;
    pub(super) const PROTECTED: u8 = 0x40;
    /// HT control field of four bytes, in QoS frames.
    pub(super) const HT_CONTROL: u8 = 0x80;
}

const HEADER: usize = 24;
const ADDRESS: usize = 6;
/// Fragment number in the low byte of the sequence control field.
const FRAGMENT_NUMBER: u8 = 0x0f;
/// A-MSDU bit in the low byte of the QoS control field.
const AMSDU_PRESENT: u8 = 0x80;

/// Returns the offset of the IP packet in an 802.11 frame at `at`. `padded` is true if the 802.11 header is padded to a
/// multiple of four bytes.
pub(super) fn ip_in_wifi(frame: &[u8], at: usize, padded: bool) -> Result<usize, IpNotFound> {
    let [kind, flags] = read_bytes(frame, at)?;
    if kind & kind::MASK != kind::DATA || kind & kind::NULL != 0 {
        return Err(IpNotFound::Protocol);
    }
    if flags & flag::PROTECTED != 0 {
        return Err(IpNotFound::EncryptedWifi);
    }
    let [sequence] = read_bytes(frame, at + 22)?;
    if sequence & FRAGMENT_NUMBER != 0 {
        return Err(IpNotFound::WifiFragment);
    }
    let header = header_len(frame, at, kind, flags)?;
    let padding = if padded { header.wrapping_neg() % 4 } else { 0 };
    ip_after_llc(frame, at + header + padding)
}

fn header_len(frame: &[u8], at: usize, kind: u8, flags: u8) -> Result<usize, IpNotFound> {
    let mut len = HEADER;
    if flags & flag::TO_AND_FROM_DS == flag::TO_AND_FROM_DS {
        len += ADDRESS;
    }
    if kind & kind::QOS != 0 {
        let [qos] = read_bytes(frame, at + len)?;
        if qos & AMSDU_PRESENT != 0 {
            return Err(IpNotFound::AggregatedWifi);
        }
        len += 2;
        if flags & flag::HT_CONTROL != 0 {
            len += 4;
        }
    }
    Ok(len)
}

/// Returns the offset of the IP packet after a radiotap header (radiotap.org). Only its length and its padding flag are
/// used.
pub(super) fn ip_after_radiotap(frame: &[u8]) -> Result<usize, IpNotFound> {
    let len = u16::from_le_bytes(read_bytes(frame, 2)?);
    let padded = radiotap_flags(frame)? & DATA_PAD != 0;
    ip_in_wifi(frame, len.into(), padded)
}

/// Bits of the words of the `it_present` bitmap.
mod present {
    pub(super) const TSFT: u32 = 1;
    pub(super) const FLAGS: u32 = 2;
    /// A further word follows.
    pub(super) const EXT: u32 = 1 << 31;
}

/// Bit of the radiotap flags: padding between the 802.11 header and the payload.
const DATA_PAD: u8 = 0x20;
/// Most words of the `it_present` bitmap.
const PRESENT_WORDS_MAX: usize = 32;

/// Returns the radiotap flags, which come after the bitmap and an optional timestamp; 0 if there are none.
fn radiotap_flags(frame: &[u8]) -> Result<u8, IpNotFound> {
    let word = |index: usize| read_bytes(frame, 4 + 4 * index).map(u32::from_le_bytes);
    let first = word(0)?;
    if first & present::FLAGS == 0 {
        return Ok(0);
    }
    let mut words = 1;
    while word(words - 1)? & present::EXT != 0 {
        words += 1;
        if words > PRESENT_WORDS_MAX {
            return Err(IpNotFound::Protocol);
        }
    }
    let fields = 4 + 4 * words;
    let flags_at = match first & present::TSFT {
        0 => fields,
        // The timestamp has eight bytes at a multiple of eight.
        _ => fields.next_multiple_of(8) + 8,
    };
    read_bytes(frame, flags_at).map(|[flags]| flags)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SNAP: [u8; 8] = [0xaa, 0xaa, 3, 0, 0, 0, 8, 0];

    /// Finds the IP packet in a frame with this frame control and these bytes between the first three addresses and
    /// LLC.
    fn ip_after_header(control: [u8; 2], more: &[u8]) -> Result<usize, IpNotFound> {
        let frame = [&control[..], &[0; 22], more, &SNAP, &[0x45]].concat();
        ip_in_wifi(&frame, 0, false).inspect(|at| assert_eq!(*at, frame.len() - 1))
    }

    #[test]
    fn skips_headers_of_every_length() {
        assert_eq!(ip_after_header([0x08, 1], &[]), Ok(32));
        assert_eq!(ip_after_header([0x08, 3], &[0; 6]), Ok(38));
        assert_eq!(ip_after_header([0x88, 2], &[0; 2]), Ok(34));
        assert_eq!(ip_after_header([0x88, 3], &[0; 8]), Ok(40));
        assert_eq!(ip_after_header([0x88, 0x82], &[0; 6]), Ok(38));
        assert_eq!(
            ip_after_header([0x08, 0x80], &[]),
            Ok(32),
            "order, without QoS"
        );
    }

    #[test]
    fn reports_why_a_frame_has_no_ip_packet() {
        assert_eq!(
            ip_after_header([0x80, 0], &[]),
            Err(IpNotFound::Protocol),
            "beacon"
        );
        assert_eq!(
            ip_after_header([0xc8, 1], &[0; 2]),
            Err(IpNotFound::Protocol),
            "null"
        );
        assert_eq!(
            ip_after_header([0x88, 0x41], &[0; 2]),
            Err(IpNotFound::EncryptedWifi)
        );
        assert_eq!(
            ip_after_header([0x88, 1], &[0x80, 0]),
            Err(IpNotFound::AggregatedWifi)
        );
        let mut later = [&[0x08, 1][..], &[0; 22], &SNAP, &[0x45]].concat();
        later[22] = 1;
        assert_eq!(ip_in_wifi(&later, 0, false), Err(IpNotFound::WifiFragment));
    }

    /// Finds the IP packet after a radiotap header with these words of the bitmap and these fields.
    fn ip_after_bitmap(present: &[u32], fields: &[u8], padded: bool) -> Result<usize, IpNotFound> {
        let words: Vec<_> = present.iter().flat_map(|word| word.to_le_bytes()).collect();
        let len = 4 + words.len() + fields.len();
        let header = [&[0, 0, len as u8, 0][..], &words, fields].concat();
        let padding = vec![0; if padded { 2 } else { 0 }];
        let wifi = [&[0x88, 1][..], &[0; 24], &padding, &SNAP, &[0x45]].concat();
        let frame = [header, wifi].concat();
        ip_after_radiotap(&frame).inspect(|at| assert_eq!(*at, frame.len() - 1))
    }

    #[test]
    fn reads_padding_from_radiotap_flags() {
        assert_eq!(ip_after_bitmap(&[0], &[], false), Ok(42));
        assert_eq!(ip_after_bitmap(&[2], &[0x10], false), Ok(43));
        assert_eq!(ip_after_bitmap(&[2], &[0x20], true), Ok(45));
        let after_time = [&[0xff; 8][..], &[0x20]].concat();
        assert_eq!(ip_after_bitmap(&[3], &after_time, true), Ok(53));
        let more = [&[0; 4][..], &after_time].concat();
        assert_eq!(ip_after_bitmap(&[3 | 1 << 31, 0], &more, true), Ok(61));
        let endless = [3 | 1 << 31; 40];
        assert_eq!(
            ip_after_bitmap(&endless, &[], false),
            Err(IpNotFound::Protocol)
        );
    }

    #[test]
    fn reports_frames_that_end_before_the_ip_packet() {
        let wifi = [&[0x88, 0x83][..], &[0; 34], &SNAP].concat();
        let frame = [&[0, 0, 9, 0, 2, 0, 0, 0, 0][..], &wifi].concat();
        for len in 0..=frame.len() {
            assert_eq!(
                ip_after_radiotap(&frame[..len]),
                Err(IpNotFound::Short),
                "{len}"
            );
        }
    }
}
