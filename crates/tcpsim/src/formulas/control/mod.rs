// SPDX-License-Identifier: MIT OR Apache-2.0
//! Congestion controls that have a throughput formula.

pub mod bbr;
pub mod bic;
pub mod cubic;
pub mod cycle;
pub mod fast;
pub mod hstcp;
pub mod htcp;
pub mod mathis;
pub mod padhye;
pub mod scalable;

use cycle::WindowGrowth;
use std::{fmt, str::FromStr};

/// A congestion control with a formula.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Control {
    /// Reno (RFC 5681).
    Reno,
    /// CUBIC (RFC 9438), as Linux has it.
    Cubic,
    /// BBR version 1, as Linux has it.
    Bbr,
    /// HighSpeed TCP (RFC 3649).
    Hstcp,
    /// Scalable TCP (Kelly).
    Scalable,
    /// H-TCP (Leith and Shorten).
    Htcp,
    /// BIC (Xu, Harfoush and Rhee).
    Bic,
    /// FAST (Jin, Wei and Low).
    Fast,
}

impl Control {
    /// Every control, the kernel's own first.
    pub const ALL: [Self; 8] = [
        Self::Reno,
        Self::Cubic,
        Self::Bbr,
        Self::Hstcp,
        Self::Scalable,
        Self::Htcp,
        Self::Bic,
        Self::Fast,
    ];

    /// Returns the name that `--cc` takes.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Reno => "reno",
            Self::Cubic => "cubic",
            Self::Bbr => "bbr",
            Self::Hstcp => "hstcp",
            Self::Scalable => "scalable",
            Self::Htcp => "htcp",
            Self::Bic => "bic",
            Self::Fast => "fast",
        }
    }

    /// Returns the growth of its window between losses; `None` if it does not wait for losses.
    #[must_use]
    pub fn growth(self) -> Option<&'static dyn WindowGrowth> {
        match self {
            Self::Reno => Some(&mathis::Reno),
            Self::Cubic => Some(&cubic::Cubic),
            Self::Hstcp => Some(&hstcp::Hstcp),
            Self::Scalable => Some(&scalable::Scalable),
            Self::Htcp => Some(&htcp::Htcp),
            Self::Bic => Some(&bic::Bic),
            Self::Bbr | Self::Fast => None,
        }
    }
}

impl fmt::Display for Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Error for the name of a congestion control without a formula.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no formula for the congestion control {name:?}; there are formulas for {known}")]
pub struct UnknownControl {
    name: String,
    known: String,
}

impl FromStr for Control {
    type Err = UnknownControl;

    /// Parses Linux's names and ours: `highspeed` is `hstcp`, and `lh_bic` is `bic`.
    fn from_str(text: &str) -> Result<Self, UnknownControl> {
        let own = text.strip_prefix("lh_").unwrap_or(text);
        let own = if own == "highspeed" { "hstcp" } else { own };
        let known = || Self::ALL.map(Self::name).join(", ");
        let found = Self::ALL.into_iter().find(|control| control.name() == own);
        found.ok_or_else(|| UnknownControl {
            name: text.to_owned(),
            known: known(),
        })
    }
}
