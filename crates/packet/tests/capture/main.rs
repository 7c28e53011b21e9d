// SPDX-License-Identifier: MIT OR Apache-2.0
//! Capture files, read: every format, in pieces of any size, damaged in every place.

mod build;
mod damage;
mod foreign;
mod formats;
mod pieces;
mod reading;
