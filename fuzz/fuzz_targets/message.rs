// SPDX-License-Identifier: MIT OR Apache-2.0
#![no_main]

// The parser is part of a binary, which no other crate can use: it is compiled here again.
#[allow(dead_code, reason = "what a copy uses beside what is checked here")]
#[path = "../../crates/longhaul/src/copy/message.rs"]
mod message;

#[path = "../invariants/message.rs"]
mod invariants;

libfuzzer_sys::fuzz_target!(|input: &[u8]| invariants::check(input));
