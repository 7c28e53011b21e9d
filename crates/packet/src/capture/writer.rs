// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writer of pcapng files (draft-ietf-opsawg-pcapng). Each function appends a whole block to a buffer.
//!
//! A file is a [`section`], its [`interface`]s in the order of their numbers, [`packet`]s, and [`statistics`] anywhere
//! after their interface. A buffer that ends with a whole block may be written to the file at any time: the file is
//! valid after it. Numbers are little-endian on every machine.

use super::{Frame, LinkType, Verdict};

/// Program and host that write the file. Empty fields are not written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SectionInfo<'a> {
    /// Processor, as the kernel names it.
    pub hardware: &'a str,
    /// Operating system with its release.
    pub system: &'a str,
    /// Program with its version.
    pub application: &'a str,
}

/// Interface at which packets are captured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interface<'a> {
    /// Name; not written if empty.
    pub name: &'a str,
    /// Link-layer header type of its frames.
    pub link_type: LinkType,
    /// Most bytes that are captured of a packet.
    pub snaplen: u32,
    /// Capture filter as text; empty if every packet is captured.
    pub filter: &'a str,
}

/// Direction of a packet at its interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PacketDirection {
    /// The direction is not known.
    Unknown,
    /// Received by this host.
    Inbound,
    /// Sent by this host.
    Outbound,
}

/// Packet counts of an interface since the capture began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Statistics {
    /// Number of the interface, from 0.
    pub interface: u32,
    /// Beginning of the capture, in nanoseconds since 1970, UTC.
    pub from_ns: u64,
    /// Time of the counts, in nanoseconds since 1970, UTC.
    pub until_ns: u64,
    /// Packets that passed the filter, including dropped ones.
    pub received: u64,
    /// Packets that passed the filter and were dropped because buffers were full.
    pub dropped: u64,
}

/// Private enterprise number of longhaul's custom option: the number reserved for documentation (RFC 5612). The length
/// and the version of the option tell it from other uses of that number.
pub const ENTERPRISE: u32 = 32473;
/// Version of longhaul's custom option, in its first byte after the enterprise number.
pub const OPTION_VERSION: u8 = 1;
/// Code in place of a [`Verdict`] that is not known.
pub const VERDICT_UNKNOWN: u8 = 0xff;
/// Length of longhaul's custom option after the enterprise number, in bytes: version, verdict, segment size (u16), queue
/// (u32).
pub const OPTION_LEN: usize = 8;
/// Code of a custom option with binary data that programs must not copy into changed files.
pub const CUSTOM_BINARY_NOT_COPIED: u16 = 2989;

/// Length of the block that [`statistics`] appends, in bytes.
pub const STATISTICS_LEN: usize = 76;

const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const BYTE_ORDER_MAGIC: u32 = 0x1a2b_3c4d;
const INTERFACE_DESCRIPTION: u32 = 1;
const INTERFACE_STATISTICS: u32 = 5;
const ENHANCED_PACKET: u32 = 6;

/// Option codes (§3.5, §4.1 to §4.6 of the draft).
mod option {
    pub(super) const END: u16 = 0;
    pub(super) const COMMENT: u16 = 1;
    pub(super) const SHB_HARDWARE: u16 = 2;
    pub(super) const SHB_OS: u16 = 3;
    pub(super) const SHB_APPLICATION: u16 = 4;
    pub(super) const IF_NAME: u16 = 2;
    pub(super) const IF_TSRESOL: u16 = 9;
    pub(super) const IF_FILTER: u16 = 11;
    pub(super) const EPB_FLAGS: u16 = 2;
    pub(super) const ISB_START: u16 = 2;
    pub(super) const ISB_END: u16 = 3;
    pub(super) const ISB_RECEIVED: u16 = 4;
    pub(super) const ISB_DROPPED: u16 = 5;
}

