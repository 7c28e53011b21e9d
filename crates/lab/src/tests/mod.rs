// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of all built-in scenarios and of all refusals.

mod builtin_scenarios;
mod invalid_claims;
mod invalid_values;
mod refusals;
