// SPDX-License-Identifier: MIT OR Apache-2.0
//! 802.11 data frames (IEEE 802.11-2020 clause 9), and the headers that drivers put before them.

use super::ether_type::behind_llc;
use super::ip_start::{NoIp, bytes};

/// First byte of frame control: version and type, and the subtype's bits for frames without data and with QoS.
mod kind {
    pub(super) const MASK: u8 = 0x0f;
    pub(super) const DATA: u8 = 0x08;
    pub(super) const NULL: u8 = 0x40;
    pub(super) const QOS: u8 = 0x80;
}

/// Second byte of frame control.
mod flag {
    /// To and from the distribution system: a fourth address.
    pub(super) const BETWEEN_STATIONS: u8 = 0x03;
    pub(super) const PROTECTED: u8 = 0x40;
    /// With QoS: four bytes of HT control.
    pub(super) const HT_CONTROL: u8 = 0x80;
}

const HEADER: usize = 24;
const ADDRESS: usize = 6;
/// Of sequence control, low byte.
const FRAGMENT_NUMBER: u8 = 0x0f;
/// Of QoS control, low byte.
const AGGREGATED: u8 = 0x80;

/// The IP packet in an 802.11 frame; `padded` is whether its header is filled up to a multiple of four.
pub(super) fn wifi(frame: &[u8], at: usize, padded: bool) -> Result<usize, NoIp> {
    let [kind, flags] = bytes(frame, at)?;
    if kind & kind::MASK != kind::DATA || kind & kind::NULL != 0 {
        return Err(NoIp::Protocol);
    }
    if flags & flag::PROTECTED != 0 {
        return Err(NoIp::EncryptedWifi);
    }
    let [sequence] = bytes(frame, at + 22)?;
    if sequence & FRAGMENT_NUMBER != 0 {
        return Err(NoIp::WifiFragment);
    }
    let header = header_len(frame, at, kind, flags)?;
    let padding = if padded { header.wrapping_neg() % 4 } else { 0 };
    behind_llc(frame, at + header + padding)
}

fn header_len(frame: &[u8], at: usize, kind: u8, flags: u8) -> Result<usize, NoIp> {
    let mut len = HEADER;
    if flags & flag::BETWEEN_STATIONS == flag::BETWEEN_STATIONS {
        len += ADDRESS;
    }
    if kind & kind::QOS != 0 {
        let [qos] = bytes(frame, at + len)?;
        if qos & AGGREGATED != 0 {
            return Err(NoIp::AggregatedWifi);
        }
        len += 2;
        if flags & flag::HT_CONTROL != 0 {
            len += 4;
        }
    }
    Ok(len)
}

/// Radiotap (radiotap.org): its length, and whether the 802.11 header behind it is padded.
pub(super) fn radiotap(frame: &[u8]) -> Result<usize, NoIp> {
    let len = u16::from_le_bytes(bytes(frame, 2)?);
    let padded = radiotap_flags(frame)? & PADDED != 0;
    wifi(frame, len.into(), padded)
}

/// Of the words that say which fields are there.
mod present {
    pub(super) const TIME: u32 = 1;
    pub(super) const FLAGS: u32 = 2;
    /// Another word follows.
    pub(super) const MORE: u32 = 1 << 31;
}

/// Of radiotap's flags.
const PADDED: u8 = 0x20;
/// Most words that say which fields are there.
const WORDS_MAX: usize = 32;

