// SPDX-License-Identifier: MIT OR Apache-2.0
//! Simulated connections: against single packets, against Mathis' formula, and as chains of relays.

mod chain;
mod mathis;
mod relay_chains;
mod reno;
mod simulation;
