// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of this crate's congestion controls, ACK by ACK and in this machine's kernel.

mod ack_thin;
mod bic;
mod fast;
mod hstcp;
mod htcp;
#[cfg(feature = "bpf")]
mod in_kernel;
mod properties;
mod trc;
#[cfg(feature = "bpf")]
mod window_cap;
