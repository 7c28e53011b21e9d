// SPDX-License-Identifier: MIT OR Apache-2.0
#![no_main]

#[path = "../invariants/damage.rs"]
mod damage;
#[path = "../invariants/manifest.rs"]
mod invariants;
#[path = "../invariants/memory.rs"]
mod memory;

libfuzzer_sys::fuzz_target!(|input: &[u8]| invariants::check(input));
