// SPDX-License-Identifier: MIT OR Apache-2.0
//! The congestion controls of our own, acknowledgement by acknowledgement, and in this machine's kernel.

mod ack_thin;
mod bic;
mod fast;
mod hstcp;
mod htcp;
mod in_kernel;
mod properties;
mod trc;
mod window_cap;
