// SPDX-License-Identifier: MIT OR Apache-2.0
//! Quantities with units.
//!
//! Every size, rate, time and share that a person types or reads is a [`Bytes`], [`BitRate`], [`Time`] or
//! [`Ratio`]. Each type parses the forms that people write: `4.7GB`, `10gbit`, `26ms`, `0.1%`. Each prints three
//! significant digits with an SI unit. Each serialises as a text that it parses, so that a configuration read back is
//! the configuration written. A [`Ratio`] prints percent, and serialises as a number.
//!
//! Decimal prefixes are powers of 1,000 and binary ones (`KiB`, `MiB`, `GiB`) powers of 1,024. Rates count bits, sizes
//! count bytes; a rate may be written in bytes a second (`125MB/s`). A size (`125MB`) is refused as a rate, and a rate
//! as a size.

#![cfg_attr(not(test), warn(unused_crate_dependencies))]

mod bitrate;
mod bytes;
mod quantity;
mod ratio;
pub mod rounding;
mod time;
mod with_input;

pub use bitrate::BitRate;
pub use bytes::Bytes;
pub use quantity::ParseError;
pub use ratio::Ratio;
pub use time::Time;
pub use with_input::WithInput;

/// Bandwidth–delay product: the bytes that fill a path of `rate` for one round trip `rtt`.
///
/// ```
/// # use longhaul_units::{bdp, BitRate, Time};
/// assert_eq!(bdp(BitRate::from_bits(10_000_000_000), Time::from_millis(26)).get(), 32_500_000);
/// ```
#[must_use]
pub fn bdp(rate: BitRate, rtt: Time) -> Bytes {
    Bytes::new(rate.bytes_in(rtt))
}
