// SPDX-License-Identifier: MIT OR Apache-2.0
//! Samples the connections that match, as observations for the controller.

use super::config::Config;
use crate::{connection_filter::Filter, decp::model::Observation};
use anyhow::{Context, Result, ensure};
use longhaul_command::exit::Refusal;
use longhaul_linux::{
    cgroup,
    sock_diag::{Connection, SockDiag},
};
use longhaul_units::Time;
use std::{collections::HashMap, net::IpAddr, path::PathBuf};

/// Collects the windows of all connections that match.
pub(super) struct Sampler {
    diag: SockDiag,
    filter: Filter,
    cgroup: Option<PathBuf>,
    /// Busy time of each connection in the last sample.
    busy_us: HashMap<u64, u64>,
    last: Time,
}

/// One connection in a sample, with the controller's observation of it.
pub(super) struct SampledConnection {
    pub(super) connection: Connection,
    pub(super) observation: Observation,
}

impl Sampler {
    /// Samples the network namespace of the calling thread.
    pub(super) fn new(config: &Config) -> Result<Self> {
        Ok(Self {
            diag: SockDiag::here().map_err(|error| {
                Refusal::unsupported(format!(
                    "cannot ask the kernel for sockets ({error}): it takes netlink sockets (sock_diag), which a \
                     sandbox may withhold"
                ))
            })?,
            filter: config.filter.clone(),
            cgroup: config.cgroup.clone(),
            busy_us: HashMap::new(),
            last: Time::ZERO,
        })
    }

    /// Takes a sample. `cap` returns a connection's cap by its cookie.
    pub(super) fn sample(
        &mut self,
        now: Time,
        cap: impl Fn(u64) -> Option<u32>,
    ) -> Result<Vec<SampledConnection>> {
        let connections = self.connections()?;
        let rtt_min = least_round_trips(&connections);
        let passed_us = now.since(self.last).as_nanos() / 1000;
        let was_busy = |c: &Connection| {
            let before = self.busy_us.get(&c.sender.cookie);
            before.is_some_and(|before| {
                2 * (c.sender.busy_us - before.min(&c.sender.busy_us)) >= passed_us
            })
        };
        let observations = connections.iter().map(|connection| {
            let cookie = connection.sender.cookie;
            let least_us = rtt_min[&path(connection)];
            observation(connection, least_us, was_busy(connection), cap(cookie))
        });
        let observations: Vec<Observation> = observations.collect();
        self.busy_us = connections
            .iter()
            .map(|c| (c.sender.cookie, c.sender.busy_us))
            .collect();
        self.last = now;
        let both = connections.into_iter().zip(observations);
        Ok(both
            .map(|(connection, observation)| SampledConnection {
                connection,
                observation,
            })
            .collect())
    }

    /// Returns the connections that match the filter and the cgroup.
    pub(super) fn connections(&mut self) -> Result<Vec<Connection>> {
        let tree = self.cgroup.as_deref().map(cgroup::identifiers).transpose();
        let tree = tree.context("the cgroup is gone")?;
        let mut all = self.diag.connections().context("cannot list sockets")?;
        all.retain(|connection| {
            let is_inside = |tree: &Vec<u64>| tree.contains(&connection.sender.cgroup);
            self.filter.matches(connection.local, connection.remote)
                && tree.as_ref().is_none_or(is_inside)
        });
        let most = longhaul_congestion::sockets::window_cap::CONNECTIONS_MAX;
        ensure!(
            all.len() <= most,
            "{} connections match; at most {most} can",
            all.len()
        );
        Ok(all)
    }
}

/// Key of a path: connections between two addresses share it, and any of them may have measured its
/// least round trip.
fn path(connection: &Connection) -> (IpAddr, IpAddr) {
    (connection.local.ip(), connection.remote.ip())
}

fn least_round_trips(connections: &[Connection]) -> HashMap<(IpAddr, IpAddr), u32> {
    let mut least = HashMap::new();
    for connection in connections {
        let least = least.entry(path(connection)).or_insert(u32::MAX);
        *least = connection.min_rtt_us.min(*least);
    }
    least
}

fn observation(
    connection: &Connection,
    least_us: u32,
    bulk: bool,
    cap: Option<u32>,
) -> Observation {
    let sender = &connection.sender;
    let receiver = connection.send_window_bytes / sender.mss_bytes.max(1);
    let window = if sender.reducing {
        sender.ssthresh_segments
    } else {
        sender.cwnd_segments
    };
    Observation {
        id: sender.cookie,
        window_segments: window.min(receiver),
        window_max_segments: receiver,
        slow_start: window < sender.ssthresh_segments,
        mss_bytes: sender.mss_bytes,
        delivered_segments: sender.delivered_segments,
        retransmits: connection.retransmits,
        rtt: Time::from_micros(connection.rtt_us.into()),
        rtt_min: Time::from_micros(least_us.into()),
        cap,
        // Before the first RTT sample the kernel reports the maximum as the least round trip.
        bulk: bulk && least_us < u32::MAX && connection.rtt_us > 0,
    }
}
