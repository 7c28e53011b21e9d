// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of all built-in scenarios and of all refusals.

mod claim_slips;
mod refusal;
mod scenario;
mod slips;
