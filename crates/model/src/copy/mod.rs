// SPDX-License-Identifier: MIT OR Apache-2.0
//! What `longhaul copy` decides: which block goes next and on which stream ([`Work`]), what must go again when a stream
//! breaks ([`Ledger`]), how many streams there are ([`streams`]), and who may send when several share a rate ([`limit`]).

mod ledger;
pub mod limit;
pub mod streams;
mod work;

pub use ledger::{HasEnded, Ledger};
pub use work::{FILES_MAX, Missing, PARCEL_LEN, Parcel, Work};
