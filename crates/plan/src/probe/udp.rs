// SPDX-License-Identifier: MIT OR Apache-2.0
//! Probes by UDP, with a responder of `plan measure --serve`.

use super::{
    capacity,
    config::Config,
    message::{Cookie, Kind, LEN, Message},
    path_mtu,
    report::Measurement,
    responder::{Reply, Responder},
    rtt,
    target::Target,
};
use anyhow::{Context, Result};
use longhaul_linux::timestamps::{Departure, TimestampSocket};
use longhaul_units::Time;
use std::{io, net::SocketAddr, time::Duration};

/// Error: no reply by UDP.
#[derive(Debug, thiserror::Error)]
#[error(
    "no reply from {0} by UDP: run 'longhaul plan measure --serve ADDRESS:PORT' there, or use --method icmp or tcp"
)]
pub(super) struct NoReply(SocketAddr);

/// Maximum number of hellos.
const HELLOS_MAX: u32 = 5;
/// Timeout of the reply to a hello.
const HELLO_TIMEOUT: Duration = Duration::from_millis(600);

pub(super) fn measure(
    target: &Target,
    address: SocketAddr,
    config: &Config,
) -> Result<Measurement> {
    let mut responder = UdpResponder::connect(address)?;
    let samples = rtt::measure(&mut responder, config.count, config.interval)?;
    let mut measured = Measurement::new(target, "udp", samples);
    measured.path_mtu = path_mtu::measure(&mut responder, measured.reply_timeout())?;
    if let Some(mtu) = measured.path_mtu
        && config.trains > 0
    {
        let timeout = measured.reply_timeout();
        measured.capacity = capacity::measure(&mut responder, mtu, config, timeout)?;
    }
    Ok(measured)
}

/// Responder whose cookie is known.
struct UdpResponder {
    exchange: TimestampSocket,
    cookie: Cookie,
    headers: usize,
    next_number: u32,
}

impl UdpResponder {
    fn connect(address: SocketAddr) -> Result<Self> {
        let mut responder = Self {
            exchange: TimestampSocket::udp(address)
                .with_context(|| format!("cannot send to {address}"))?,
            cookie: Cookie::default(),
            headers: if address.is_ipv4() { 28 } else { 48 },
            next_number: 0,
        };
        for _ in 0..HELLOS_MAX {
            // Refused: no responder runs yet.
            let Ok(()) = responder.send_hello() else {
                std::thread::sleep(HELLO_TIMEOUT);
                continue;
            };
            if let Ok(Some(message)) = responder.receive_message(HELLO_TIMEOUT)
                && message.0.kind == Kind::Cookie
            {
                responder.cookie = message.0.cookie;
                return Ok(responder);
            }
        }
        Err(NoReply(address).into())
    }

    fn send_hello(&mut self) -> io::Result<()> {
        let mut bytes = [0; LEN];
        Message::new(Kind::Hello, self.cookie, self.next_number).write(&mut bytes);
        self.exchange.send(&bytes)?;
        self.next_number += 1;
        Ok(())
    }

    fn receive_message(&mut self, timeout: Duration) -> io::Result<Option<(Message, Time)>> {
        let mut bytes = [0; LEN];
        let Some((arrival, _)) = self.exchange.receive(&mut bytes, timeout)? else {
            return Ok(None);
        };
        let at = arrival.at.unwrap_or_else(longhaul_linux::clock::wall);
        Ok(Message::read(&bytes[..arrival.len]).map(|message| (message, at)))
    }
}

impl Responder for UdpResponder {
    fn send_request(&mut self, len: usize) -> io::Result<u32> {
        let mut bytes = vec![0; len - self.headers];
        Message::new(Kind::Request, self.cookie, self.next_number).write(&mut bytes);
        self.exchange.send(&bytes)?;
        self.next_number += 1;
        Ok(self.next_number - 1)
    }

    fn receive_reply(&mut self, timeout: Duration) -> io::Result<Option<Reply>> {
        let received = self.receive_message(timeout)?;
        Ok(received
            .filter(|(message, _)| message.kind == Kind::Reply && message.cookie == self.cookie)
            .map(|(message, at)| Reply {
                number: message.number,
                at,
                responder_time: Some(Time::from_nanos(message.arrival_ns)),
            }))
    }

    fn departure(&mut self) -> io::Result<Option<Departure>> {
        self.exchange.departure()
    }

    fn len_min(&self) -> usize {
        self.headers + LEN
    }

    fn mtu(&self) -> io::Result<u32> {
        self.exchange.mtu()
    }
}