/// Unit of timestamps, 10⁻⁹ s (`if_tsresol`).
const RESOLUTION: u8 = 9;
/// Kind of filter in the first byte of `if_filter`: 0 is text.
const FILTER_AS_TEXT: u8 = 0;

/// Appends a section header block, with which every file begins. The length of the section is not specified.
pub fn section(out: &mut Vec<u8>, origin: &SectionInfo<'_>) {
    block(out, SECTION_HEADER, |out| {
        put_u32(out, BYTE_ORDER_MAGIC);
        put_u16(out, 1);
        put_u16(out, 0);
        put_u64(out, u64::MAX);
        put_text(out, option::SHB_HARDWARE, origin.hardware);
        put_text(out, option::SHB_OS, origin.system);
        put_text(out, option::SHB_APPLICATION, origin.application);
        end_options(out);
    });
}

/// Appends an interface description block. The interface's number is the number of interfaces before it in the section.
pub fn interface(out: &mut Vec<u8>, interface: &Interface<'_>) {
    block(out, INTERFACE_DESCRIPTION, |out| {
        put_u16(out, interface.link_type.number());
        put_u16(out, 0);
        put_u32(out, interface.snaplen);
        put_text(out, option::IF_NAME, interface.name);
        put_option(out, option::IF_TSRESOL, &[RESOLUTION]);
        put_filter(out, interface.filter);
        end_options(out);
    });
}

/// Appends an enhanced packet block. pcapng has no fields for segment size and verdict, so they go into longhaul's custom
/// option (docs/tap-format.md), which other readers skip.
pub fn packet(out: &mut Vec<u8>, frame: &Frame<'_>, direction: PacketDirection) {
    block(out, ENHANCED_PACKET, |out| {
        put_u32(out, frame.interface);
        put_timestamp(out, frame.timestamp_ns);
        put_u32(out, frame.bytes.len() as u32);
        put_u32(out, frame.wire_len);
        out.extend_from_slice(frame.bytes);
        pad(out, frame.bytes.len());
        let before = out.len();
        put_direction(out, direction);
        put_metadata(out, frame);
        if out.len() > before {
            end_options(out);
        }
    });
}

/// Appends an interface statistics block. Drops go into `isb_ifdrop`, as dumpcap writes them, because Wireshark shows
/// that field.
pub fn statistics(out: &mut Vec<u8>, statistics: &Statistics) {
    annotated_statistics(out, statistics, "");
}

/// Appends an interface statistics block with a comment, which people and programs may read; not written if empty.
pub fn annotated_statistics(out: &mut Vec<u8>, statistics: &Statistics, comment: &str) {
    block(out, INTERFACE_STATISTICS, |out| {
        put_u32(out, statistics.interface);
        put_timestamp(out, statistics.until_ns);
        put_text(out, option::COMMENT, comment);
        put_option(out, option::ISB_START, &timestamp(statistics.from_ns));
        put_option(out, option::ISB_END, &timestamp(statistics.until_ns));
        put_option(
            out,
            option::ISB_RECEIVED,
            &statistics.received.to_le_bytes(),
        );
        put_option(out, option::ISB_DROPPED, &statistics.dropped.to_le_bytes());
        end_options(out);
    });
}

/// Appends a block: type, total length, body, total length again.
fn block(out: &mut Vec<u8>, kind: u32, body: impl FnOnce(&mut Vec<u8>)) {
    let begin = out.len();
    put_u32(out, kind);
    put_u32(out, 0);
    body(out);
    let length = (out.len() - begin + 4) as u32;
    out[begin + 4..begin + 8].copy_from_slice(&length.to_le_bytes());
    put_u32(out, length);
}

