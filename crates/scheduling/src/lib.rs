// SPDX-License-Identifier: MIT OR Apache-2.0
//! What `longhaul copy` decides: which block goes next and on which stream ([`Work`]), what must go again when a stream
//! breaks ([`Ledger`]) or is too slow ([`Stragglers`]), how many streams there are ([`streams`]), how several movers divide it ([`extents`]), who may send
//! when several share a rate ([`limit`]), which host has what when each keeps a share ([`placement`]), and what keeps it from being faster ([`Verdict`]).

#![cfg_attr(not(test), warn(unused_crate_dependencies))]

mod bottleneck;
pub mod extents;
mod ledger;
pub mod limit;
mod measured;
pub mod placement;
mod stragglers;
pub mod streams;
mod work;

pub use bottleneck::{Bottleneck, End, Verdict};
pub use ledger::{HasEnded, Ledger};
pub use measured::{Measured, Network, Spent, Stage, Stages};
pub use stragglers::{Pace, Stragglers};
pub use work::{Missing, Parcel, Work};
