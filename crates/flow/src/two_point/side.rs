// SPDX-License-Identifier: MIT OR Apache-2.0
//! The two sides of a comparison.

/// Side of the comparison that saw a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// Left point.
    Left,
    /// Right point.
    Right,
}

impl Side {
    pub(super) fn other(self) -> Self {
        match self {
            Self::Left => Self::Right,
            Self::Right => Self::Left,
        }
    }
}
