// SPDX-License-Identifier: MIT OR Apache-2.0
//! TCP header and options, as far as captured.

use super::ip_packet::Undecoded;
use crate::segment::{NO_SCALE, SACK_BLOCKS_MAX};

/// A TCP header, with lengths in bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tcp<'a> {
    pub(super) fixed: &'a [u8; 20],
    /// Options, as far as captured.
    pub(super) options: &'a [u8],
    /// Whether part of the options was not captured.
    pub(super) options_cut: bool,
    /// Length of the packet from the IP header on.
    pub(super) total: u32,
    /// Length of the IP and TCP headers.
    pub(super) headers: u32,
}

impl<'a> Tcp<'a> {
    #[inline(always)]
    pub(super) fn parse(packet: &'a [u8], at: usize, total: u32) -> Result<Self, Undecoded> {
        let (fixed, rest) = packet
            .get(at..)
            .and_then(|tcp| tcp.split_first_chunk::<20>())
            .ok_or(Undecoded::Short)?;
        let header_len = usize::from(fixed[12] >> 4) * 4;
        let headers = (at + header_len) as u32;
        if header_len < 20 || total < headers {
            return Err(Undecoded::Lengths);
        }
        let options = &rest[..rest.len().min(header_len - 20)];
        Ok(Self {
            fixed,
            options,
            options_cut: options.len() < header_len - 20,
            total,
            headers,
        })
    }

    /// Returns the AE flag, the lowest bit beside the data offset (RFC 9768 §3.1).
    #[inline]
    pub(super) fn ae(&self) -> bool {
        self.fixed[12] & 1 != 0
    }

    /// Returns the source and the destination port.
    #[inline]
    pub(super) fn ports(&self) -> (u16, u16) {
        (be16(self.fixed, 0), be16(self.fixed, 2))
    }
}

/// Option kinds (RFC 9293 §3.2, RFC 7323, RFC 2018, RFC 9768).
mod option {
    pub(super) const END: u8 = 0;
    pub(super) const NOP: u8 = 1;
    pub(super) const MSS: u8 = 2;
    pub(super) const WINDOW_SCALE: u8 = 3;
    pub(super) const SACK_PERMITTED: u8 = 4;
    pub(super) const SACK: u8 = 5;
    pub(super) const TIMESTAMPS: u8 = 8;
    pub(super) const ACCECN_0: u8 = 172;
    pub(super) const ACCECN_1: u8 = 174;
}

/// TCP options, in the form of [`Segment`](crate::segment::Segment).
pub(super) struct Options {
    pub(super) timestamps: Option<(u32, u32)>,
    pub(super) sack_blocks: u8,
    pub(super) sack: [(u32, u32); SACK_BLOCKS_MAX],
    pub(super) window_scale: u8,
    pub(super) mss: u16,
    pub(super) sack_permitted: bool,
    pub(super) reported_ce_bytes: Option<u32>,
}

impl Options {
    const NONE: Self = Self {
        timestamps: None,
        sack_blocks: 0,
        sack: [(0, 0); SACK_BLOCKS_MAX],
        window_scale: NO_SCALE,
        mss: 0,
        sack_permitted: false,
        reported_ce_bytes: None,
    };

    /// Parses the options. Nearly every segment has timestamps and nothing else, after two bytes of padding (RFC 7323
    /// appendix A).
    #[inline(always)]
    pub(super) fn parse(bytes: &[u8], cut: bool) -> Self {
        match bytes {
            [] => Self::NONE,
            [1, 1, 8, 10, a, b, c, d, e, f, g, h] => Self {
                timestamps: Some((
                    u32::from_be_bytes([*a, *b, *c, *d]),
                    u32::from_be_bytes([*e, *f, *g, *h]),
                )),
                ..Self::NONE
            },
            _ => Self::parse_each(bytes, cut),
        }
    }

    /// Parses up to the end mark, or the first option that is damaged or `cut` off; of a cut SACK option, the whole
    /// blocks before that count.
    #[inline(never)]
    fn parse_each(bytes: &[u8], cut: bool) -> Self {
        let (mut options, mut rest) = (Self::NONE, bytes);
        while let [kind, tail @ ..] = rest {
            match *kind {
                option::END => break,
                option::NOP => rest = tail,
                kind => {
                    let len = tail.first().copied().map_or(0, usize::from);
                    let Some((option, after)) = rest.split_at_checked(len).filter(|_| len >= 2)
                    else {
                        if let (option::SACK, true, Some(blocks)) = (kind, cut, tail.get(1..)) {
                            options.apply_sack(blocks);
                        }
                        break;
                    };
                    options.store_option(kind, &option[2..]);
                    rest = after;
                }
            }
        }
        options
    }

    fn store_option(&mut self, kind: u8, body: &[u8]) {
        match (kind, body) {
            (option::MSS, [high, low]) => self.mss = u16::from_be_bytes([*high, *low]),
            (option::WINDOW_SCALE, [shift]) => self.window_scale = (*shift).min(NO_SCALE - 1),
            (option::SACK_PERMITTED, []) => self.sack_permitted = true,
            (option::SACK, blocks) => self.apply_sack(blocks),
            (option::TIMESTAMPS, stamps) => {
                let stamps = <&[u8; 8]>::try_from(stamps).ok();
                let numbers = stamps.map(|stamps| (be32(stamps, 0), be32(stamps, 4)));
                self.timestamps = numbers.or(self.timestamps);
            }
            // Fields of 24 bits, CE the second in both orders; the last ones may be missing.
            (option::ACCECN_0 | option::ACCECN_1, [_, _, _, high, middle, low, ..]) => {
                self.reported_ce_bytes = Some(u32::from_be_bytes([0, *high, *middle, *low]));
            }
            _ => {}
        }
    }

    fn apply_sack(&mut self, blocks: &[u8]) {
        let (blocks, _) = blocks.as_chunks::<8>();
        let blocks = &blocks[..blocks.len().min(SACK_BLOCKS_MAX)];
        self.sack_blocks = blocks.len() as u8;
        for (into, block) in self.sack.iter_mut().zip(blocks) {
            *into = (be32(block, 0), be32(block, 4));
        }
    }
}

#[inline]
pub(super) fn be16<const N: usize>(bytes: &[u8; N], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

#[inline]
pub(super) fn be32<const N: usize>(bytes: &[u8; N], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}
