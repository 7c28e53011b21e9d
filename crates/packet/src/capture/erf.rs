// SPDX-License-Identifier: MIT OR Apache-2.0
//! Records of Endace's ERF in other capture files (LINKTYPE_ERF): a header of 16 bytes, extension headers of eight
//! bytes, then a frame of the type that the record names.

use super::ip_start::{IpNotFound, read_bytes};
use super::wrapped::InnerFrame;

const HEADER: usize = 16;
const EXTENSION_HEADER: usize = 8;

/// Offset of the type in the header.
const TYPE: usize = 8;

/// Highest bit of a type. Another header follows.
const MORE: u8 = 0x80;

/// Most extension headers that are skipped.
const EXTENSIONS_MAX: usize = 8;

/// Reads the headers of an ERF record.
pub(super) fn after_erf(frame: &[u8]) -> Result<InnerFrame, IpNotFound> {
    let [record_type] = read_bytes(frame, TYPE)?;
    let (link_type, skipped) = payload(record_type & !MORE)?;
    let at = after_extensions(frame, record_type)? + skipped;
    Ok(InnerFrame { at, link_type })
}

/// Returns the offset after all headers. The first byte of each extension header is its type.
fn after_extensions(frame: &[u8], record_type: u8) -> Result<usize, IpNotFound> {
    let (mut at, mut this) = (HEADER, record_type);
    for _ in 0..=EXTENSIONS_MAX {
        if this & MORE == 0 {
            return Ok(at);
        }
        [this] = read_bytes(frame, at)?;
        at += EXTENSION_HEADER;
    }
    Err(IpNotFound::Protocol)
}

/// Returns the link type of a record's frame, and the length of the header before it: four bytes in HDLC records of
/// several channels, two before Ethernet. Records of ATM, InfiniBand and counters have no IP packet that is read.
fn payload(record_type: u8) -> Result<(u16, usize), IpNotFound> {
    const ETHERNET: u16 = 1;
    const HDLC: u16 = 50;
    const RAW_IP: u16 = 101;
    match record_type {
        1 | 10 | 15 | 19 => Ok((HDLC, 0)),
        5 | 17 => Ok((HDLC, 4)),
        2 | 11 | 16 | 20 => Ok((ETHERNET, 2)),
        22 | 23 => Ok((RAW_IP, 0)),
        _ => Err(IpNotFound::Protocol),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads a record of this type with these extension headers.
    fn frame_after(record_type: u8, extensions: &[u8]) -> Result<(usize, u16), IpNotFound> {
        let mut record = vec![0; HEADER];
        record[TYPE] = record_type;
        let inner = after_erf(&[&record, extensions].concat())?;
        Ok((inner.at, inner.link_type))
    }

    #[test]
    fn finds_frames_in_each_type_of_record() {
        for record_type in [2, 11, 16, 20] {
            assert_eq!(frame_after(record_type, &[]), Ok((18, 1)), "Ethernet");
        }
        for record_type in [1, 10, 15, 19] {
            assert_eq!(frame_after(record_type, &[]), Ok((16, 50)), "HDLC");
        }
        assert_eq!(frame_after(5, &[]), Ok((20, 50)), "channels");
        assert_eq!(frame_after(17, &[]), Ok((20, 50)), "channels");
        assert_eq!(frame_after(22, &[]), Ok((16, 101)), "IPv4");
        assert_eq!(frame_after(23, &[]), Ok((16, 101)), "IPv6");
        assert_eq!(frame_after(3, &[]), Err(IpNotFound::Protocol), "ATM");
    }

    #[test]
    fn skips_extension_headers() {
        let extension = |kind: u8| [kind, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(frame_after(22 | MORE, &extension(3)), Ok((24, 101)));
        let two = [extension(3 | MORE), extension(4)].concat();
        assert_eq!(frame_after(22 | MORE, &two), Ok((32, 101)));
        let endless = extension(3 | MORE).repeat(99);
        assert_eq!(frame_after(22 | MORE, &endless), Err(IpNotFound::Protocol));
    }

    #[test]
    fn reports_records_that_end_inside_their_headers() {
        let mut record = [0; HEADER + EXTENSION_HEADER];
        record[TYPE] = 2 | MORE;
        for len in 0..=HEADER {
            assert_eq!(after_erf(&record[..len]), Err(IpNotFound::Short), "{len}");
        }
    }
}
