// SPDX-License-Identifier: MIT OR Apache-2.0
//! TCP under simulated time: a kernel's sender and receiver, driven by any congestion control.
//!
//! A [`simulation::Simulation`] has flows on one path of two emulated lines. A [`chain::Chain`] joins several
//! simulations by relays. [`formulas`] predicts TCP's throughput without a simulation.
//!
//! ```
//! use longhaul_netem::Setting;
//! use longhaul_tcpsim::{
//!     congestion_control::reno::Reno,
//!     receiver::AckPolicy,
//!     sender::SenderConfig,
//!     simulation::{FlowConfig, Path, Simulation},
//! };
//! use longhaul_units::Time;
//!
//! let mut path = Path::default();
//! path.forward.apply(Setting::parse("rate", "100mbit")?);
//! path.reverse.apply(Setting::parse("delay", "10ms")?);
//! let flow = FlowConfig {
//!     start: Time::ZERO,
//!     extra_rtt: Time::ZERO,
//!     sender: SenderConfig::default(),
//!     acks: AckPolicy::default(),
//!     control: Box::new(Reno),
//! };
//! let mut simulation = Simulation::new(path, vec![flow]);
//! simulation.run_until(Time::from_secs(10));
//! assert!(simulation.sender(0).acked() > 50_000);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![cfg_attr(not(test), warn(unused_crate_dependencies))]

pub mod chain;
pub mod congestion_control;
pub mod formulas;
mod ranges;
pub mod receiver;
pub mod sender;
pub mod simulation;
