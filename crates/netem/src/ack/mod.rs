// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rules for acknowledgements on their way back: [`Thinner`] forwards one in 2ⁿ, [`Pacer`] spaces
//! them. Both may discard an ACK only when a later one of the same flow says all that it said.
//!
//! An ACK is named by a token that its owner chooses; the rules give tokens back and never see the
//! segment. Segments that are not a [`PureAck`] (data, SYN, FIN, RST, SACK, ECE, CWR …) are never
//! discarded; the owner asks each rule for what it holds of the flow before it forwards one, so
//! that the flow keeps its order.

pub mod acking;
mod flows;
mod pacer;
pub(crate) mod rules;
mod thinner;

pub use pacer::{Pacer, Pacing};
pub use thinner::{Limits, Thinned, Thinner};

/// A TCP segment without payload, with ACK as its only flag and no SACK blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PureAck {
    /// A hash of the flow's addresses and ports, in this direction.
    pub flow: u64,
    /// The acknowledgement number.
    pub ack: u32,
    /// The window field, unscaled.
    pub window: u16,
}

impl PureAck {
    /// Whether `self` says all that `earlier` of the same flow said, so that `earlier` may be
    /// discarded. A repeated number is a duplicate or a window update and says something of its
    /// own, and so does a window that closes or opens.
    #[must_use]
    pub fn supersedes(&self, earlier: &Self) -> bool {
        let covered = self.covered_since(earlier.ack);
        let more = covered != 0 && covered < 1 << 31;
        more && (self.window == 0) == (earlier.window == 0)
    }

    /// Bytes from `ack` to this acknowledgement, modulo 2³² (RFC 9293 §3.4).
    fn covered_since(&self, ack: u32) -> u32 {
        self.ack.wrapping_sub(ack)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ack(ack: u32, window: u16) -> PureAck {
        PureAck {
            flow: 1,
            ack,
            window,
        }
    }

    #[test]
    fn only_progress_supersedes() {
        assert!(ack(200, 10).supersedes(&ack(100, 20)));
        assert!(ack(5, 10).supersedes(&ack(u32::MAX, 10)));
        assert!(!ack(100, 10).supersedes(&ack(100, 10)));
        assert!(!ack(100, 20).supersedes(&ack(100, 10)));
        assert!(!ack(100, 10).supersedes(&ack(200, 10)));
        assert!(!ack(200, 0).supersedes(&ack(100, 10)));
        assert!(!ack(200, 10).supersedes(&ack(100, 0)));
    }
}
