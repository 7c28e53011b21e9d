// SPDX-License-Identifier: MIT OR Apache-2.0
//! TCP under simulated time: what a kernel's sender and receiver do, driven by any congestion
//! control.

mod agenda;
pub mod chain;
pub mod congestion_control;
pub mod cubic;
mod ranges;
pub mod receiver;
mod reduction;
pub mod reno;
mod rtt;
mod scoreboard;
mod segmentation;
pub mod sender;
mod sent;
pub mod simulation;
mod usage;
pub mod watch;
mod way;
