// SPDX-License-Identifier: MIT OR Apache-2.0
#![no_main]

#[path = "../invariants/flows.rs"]
mod invariants;

libfuzzer_sys::fuzz_target!(|input: &[u8]| invariants::check(input));
