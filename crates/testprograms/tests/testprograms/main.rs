// SPDX-License-Identifier: MIT OR Apache-2.0
//! Skipped tests are counted, and servers of tests leave no files or processes.

mod cleanup;
mod skipped_tests;
