// SPDX-License-Identifier: MIT OR Apache-2.0
//! Capture files of every format, in pieces of any size and damaged in every place; super-packets; packets of fuzzing.

mod build;
mod corpus;
mod damage;
mod foreign;
mod formats;
mod pieces;
mod reading;
mod super_packet;