/// Its flags, which stand behind those words and a time; 0 where there are none.
fn radiotap_flags(frame: &[u8]) -> Result<u8, NoIp> {
    let word = |index: usize| bytes(frame, 4 + 4 * index).map(u32::from_le_bytes);
    let first = word(0)?;
    if first & present::FLAGS == 0 {
        return Ok(0);
    }
    let mut words = 1;
    while word(words - 1)? & present::MORE != 0 {
        words += 1;
        if words > WORDS_MAX {
            return Err(NoIp::Protocol);
        }
    }
    let fields = 4 + 4 * words;
    let flags_at = match first & present::TIME {
        0 => fields,
        // Eight bytes, at a multiple of eight.
        _ => fields.next_multiple_of(8) + 8,
    };
    bytes(frame, flags_at).map(|[flags]| flags)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SNAP: [u8; 8] = [0xaa, 0xaa, 3, 0, 0, 0, 8, 0];

    /// An 802.11 header with so many bytes behind it up to LLC, and what is found.
    fn found(control: [u8; 2], more: &[u8]) -> Result<usize, NoIp> {
        let frame = [&control[..], &[0; 22], more, &SNAP, &[0x45]].concat();
        wifi(&frame, 0, false).inspect(|at| assert_eq!(*at, frame.len() - 1))
    }

    #[test]
    fn each_length_of_the_header() {
        assert_eq!(found([0x08, 1], &[]), Ok(32));
        assert_eq!(found([0x08, 3], &[0; 6]), Ok(38));
        assert_eq!(found([0x88, 2], &[0; 2]), Ok(34));
        assert_eq!(found([0x88, 3], &[0; 8]), Ok(40));
        assert_eq!(found([0x88, 0x82], &[0; 6]), Ok(38));
        assert_eq!(found([0x08, 0x80], &[]), Ok(32), "order, without QoS");
    }

    #[test]
    fn what_has_no_packet_says_why() {
        assert_eq!(found([0x80, 0], &[]), Err(NoIp::Protocol), "beacon");
        assert_eq!(found([0xc8, 1], &[0; 2]), Err(NoIp::Protocol), "null");
        assert_eq!(found([0x88, 0x41], &[0; 2]), Err(NoIp::EncryptedWifi));
        assert_eq!(found([0x88, 1], &[0x80, 0]), Err(NoIp::AggregatedWifi));
        let mut later = [&[0x08, 1][..], &[0; 22], &SNAP, &[0x45]].concat();
        later[22] = 1;
        assert_eq!(wifi(&later, 0, false), Err(NoIp::WifiFragment));
    }

    /// The last word of `present` is the only one without the bit for more.
    fn tapped(present: &[u32], fields: &[u8], padded: bool) -> Result<usize, NoIp> {
        let words: Vec<_> = present.iter().flat_map(|word| word.to_le_bytes()).collect();
        let len = 4 + words.len() + fields.len();
        let header = [&[0, 0, len as u8, 0][..], &words, fields].concat();
        let padding = vec![0; if padded { 2 } else { 0 }];
        let wifi = [&[0x88, 1][..], &[0; 24], &padding, &SNAP, &[0x45]].concat();
        let frame = [header, wifi].concat();
        radiotap(&frame).inspect(|at| assert_eq!(*at, frame.len() - 1))
    }

    #[test]
    fn radiotap_tells_of_padding() {
        assert_eq!(tapped(&[0], &[], false), Ok(42));
        assert_eq!(tapped(&[2], &[0x10], false), Ok(43));
        assert_eq!(tapped(&[2], &[0x20], true), Ok(45));
        let after_time = [&[0xff; 8][..], &[0x20]].concat();
        assert_eq!(tapped(&[3], &after_time, true), Ok(53));
        let more = [&[0; 4][..], &after_time].concat();
        assert_eq!(tapped(&[3 | 1 << 31, 0], &more, true), Ok(61));
        let endless = [3 | 1 << 31; 40];
        assert_eq!(tapped(&endless, &[], false), Err(NoIp::Protocol));
    }

    #[test]
    fn frames_may_end_anywhere() {
        let wifi = [&[0x88, 0x83][..], &[0; 34], &SNAP].concat();
        let frame = [&[0, 0, 9, 0, 2, 0, 0, 0, 0][..], &wifi].concat();
        for len in 0..=frame.len() {
            assert_eq!(radiotap(&frame[..len]), Err(NoIp::Short), "{len}");
        }
    }
}
