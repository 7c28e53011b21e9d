// SPDX-License-Identifier: MIT OR Apache-2.0
//! What holds for every scenario and every refusal.

mod claim_slips;
mod refusal;
mod scenario;
mod slips;
