// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of capture files, in every format, read in chunks of any size and damaged at every offset. Tests of
//! super-packets and replays of the fuzz corpora.

mod build;
mod chunks;
mod corpus;
mod damage;
mod formats;
mod reading;
mod super_packet;
mod wireshark_captures;
