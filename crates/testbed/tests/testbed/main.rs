// SPDX-License-Identifier: MIT OR Apache-2.0
//! Skipped tests are counted, and servers of tests leave nothing behind.

mod counted;
mod nothing_is_left;
