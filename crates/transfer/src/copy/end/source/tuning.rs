// SPDX-License-Identifier: MIT OR Apache-2.0
//! How the connections that carry data are set up where the data is sent: congestion control and pacing.

use crate::protocol::options::{Options, Pace, Transport};
use anyhow::Result;
use longhaul_command::exit::Refusal;
use longhaul_congestion::{
    choice::{self, Choice},
    loader::{self, Hold},
    pins::Pins,
};
use longhaul_linux::socket;
use longhaul_transport::blocking::Handle;

/// No limit in effect, but a limit: TCP spaces the packets of a socket that has one by its window and round trip
/// (net/core/sock.c, SO_MAX_PACING_RATE).
const PACED: u64 = u64::MAX - 1;

/// What may wait unsent in a socket: what it sends in 50 ms, in which a thread reads, hashes and encrypts a block many times
/// over; on a stream of 160 Mbit/s and less 1 MiB, and of 2.7 Gbit/s and more 16 MiB.
const UNSENT_PER_SECOND: u64 = 20;
const UNSENT_MIN: u64 = 1 << 20;
const UNSENT_MAX: u64 = 16 << 20;

/// What every stream gets.
#[derive(Debug)]
pub(super) struct Tuning {
    congestion_control: Option<String>,
    pace: Pace,
    /// A congestion control of ours is loaded as long as somebody holds it.
    _hold: Option<Hold>,
}

impl Tuning {
    /// Refuses what this host does not have. Must be called while this process has one thread.
    pub(super) fn prepare(options: &Options) -> Result<Self> {
        let choice = options
            .congestion_control
            .as_deref()
            .filter(|_| options.transport == Transport::Tcp)
            .map(choose)
            .transpose()?;
        let hold = match &choice {
            Some(Choice::Ours(algorithm)) => {
                let defaults = longhaul_congestion::math::parameters::defaults(*algorithm);
                Some(loader::hold(&Pins::default(), *algorithm, &defaults)?)
            }
            _ => None,
        };
        Ok(Self {
            congestion_control: choice.as_ref().map(Choice::system_name),
            pace: options.pace,
            _hold: hold,
        })
    }

    /// Sets a stream up that has just come. UDT paces by itself.
    pub(super) fn apply(&self, stream: &Handle) {
        self.keep_short(stream, 0);
        let Some(stream) = stream.connection().tcp() else {
            return;
        };
        if let Some(name) = &self.congestion_control {
            // It was there a moment ago; without it the data goes all the same.
            let _ = rustix::net::sockopt::set_tcp_congestion(stream, name);
        }
        if self.pace == Pace::Auto {
            let _ = socket::set_pacing_rate(stream, PACED);
        }
    }

    /// Lets no more wait in a socket than it sends while its thread gets the next block: what waits there no other stream
    /// can take, and at the end everybody waits for it.
    pub(super) fn keep_short(&self, stream: &Handle, rate: u64) {
        let bytes = (rate / UNSENT_PER_SECOND).clamp(UNSENT_MIN, UNSENT_MAX);
        stream.connection().limit_unsent(bytes as u32);
    }

    /// Every stream has an equal share of the rate that was asked for.
    pub(super) fn share<'a>(&self, streams: impl ExactSizeIterator<Item = &'a Handle>) {
        let Pace::Rate(bits) = self.pace else { return };
        let share = bits / 8 / streams.len().max(1) as u64;
        for stream in streams.filter_map(|stream| stream.connection().tcp()) {
            let _ = socket::set_pacing_rate(stream, share);
        }
    }
}

fn choose(name: &str) -> Result<Choice> {
    choice::choose(name).ok_or_else(|| {
        let here = socket::congestion_controls().unwrap_or_default();
        Refusal::usage(format!(
            "--cc {name}: no such congestion control where the data is sent; there are: {} and longhaul's lh_NAME",
            here.join(", ")
        ))
    })
}
