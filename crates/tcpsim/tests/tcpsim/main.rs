// SPDX-License-Identifier: MIT OR Apache-2.0
//! Simulated connections: held to packets one by one, to Mathis' formula, and as chains of relays.

mod chain;
mod mathis;
mod relay_chains;
mod reno;
mod simulation;
