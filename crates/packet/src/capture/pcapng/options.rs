// SPDX-License-Identifier: MIT OR Apache-2.0
//! Options of pcapng blocks (§3.5), among them the one of our own.

use crate::capture::order::Order;
use crate::capture::writer::{CUSTOM_BINARY_NOT_COPIED, ENTERPRISE, OPTION_VERSION};
use crate::capture::{Fate, Truth};

/// Code and value of each, up to the end mark, the end of the block or the first that reaches beyond it.
pub(super) fn options(order: Order, bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let (head, body) = rest.split_first_chunk::<4>()?;
        let (code, len) = (order.u16(head, 0), usize::from(order.u16(head, 2)));
        let value = body.get(..len).filter(|_| code != 0)?;
        rest = body.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some((code, value))
    })
}

/// What our own option says of a packet (docs/tap-format.md).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Own {
    pub(super) segment_size: u16,
    pub(super) truth: Option<Truth>,
}

/// Looks for our own among a packet's options.
#[inline]
pub(super) fn own(order: Order, bytes: &[u8]) -> Own {
    if bytes.is_empty() {
        return Own::default();
    }
    options(order, bytes)
        .filter(|(code, _)| *code == CUSTOM_BINARY_NOT_COPIED)
        .find_map(|(_, value)| parse(order, value.try_into().ok()?))
        .unwrap_or_default()
}

/// Enterprise number, version, fate, segment size, queue.
fn parse(order: Order, value: &[u8; 12]) -> Option<Own> {
    let ours = order.u32(value, 0) == ENTERPRISE && value[4] == OPTION_VERSION;
    let queue_bytes = order.u32(value, 8);
    ours.then(|| Own {
        segment_size: order.u16(value, 6),
        truth: fate(value[5]).map(|fate| Truth { queue_bytes, fate }),
    })
}

const fn fate(code: u8) -> Option<Fate> {
    match code {
        0 => Some(Fate::Passed),
        1 => Some(Fate::Lost),
        2 => Some(Fate::Dropped),
        3 => Some(Fate::Thinned),
        _ => None,
    }
}
