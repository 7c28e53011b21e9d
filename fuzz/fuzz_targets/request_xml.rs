// SPDX-License-Identifier: MIT OR Apache-2.0
#![no_main]

// The check is part of a binary, which no other crate can use: it is compiled here again.
#[allow(dead_code, reason = "what the site uses beside what is checked here")]
#[path = "../../crates/longhaul/src/site/http/xml.rs"]
mod xml;

#[path = "../invariants/request_xml.rs"]
mod invariants;

libfuzzer_sys::fuzz_target!(|input: &[u8]| invariants::check(input));
