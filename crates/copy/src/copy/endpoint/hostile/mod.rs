// SPDX-License-Identifier: MIT OR Apache-2.0
//! Endpoints against a hostile peer. A script speaks the protocol over real connections. The endpoint must
//! write nothing outside its target, believe nothing false, and still take valid data that arrives beside it.

mod peer;
mod source;
mod target;
