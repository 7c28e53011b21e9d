// SPDX-License-Identifier: MIT OR Apache-2.0
//! Socket activation: which listener takes which of the sockets that the service manager opened.

use crate::config::{listener::Listener, settings::Transport};
use longhaul_command::exit::Refusal;
use longhaul_linux::activation;
use std::net::TcpListener;

/// Sockets that no listener has taken yet.
#[derive(Debug)]
pub(crate) struct PassedSockets(Vec<activation::Passed>);

impl PassedSockets {
    /// What this process was started with.
    pub(crate) fn take() -> anyhow::Result<Self> {
        let passed = activation::take();
        passed.map(Self).map_err(|error| {
            Refusal::usage(format!(
                "LISTEN_FDS, LISTEN_FDNAMES: {error}: not what a service manager passes"
            ))
        })
    }

    /// Those for `listener`: under its name, or on its address. None: it opens its own.
    pub(crate) fn taken_by(&mut self, listener: &Listener) -> anyhow::Result<Vec<TcpListener>> {
        let is_for = |passed: &mut activation::Passed| {
            // Only those of TCP have one.
            let there = passed
                .address()
                .filter(|_| listener.transport == Transport::Tcp);
            let named = passed.name == listener.name;
            there.is_some() && (named || there == Some(listener.address))
        };
        let taken: Vec<_> = self.0.extract_if(.., is_for).collect();
        for passed in &taken {
            passed
                .address()
                .map_or(Ok(()), |at| listener.check_place(at))?;
        }
        Ok(taken.into_iter().map(TcpListener::from).collect())
    }

    /// Nobody would serve the clients of a socket that is left.
    pub(crate) fn check_none_left(&self) -> anyhow::Result<()> {
        let Some(passed) = self.0.first() else {
            return Ok(());
        };
        let name = &passed.name;
        Err(Refusal::usage(match passed.address() {
            Some(address) => format!(
                "the service manager passed socket {name} ({address}), which no listener wants: \
                 give one this address, or name the socket after it (FileDescriptorName=)"
            ),
            None => format!(
                "the service manager passed {name}, which is not a TCP socket that listens \
                 (ListenStream=)"
            ),
        }))
    }
}
