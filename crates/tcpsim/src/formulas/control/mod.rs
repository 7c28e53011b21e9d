// SPDX-License-Identifier: MIT OR Apache-2.0
//! The congestion controls that throughput is predicted for.

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

use cycle::Law;
use std::{fmt, str::FromStr};

/// A congestion control with a formula.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Control {
    /// RFC 5681.
    Reno,
    /// RFC 9438, as Linux has it.
    Cubic,
    /// BBR's first version, as Linux has it.
    Bbr,
    /// RFC 3649.
    Hstcp,
    /// Kelly's.
    Scalable,
    /// Leith and Shorten's.
    Htcp,
    /// Xu, Harfoush and Rhee's.
    Bic,
    /// Jin, Wei and Low's.
    Fast,
}

impl Control {
    /// All, the kernel's own first.
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

    /// As `--cc` has it.
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

    /// How its window grows from loss to loss; `None` of those that don't wait for losses.
    #[must_use]
    pub fn law(self) -> Option<&'static dyn Law> {
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

/// No such congestion control.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("congestion control {name:?} has no formula here; there are: {known}")]
pub struct UnknownControl {
    name: String,
    known: String,
}

impl FromStr for Control {
    type Err = UnknownControl;

    /// Linux's names and ours: `highspeed` is `hstcp`, and `lh_bic` is `bic`.
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