fn put_metadata(out: &mut Vec<u8>, frame: &Frame<'_>) {
    if frame.segment_size == 0 && frame.emulator_record.is_none() {
        return;
    }
    let verdict = frame
        .emulator_record
        .map_or(VERDICT_UNKNOWN, |record| encode_verdict(record.verdict));
    let queue = frame.emulator_record.map_or(0, |record| record.queue_bytes);
    put_u16(out, CUSTOM_BINARY_NOT_COPIED);
    put_u16(out, 4 + OPTION_LEN as u16);
    put_u32(out, ENTERPRISE);
    out.extend_from_slice(&[OPTION_VERSION, verdict]);
    put_u16(out, frame.segment_size);
    put_u32(out, queue);
}

fn put_direction(out: &mut Vec<u8>, direction: PacketDirection) {
    let flags: u32 = match direction {
        PacketDirection::Unknown => return,
        PacketDirection::Inbound => 1,
        PacketDirection::Outbound => 2,
    };
    put_option(out, option::EPB_FLAGS, &flags.to_le_bytes());
}

/// Appends a text option, unless the text is empty. Text beyond the greatest length of an option is truncated.
fn put_text(out: &mut Vec<u8>, option: u16, text: &str) {
    if !text.is_empty() {
        put_option(
            out,
            option,
            truncate(text, usize::from(u16::MAX)).as_bytes(),
        );
    }
}

fn put_filter(out: &mut Vec<u8>, filter: &str) {
    if !filter.is_empty() {
        let text = truncate(filter, usize::from(u16::MAX) - 1);
        put_option(
            out,
            option::IF_FILTER,
            &[&[FILTER_AS_TEXT], text.as_bytes()].concat(),
        );
    }
}

/// Returns the longest prefix of whole characters in at most `bytes_max` bytes.
fn truncate(text: &str, bytes_max: usize) -> &str {
    let ends = text.char_indices().map(|(at, c)| at + c.len_utf8());
    let end = ends.take_while(|end| *end <= bytes_max).last();
    &text[..end.unwrap_or(0)]
}

fn put_option(out: &mut Vec<u8>, option: u16, value: &[u8]) {
    put_u16(out, option);
    put_u16(out, value.len() as u16);
    out.extend_from_slice(value);
    pad(out, value.len());
}

fn end_options(out: &mut Vec<u8>) {
    put_option(out, option::END, &[]);
}

/// Pads the last `length` bytes with zeros to a multiple of four.
fn pad(out: &mut Vec<u8>, length: usize) {
    out.extend_from_slice(&[0; 3][..length.wrapping_neg() % 4]);
}

fn put_timestamp(out: &mut Vec<u8>, ns: u64) {
    out.extend_from_slice(&timestamp(ns));
}

/// Encodes a timestamp. The upper half comes first in both byte orders.
fn timestamp(ns: u64) -> [u8; 8] {
    ns.rotate_right(32).to_le_bytes()
}

fn put_u16(out: &mut Vec<u8>, value: u16) {
    out.extend_from_slice(&value.to_le_bytes());
}

fn put_u32(out: &mut Vec<u8>, value: u32) {
    out.extend_from_slice(&value.to_le_bytes());
}

fn put_u64(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(&value.to_le_bytes());
}

