// SPDX-License-Identifier: MIT OR Apache-2.0
//! Samples of TCP_INFO at both ends of each simulated connection, as on a testbed.

use super::plan::{Connection, Plan};
use crate::{
    measure::{Recording, Sample},
    network::sockets::{accepting_host, iperf_port},
};
use anyhow::{Context, Result};
use longhaul_linux::sock_diag;
use longhaul_tcpsim::{chain::Chain, sender::Sender};
use longhaul_units::Time;
use std::{
    fs::File,
    io::{BufWriter, Write},
    net::{Ipv4Addr, SocketAddr},
    path::Path,
    sync::Arc,
};

/// Latest TCP_INFO of both ends of one connection.
struct ConnectionEnds {
    leg: usize,
    number: usize,
    hosts: [Arc<str>; 2],
    start: Time,
    window: u64,
    /// TCP_INFO of the sender.
    sender_info: sock_diag::Connection,
    receiver_info: sock_diag::Connection,
}

/// Writes samples to a file, and keeps in memory those for the report.
pub(super) struct Samples {
    ends: Vec<ConnectionEnds>,
    mss: u64,
    last: Time,
    file: BufWriter<File>,
    in_memory: Vec<Sample>,
}

/// Most samples in memory, as on a testbed. Later ones are only written to the file.
const SAMPLES_MAX: usize = 500_000;
/// First port of clients.
const CLIENT_PORT: u16 = 40_000;

impl Samples {
    pub(super) fn create(plan: &Plan<'_>, path: &Path) -> Result<Self> {
        let file =
            File::create(path).with_context(|| format!("cannot write {}", path.display()))?;
        let legs = 0..plan.leg_count();
        let all = legs.flat_map(|leg| plan.connections(leg).enumerate());
        Ok(Self {
            ends: all
                .map(|(number, connection)| ConnectionEnds::of(plan, number, &connection))
                .collect(),
            mss: plan.mss().into(),
            last: Time::ZERO,
            file: BufWriter::new(file),
            in_memory: Vec::new(),
        })
    }

    /// Samples each end whose connection has started.
    pub(super) fn sample(&mut self, chain: &mut Chain) -> Result<()> {
        let (now, mss) = (chain.now(), self.mss);
        let span = now.since(self.last).as_secs_f64();
        self.last = now;
        for ends in self.ends.iter_mut().filter(|ends| ends.start <= now) {
            let arrived = chain.delivered(ends.leg, ends.number) * mss;
            ends.update(chain.sender(ends.leg, ends.number), mss, span);
            ends.receiver_info.bytes_received = arrived;
            for (host, connection) in ends
                .hosts
                .iter()
                .zip([&ends.sender_info, &ends.receiver_info])
            {
                let sample = Sample {
                    at_s: now.as_secs_f64(),
                    host: host.clone(),
                    connection: connection.clone(),
                };
                serde_json::to_writer(&mut self.file, &sample)?;
                self.file.write_all(b"\n")?;
                if self.in_memory.len() < SAMPLES_MAX {
                    self.in_memory.push(sample);
                }
            }
        }
        Ok(())
    }

    pub(super) fn finish(mut self) -> Result<Recording> {
        self.file.flush()?;
        Ok(Recording::new(self.in_memory))
    }
}

impl ConnectionEnds {
    fn of(plan: &Plan<'_>, number: usize, connection: &Connection<'_>) -> Self {
        let [from, to] = connection.endpoints;
        let flow = plan.flows[connection.flow];
        let server = iperf_port(connection.flow);
        let client = CLIENT_PORT.saturating_add(number as u16);
        // In a download, the sender of data has the server's port on every leg.
        let ports = if accepting_host(flow) == flow.from {
            [server, client]
        } else {
            [client, server]
        };
        let address = |seen_from: &str, host: &str, port| -> SocketAddr {
            let ip = plan.topology.address(seen_from, host);
            (ip.unwrap_or(Ipv4Addr::UNSPECIFIED), port).into()
        };
        let (local, remote) = (address(to, from, ports[0]), address(from, to, ports[1]));
        let control = &connection.control;
        let last = connection.leg + 1 == plan.leg_count();
        Self {
            leg: connection.leg,
            number,
            // Data that reached the last end is with the flow's destination.
            hosts: [from.into(), if last { flow.to.as_str() } else { to }.into()],
            start: connection.start + connection.round_trip,
            window: connection.window(),
            sender_info: empty_info(local, remote, control),
            receiver_info: empty_info(remote, local, control),
        }
    }

    fn update(&mut self, sender: &Sender, mss: u64, span: f64) {
        let window = sender.window();
        let acked = sender.acked() * mss;
        let micros = |time: Time| u32::try_from(time.as_nanos() / 1000).unwrap_or_default();
        let record = &mut self.sender_info;
        record.delivery_rate_bps = ((acked - record.bytes_acked) as f64 * 8.0 / span) as u64;
        record.bytes_acked = acked;
        record.cwnd_bytes = u64::from(window.cwnd) * mss;
        // TCP_INFINITE_SSTHRESH of include/net/tcp.h.
        record.ssthresh_bytes =
            (window.ssthresh < 0x7fff_ffff).then(|| u64::from(window.ssthresh) * mss);
        record.rtt_us = micros(sender.srtt());
        record.min_rtt_us = micros(sender.rtt_min());
        record.send_window_bytes = u32::try_from(self.window).unwrap_or(u32::MAX);
        record.retransmits = u32::try_from(sender.counters().retransmitted).unwrap_or(u32::MAX);
        record.pacing_rate_bps = sender.pacing_rate().bits();
    }
}

fn empty_info(local: SocketAddr, remote: SocketAddr, control: &str) -> sock_diag::Connection {
    sock_diag::Connection {
        congestion: control.to_owned(),
        ..sock_diag::Connection::between(local, remote)
    }
}
