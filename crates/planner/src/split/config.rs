// SPDX-License-Identifier: MIT OR Apache-2.0
//! From flags to what a chain may have and what its relays cost.

use super::{
    super::{estimate::Method, path},
    args::Args,
};
use anyhow::Result;
use longhaul_command::exit::Refusal;
use longhaul_tcpsim::formulas::{Control, chain::RELAYS_MAX, relays::Overhead};
use longhaul_units::{BitRate, Bytes, Ratio};

/// The flags, checked.
#[derive(Debug)]
pub(super) struct Config {
    pub(super) relays_max: usize,
    pub(super) overhead: Overhead,
    pub(super) controls: Vec<Control>,
    pub(super) streams: u32,
    pub(super) window: Option<Bytes>,
    pub(super) connections: u64,
    pub(super) size: Option<Bytes>,
    pub(super) method: Method,
}

impl Config {
    pub(super) fn read(args: &Args) -> Result<Self> {
        if args.relays > RELAYS_MAX {
            return Err(Refusal::usage(format!(
                "--relays {}: a chain has {RELAYS_MAX} relays at most",
                args.relays
            )));
        }
        Ok(Self {
            relays_max: args.relays,
            overhead: overhead(&args.overhead)?,
            controls: path::controls(&args.cc)?,
            streams: args.streams,
            window: args.window,
            connections: args.connections,
            size: args.size,
            method: args.method,
        })
    }
}

/// A share or a rate.
fn overhead(text: &str) -> Result<Overhead> {
    let share = text.parse::<Ratio>().ok().filter(|share| share.get() < 1.0);
    match (share, text.parse::<BitRate>()) {
        (Some(share), _) => Ok(Overhead {
            share: share.get(),
            ..Overhead::default()
        }),
        (None, Ok(rate)) => Ok(Overhead {
            per_relay_bps: rate.bits() as f64,
            ..Overhead::default()
        }),
        (None, Err(error)) => Err(Refusal::usage(format!(
            "--overhead {text:?} is neither a share below 100% (9%) nor a rate (3MB/s): {error}"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cost_is_a_share_or_a_rate() {
        assert_eq!(overhead("9%").unwrap().share, 0.09);
        assert_eq!(overhead("3MB/s").unwrap().per_relay_bps, 24e6);
        for wrong in ["100%", "much", "-3%"] {
            assert!(overhead(wrong).is_err(), "{wrong}");
        }
    }
}
