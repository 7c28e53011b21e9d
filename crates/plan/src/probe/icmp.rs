// SPDX-License-Identifier: MIT OR Apache-2.0
//! Probes by ICMP echo, to which the kernel of the remote host replies (RFC 792, RFC 4443 section 4).

use super::{
    config::Config,
    path_mtu,
    report::Measurement,
    responder::{Reply, Responder},
    rtt,
    target::Target,
};
use anyhow::{Context, Result, bail};
use longhaul_command::exit::Refusal;
use longhaul_linux::timestamps::{Departure, TimestampSocket};
use std::{io, net::IpAddr, time::Duration};

/// Types of an echo request, of ICMP and ICMPv6.
const ECHO_REQUEST: [u8; 2] = [8, 128];
/// Types of an echo reply, of ICMP and ICMPv6.
const ECHO_REPLY: [u8; 2] = [0, 129];
/// Length of the ICMP header, in bytes.
const HEADER_LEN: usize = 8;

pub(super) fn measure(target: &Target, ip: IpAddr, config: &Config) -> Result<Measurement> {
    let exchange = TimestampSocket::icmp(ip).map_err(|error| icmp_refusal(&error))?;
    let mut responder = IcmpResponder {
        exchange,
        v6: ip.is_ipv6(),
        next_number: 0,
    };
    let samples = rtt::measure(&mut responder, config.count, config.interval)
        .with_context(|| format!("cannot send ICMP echo to {ip}"))?;
    if samples.times.is_empty() {
        bail!(
            "{ip} does not answer ICMP echo: give a port for --method tcp, or run plan measure --serve there"
        );
    }
    let mut measured = Measurement::new(target, "icmp", samples);
    measured.path_mtu = path_mtu::measure(&mut responder, measured.reply_timeout())?;
    Ok(measured)
}

fn icmp_refusal(error: &io::Error) -> anyhow::Error {
    Refusal::unsupported(format!(
        "ICMP echo: {error}; allow it with sysctl net.ipv4.ping_group_range='0 2147483647', or give HOST:PORT for UDP or TCP"
    ))
}

struct IcmpResponder {
    exchange: TimestampSocket,
    v6: bool,
    next_number: u32,
}

impl IcmpResponder {
    fn ip_header_len(&self) -> usize {
        if self.v6 { 40 } else { 20 }
    }
}

impl Responder for IcmpResponder {
    /// Sends an echo request. The sequence number has 16 bits; a probe sends fewer requests.
    fn send_request(&mut self, len: usize) -> io::Result<u32> {
        let mut bytes = vec![0; len - self.ip_header_len()];
        bytes[0] = ECHO_REQUEST[usize::from(self.v6)];
        bytes[6..HEADER_LEN].copy_from_slice(&(self.next_number as u16).to_be_bytes());
        self.exchange.send(&bytes)?;
        self.next_number += 1;
        Ok(self.next_number - 1)
    }

    fn receive_reply(&mut self, timeout: Duration) -> io::Result<Option<Reply>> {
        let mut bytes = [0; HEADER_LEN];
        let Some((arrival, _)) = self.exchange.receive(&mut bytes, timeout)? else {
            return Ok(None);
        };
        let is_reply = arrival.len >= HEADER_LEN && bytes[0] == ECHO_REPLY[usize::from(self.v6)];
        Ok(is_reply.then(|| Reply {
            number: u32::from(u16::from_be_bytes([bytes[6], bytes[7]])),
            at: arrival.at.unwrap_or_else(longhaul_linux::clock::wall),
            responder_time: None,
        }))
    }

    fn departure(&mut self) -> io::Result<Option<Departure>> {
        self.exchange.departure()
    }

    fn len_min(&self) -> usize {
        self.ip_header_len() + HEADER_LEN
    }

    fn mtu(&self) -> io::Result<u32> {
        self.exchange.mtu()
    }
}
