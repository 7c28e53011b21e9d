// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is inside of pcapng blocks: packets, interfaces and what they counted (§4.2 to §4.6, §A).

use super::options::{options, own};
use super::{Head, Section, kind};
use crate::capture::interface::{Clock, Interface, NAME_MAX, Statistics};
use crate::capture::order::{Order, halves};
use crate::capture::{Fault, Frame, LinkType, Record};
use std::sync::Arc;

/// Options of interface description (§4.2) and interface statistics blocks (§4.6).
mod option {
    pub(super) const IF_NAME: u16 = 2;
    pub(super) const IF_TSRESOL: u16 = 9;
    pub(super) const IF_TSOFFSET: u16 = 14;
    pub(super) const ISB_RECEIVED: u16 = 4;
    pub(super) const ISB_IF_DROPPED: u16 = 5;
    pub(super) const ISB_OS_DROPPED: u16 = 7;
}

/// The first of whole blocks, as far as it has something to say, with its length.
#[inline(always)]
pub(crate) fn record<'a>(
    section: &Section,
    interfaces: &[Interface],
    bytes: &'a [u8],
) -> Option<(Result<Option<Record<'a>>, Fault>, usize)> {
    let Head { kind, len } = section.head(bytes, 0)?;
    let body = bytes.get(8..len.checked_sub(4)?)?;
    let blocks = Blocks {
        order: section.order,
        interfaces_before: section.interfaces_before,
        interfaces: interfaces.get(section.interfaces_before..)?,
    };
    let record = match kind {
        kind::ENHANCED_PACKET | kind::PACKET => blocks.packet(kind, body).map(Some),
        kind::SIMPLE_PACKET => blocks.simple_packet(body).map(Some),
        kind::STATISTICS => blocks.statistics(body).map(Some),
        _ => Ok(None),
    };
    Some((record, len))
}

/// A section with its interfaces, so far.
struct Blocks<'i> {
    order: Order,
    interfaces_before: usize,
    interfaces: &'i [Interface],
}

impl Blocks<'_> {
    /// An enhanced packet block (§4.3), or the obsolete packet block (§A), which has 16 bits of
    /// interface, then 16 of a count of drops.
    #[inline(always)]
    fn packet<'a>(&self, kind: u32, body: &'a [u8]) -> Result<Record<'a>, Fault> {
        let (fixed, rest) = body.split_first_chunk::<20>().ok_or(Fault::Short)?;
        let number = match kind {
            kind::PACKET => u32::from(self.order.u16(fixed, 0)),
            _ => self.order.u32(fixed, 0),
        };
        let (interface, described) = self.interface(number)?;
        let caplen = self.order.u32(fixed, 12) as usize;
        let bytes = rest.get(..caplen).ok_or(Fault::Short)?;
        let options = rest.get(caplen.next_multiple_of(4)..).unwrap_or_default();
        let own = own(self.order, options);
        Ok(Record::Frame(Frame {
            at_ns: described.clock.nanoseconds(self.stamp(fixed)),
            interface,
            link_type: described.link_type,
            wire_len: self.order.u32(fixed, 16).max(caplen as u32),
            bytes,
            segment_size: own.segment_size,
            truth: own.truth,
        }))
    }

    /// Upper half, lower half.
    fn stamp<const N: usize>(&self, fixed: &[u8; N]) -> u64 {
        halves(self.order.u32(fixed, 4), self.order.u32(fixed, 8))
    }

    /// A simple packet block (§4.4): of interface 0, without a time.
    fn simple_packet<'a>(&self, body: &'a [u8]) -> Result<Record<'a>, Fault> {
        let (fixed, rest) = body.split_first_chunk::<4>().ok_or(Fault::Short)?;
        let (interface, described) = self.interface(0)?;
        let wire_len = self.order.u32(fixed, 0);
        let caplen = match described.snaplen {
            0 => wire_len,
            snaplen => wire_len.min(snaplen),
        };
        Ok(Record::Frame(Frame {
            at_ns: 0,
            interface,
            link_type: described.link_type,
            wire_len,
            bytes: rest.get(..caplen as usize).ok_or(Fault::Short)?,
            segment_size: 0,
            truth: None,
        }))
    }

    /// An interface statistics block.
    fn statistics<'a>(&self, body: &'a [u8]) -> Result<Record<'a>, Fault> {
        let (fixed, rest) = body.split_first_chunk::<12>().ok_or(Fault::Short)?;
        let (interface, described) = self.interface(self.order.u32(fixed, 0))?;
        let mut statistics = Statistics {
            interface,
            at_ns: described.clock.nanoseconds(self.stamp(fixed)),
            received: None,
            if_dropped: None,
            os_dropped: None,
        };
        for (code, value) in options(self.order, rest) {
            let count = value
                .first_chunk()
                .map(|value: &[u8; 8]| self.order.u64(value, 0));
            match code {
                option::ISB_RECEIVED => statistics.received = count,
                option::ISB_IF_DROPPED => statistics.if_dropped = count,
                option::ISB_OS_DROPPED => statistics.os_dropped = count,
                _ => {}
            }
        }
        Ok(Record::Statistics(statistics))
    }

    /// By its number in the section: its number in the file, and what was said of it.
    #[inline]
    fn interface(&self, number: u32) -> Result<(u32, &Interface), Fault> {
        let described = self.interfaces.get(number as usize);
        let described = described.ok_or(Fault::Interface)?;
        Ok((self.interfaces_before as u32 + number, described))
    }
}

/// What a whole interface description block says.
pub(crate) fn interface(section: &Section, block: &[u8]) -> Result<Interface, Fault> {
    let body = block.get(8..block.len().saturating_sub(4));
    let (fixed, rest) = body
        .and_then(|body| body.split_first_chunk::<8>())
        .ok_or(Fault::Short)?;
    let mut interface = Interface {
        name: None,
        link_type: LinkType::from_number(section.order.u16(fixed, 0)),
        snaplen: section.order.u32(fixed, 4),
        clock: Clock::MICROSECONDS,
    };
    for (code, value) in options(section.order, rest) {
        describe(&mut interface, section.order, code, value);
    }
    Ok(interface)
}

fn describe(interface: &mut Interface, order: Order, code: u16, value: &[u8]) {
    let clock = interface.clock;
    match (code, value) {
        (option::IF_NAME, _) => interface.name = Some(name(value)),
        (option::IF_TSRESOL, [resolution, ..]) => {
            interface.clock = clock.with_resolution(*resolution);
        }
        (option::IF_TSOFFSET, _) => {
            if let Some(seconds) = value.first_chunk::<8>() {
                interface.clock = clock.with_offset(order.u64(seconds, 0).cast_signed());
            }
        }
        _ => {}
    }
}

/// Text is UTF-8, or is made so; some writers end it with a zero.
fn name(value: &[u8]) -> Arc<str> {
    let kept = &value[..value.len().min(NAME_MAX)];
    let kept = kept.split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(kept).into()
}
