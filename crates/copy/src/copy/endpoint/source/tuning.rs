// SPDX-License-Identifier: MIT OR Apache-2.0
//! Settings of data connections at the sender: congestion control and pacing.

use crate::protocol::options::{Options, Pacing, Transport};
use anyhow::Result;
use longhaul_command::exit::Refusal;
use longhaul_congestion::{
    Error,
    choice::{self, Choice},
    loader::{self, Lease},
    pins::Pins,
};
use longhaul_linux::socket;
use longhaul_transport::blocking;

/// Pacing rate that limits nothing. TCP spaces the packets of a socket with a pacing rate by its window and
/// RTT (net/core/sock.c, SO_MAX_PACING_RATE).
const PACING_RATE_UNLIMITED: u64 = u64::MAX - 1;

/// Maximum unsent data in a socket, as a fraction of its rate per second: 50 ms, in which a thread reads,
/// hashes and encrypts a block many times over. The result is 1 MiB on streams of up to 160 Mbit/s, and 16
/// MiB from 2.7 Gbit/s.
const UNSENT_PER_SECOND: u64 = 20;
const UNSENT_MIN: u64 = 1 << 20;
const UNSENT_MAX: u64 = 16 << 20;

/// Settings of every stream.
#[derive(Debug)]
pub(super) struct StreamTuning {
    congestion_control: Option<String>,
    pacing: Pacing,
    /// Keeps a congestion control of ours loaded.
    _hold: Option<Lease>,
}

impl StreamTuning {
    /// Refuses a congestion control that this host lacks. Must be called while the process has one thread.
    pub(super) fn prepare(options: &Options) -> Result<Self> {
        let choice = options
            .congestion_control
            .as_deref()
            .filter(|_| options.transport == Transport::Tcp)
            .map(find_control)
            .transpose()?;
        let hold = match &choice {
            Some(Choice::Ours(algorithm)) => {
                let defaults = longhaul_congestion::math::parameters::defaults(*algorithm);
                let lease = loader::acquire(&Pins::default(), *algorithm, &defaults);
                Some(lease.map_err(Error::refusal)?)
            }
            _ => None,
        };
        Ok(Self {
            congestion_control: choice.as_ref().map(Choice::system_name),
            pacing: options.pacing,
            _hold: hold,
        })
    }

    /// Applies the settings to a new stream. UDT paces by itself.
    pub(super) fn apply(&self, stream: &blocking::Connection) {
        self.limit_unsent(stream, 0);
        let Some(stream) = stream.tcp() else {
            return;
        };
        if let Some(name) = &self.congestion_control {
            // The congestion control was there a moment ago; without it the data is still sent.
            let _ = rustix::net::sockopt::set_tcp_congestion(stream, name);
        }
        if self.pacing == Pacing::Auto {
            let _ = socket::set_pacing_rate(stream, PACING_RATE_UNLIMITED);
        }
    }

    /// Limits unsent data in a socket to what it sends while its thread gets the next block. No other stream
    /// can take that data, and at the end all wait for it.
    pub(super) fn limit_unsent(&self, stream: &blocking::Connection, rate: u64) {
        let bytes = (rate / UNSENT_PER_SECOND).clamp(UNSENT_MIN, UNSENT_MAX);
        stream.limit_unsent(bytes as u32);
    }

    /// Divides the requested rate equally among the streams.
    pub(super) fn divide_rate<'a>(
        &self,
        streams: impl ExactSizeIterator<Item = &'a blocking::Connection>,
    ) {
        let Pacing::Rate(bits) = self.pacing else {
            return;
        };
        let share = bits / 8 / streams.len().max(1) as u64;
        for stream in streams.filter_map(|stream| stream.tcp()) {
            let _ = socket::set_pacing_rate(stream, share);
        }
    }
}

fn find_control(name: &str) -> Result<Choice> {
    choice::choose(name).ok_or_else(|| {
        let available = socket::congestion_controls().unwrap_or_default();
        Refusal::usage(format!(
            "--cc {name}: no such congestion control where the data is sent; there are: {} and longhaul's lh_NAME",
            available.join(", ")
        ))
    })
}
