// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ends against a far end that lies: a script speaks the protocol over real connections, and nothing outside is touched,
//! nothing false is believed, and what is sound beside it arrives.

mod liar;
mod source;
mod target;
