// SPDX-License-Identifier: MIT OR Apache-2.0
//! Stripes put together again, and the messages of fuzzing.

mod corpus;
mod stripe;
