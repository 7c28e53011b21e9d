// SPDX-License-Identifier: MIT OR Apache-2.0
#![no_main]

// The parser is part of a binary, which no other crate can use: it is compiled here again.
#[allow(dead_code, reason = "what the relay uses beside what is checked here")]
#[path = "../../crates/longhaul/src/relay/proxy_headers.rs"]
mod proxy_headers;

#[path = "../invariants/http_head.rs"]
mod invariants;

libfuzzer_sys::fuzz_target!(|input: &[u8]| invariants::check(input));
