// SPDX-License-Identifier: MIT OR Apache-2.0
//! Skipped tests are counted, and nothing that a test starts stays behind.

mod counted;
mod nothing_is_left;
