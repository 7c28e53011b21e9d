// SPDX-License-Identifier: MIT OR Apache-2.0
//! TCP under simulated time: what a kernel's sender and receiver do, driven by any congestion
//! control.

pub mod congestion_control;