const fn encode_verdict(verdict: Verdict) -> u8 {
    match verdict {
        Verdict::Passed => 0,
        Verdict::Lost => 1,
        Verdict::Dropped => 2,
        Verdict::AckFiltered => 3,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capture::EmulatorRecord;

    fn hex(bytes: &[u8]) -> String {
        let words = bytes.chunks(4).map(|word| {
            let digits = word.iter().map(|byte| format!("{byte:02x}"));
            digits.collect::<String>()
        });
        words.collect::<Vec<_>>().join(" ")
    }

    fn frame(bytes: &[u8]) -> Frame<'_> {
        Frame {
            timestamp_ns: 0x0102_0304_0506_0708,
            interface: 1,
            link_type: LinkType::Ethernet,
            wire_len: 1514,
            bytes,
            segment_size: 0,
            emulator_record: None,
        }
    }

    fn hex_of(write: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        write(&mut out);
        hex(&out)
    }

    #[test]
    fn writes_section_header_with_origin() {
        let origin = SectionInfo {
            hardware: "",
            system: "Linux",
            application: "lh",
        };
        assert_eq!(
            hex_of(|out| section(out, &origin)),
            "0a0d0d0a 34000000 4d3c2b1a 01000000 ffffffff ffffffff \
             03000500 4c696e75 78000000 04000200 6c680000 00000000 34000000"
        );
    }

    #[test]
    fn writes_interface_description_with_nanoseconds() {
        let eth0 = Interface {
            name: "eth0",
            link_type: LinkType::Ethernet,
            snaplen: 128,
            filter: "tcp",
        };
        assert_eq!(
            hex_of(|out| interface(out, &eth0)),
            "01000000 30000000 01000000 80000000 02000400 65746830 \
             09000100 09000000 0b000400 00746370 00000000 30000000"
        );
    }

    #[test]
    fn writes_packet_without_options() {
        assert_eq!(
            hex_of(|out| packet(out, &frame(&[1, 2, 3, 4, 5]), PacketDirection::Unknown)),
            "06000000 28000000 01000000 04030201 08070605 05000000 ea050000 \
             01020304 05000000 28000000"
        );
    }

    #[test]
    fn writes_segment_size_and_verdict_as_custom_option() {
        let mut frame = frame(&[]);
        frame.segment_size = 1448;
        let written =
            |frame: &Frame<'_>| hex_of(|out| packet(out, frame, PacketDirection::Outbound));
        let before = "06000000 3c000000 01000000 04030201 08070605 00000000 ea050000 \
                      02000400 02000000 ad0b0c00 d97e0000 ";
        let after = " 00000000 3c000000";
        assert_eq!(written(&frame), format!("{before}01ffa805 00000000{after}"));
        frame.emulator_record = Some(EmulatorRecord {
            queue_bytes: 70_000,
            verdict: Verdict::Dropped,
        });
        assert_eq!(written(&frame), format!("{before}0102a805 70110100{after}"));
    }

    #[test]
    fn writes_statistics_as_64_bit_counts() {
        let counts = Statistics {
            interface: 1,
            from_ns: 1 << 32,
            until_ns: 2 << 32,
            received: 3 << 32,
            dropped: 4,
        };
        assert_eq!(
            hex_of(|out| statistics(out, &counts)),
            "05000000 4c000000 01000000 02000000 00000000 02000800 01000000 00000000 \
             03000800 02000000 00000000 04000800 00000000 03000000 \
             05000800 04000000 00000000 00000000 4c000000"
        );
    }

    #[test]
    fn statistics_have_the_length_of_the_constant() {
        let mut out = Vec::new();
        let no_packets = Statistics {
            interface: 0,
            from_ns: 0,
            until_ns: 0,
            received: 0,
            dropped: 0,
        };
        statistics(&mut out, &no_packets);
        assert_eq!(out.len(), STATISTICS_LEN);
    }

    #[test]
    fn writes_comment_before_counts() {
        let counts = Statistics {
            interface: 0,
            from_ns: 0,
            until_ns: 0,
            received: 0,
            dropped: 0,
        };
        let plain = hex_of(|out| statistics(out, &counts));
        let annotated = hex_of(|out| annotated_statistics(out, &counts, "late"));
        let expected = plain
            .replacen("02000800", "01000400 6c617465 02000800", 1)
            .replace("4c000000", "54000000");
        assert_eq!(annotated, expected);
    }

    #[test]
    fn truncates_text_at_a_character_boundary() {
        assert_eq!(truncate("aéb", 2), "a");
        assert_eq!(truncate("aéb", 3), "aé");
        let long = "é".repeat(40_000);
        let mut out = Vec::new();
        put_filter(&mut out, &long);
        assert_eq!(out[2..4], 65_535_u16.to_le_bytes());
    }
}
