// SPDX-License-Identifier: MIT OR Apache-2.0
//! An emulated wire: what happens to each segment, and when it leaves.
