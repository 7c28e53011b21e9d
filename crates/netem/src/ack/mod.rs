// SPDX-License-Identifier: MIT OR Apache-2.0
//! ACK rules, for acknowledgements on their way back: [`AckThinner`] forwards one in 2ⁿ, and [`Pacer`]
//! spaces them. Both discard an ACK only if a later one of the same flow supersedes it.
//!
//! The caller identifies each ACK by a token. The rules return tokens and never see the segment.
//! Segments that are not a [`PureAck`] (data, SYN, FIN, RST, SACK, ECE, CWR …) are never discarded.
//! Before the caller forwards one of them, it flushes the ACKs of the flow from each rule, so that
//! the flow keeps its order.

pub mod class;
mod flow_table;
mod pacer;
pub(crate) mod rules;
mod thinner;

pub use pacer::{Pacer, PacingDecision};
pub use thinner::{AckThinner, ThinningDecision, ThinningLimits};

/// A TCP segment without payload, with ACK as its only flag and no SACK blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PureAck {
    /// Hash of the flow's addresses and ports, in this direction.
    pub flow: u64,
    /// Acknowledgement number.
    pub ack: u32,
    /// Window field, unscaled.
    pub window: u16,
}

impl PureAck {
    /// Whether this ACK carries all the information of `earlier` of the same flow, so that `earlier` may
    /// be discarded. A repeated number does not supersede: it is a duplicate ACK or a window update.
    /// An ACK that closes or opens the window does not supersede either.
    #[must_use]
    pub fn supersedes(&self, earlier: &Self) -> bool {
        let covered = self.covered_since(earlier.ack);
        let advances = covered != 0 && covered < 1 << 31;
        advances && (self.window == 0) == (earlier.window == 0)
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
    fn supersedes_only_when_the_number_advances() {
        assert!(ack(200, 10).supersedes(&ack(100, 20)));
        assert!(ack(5, 10).supersedes(&ack(u32::MAX, 10)));
        assert!(!ack(100, 10).supersedes(&ack(100, 10)));
        assert!(!ack(100, 20).supersedes(&ack(100, 10)));
        assert!(!ack(100, 10).supersedes(&ack(200, 10)));
        assert!(!ack(200, 0).supersedes(&ack(100, 10)));
        assert!(!ack(200, 10).supersedes(&ack(100, 0)));
    }
}
