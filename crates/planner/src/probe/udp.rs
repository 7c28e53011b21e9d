// SPDX-License-Identifier: MIT OR Apache-2.0
//! Asks a responder of `plan probe --serve`.

use super::{
    capacity,
    config::Config,
    echo::{Answer, Echo},
    message::{Cookie, Kind, LEN, Message},
    path_mtu,
    report::Measured,
    rounds,
    target::Target,
};
use anyhow::{Context, Result};
use longhaul_linux::timestamps::{Departure, TimestampSocket};
use longhaul_units::Time;
use std::{io, net::SocketAddr, time::Duration};

/// Nothing answered.
#[derive(Debug, thiserror::Error)]
#[error(
    "nothing answers at {0} by UDP: run 'longhaul plan probe --serve ADDRESS:PORT' there, or ask by --method icmp or tcp"
)]
pub(super) struct Silent(SocketAddr);

/// Hellos, and how long each waits.
const HELLOS: u32 = 5;
const PATIENCE: Duration = Duration::from_millis(600);

pub(super) fn measure(target: &Target, address: SocketAddr, config: &Config) -> Result<Measured> {
    let mut far = Responder::find(address)?;
    let rounds = rounds::measure(&mut far, config.count, config.interval)?;
    let mut measured = Measured::new(target, "udp", rounds);
    measured.path_mtu = path_mtu::measure(&mut far, measured.patience())?;
    if let Some(mtu) = measured.path_mtu
        && config.trains > 0
    {
        let patience = measured.patience();
        measured.capacity = capacity::measure(&mut far, mtu, config, patience)?;
    }
    Ok(measured)
}

/// A responder whose cookie is known.
struct Responder {
    exchange: TimestampSocket,
    cookie: Cookie,
    headers: usize,
    asked: u32,
}

impl Responder {
    fn find(address: SocketAddr) -> Result<Self> {
        let mut far = Self {
            exchange: TimestampSocket::udp(address)
                .with_context(|| format!("cannot send to {address}"))?,
            cookie: Cookie::default(),
            headers: if address.is_ipv4() { 28 } else { 48 },
            asked: 0,
        };
        for _ in 0..HELLOS {
            // Refused: nobody is there yet, or nobody will be.
            let Ok(()) = far.hello() else {
                std::thread::sleep(PATIENCE);
                continue;
            };
            if let Ok(Some(message)) = far.message(PATIENCE)
                && message.0.kind == Kind::Cookie
            {
                far.cookie = message.0.cookie;
                return Ok(far);
            }
        }
        Err(Silent(address).into())
    }

    fn hello(&mut self) -> io::Result<()> {
        let mut bytes = [0; LEN];
        Message::new(Kind::Hello, self.cookie, self.asked).write(&mut bytes);
        self.exchange.send(&bytes)?;
        self.asked += 1;
        Ok(())
    }

    fn message(&mut self, patience: Duration) -> io::Result<Option<(Message, Time)>> {
        let mut bytes = [0; LEN];
        let Some((arrival, _)) = self.exchange.receive(&mut bytes, patience)? else {
            return Ok(None);
        };
        let at = arrival.at.unwrap_or_else(longhaul_linux::clock::wall);
        Ok(Message::read(&bytes[..arrival.len]).map(|message| (message, at)))
    }
}

impl Echo for Responder {
    fn ask(&mut self, len: usize) -> io::Result<u32> {
        let mut bytes = vec![0; len - self.headers];
        Message::new(Kind::Question, self.cookie, self.asked).write(&mut bytes);
        self.exchange.send(&bytes)?;
        self.asked += 1;
        Ok(self.asked - 1)
    }

    fn answer(&mut self, patience: Duration) -> io::Result<Option<Answer>> {
        let answered = self.message(patience)?;
        Ok(answered
            .filter(|(message, _)| message.kind == Kind::Answer && message.cookie == self.cookie)
            .map(|(message, at)| Answer {
                number: message.number,
                at,
                there: Some(Time::from_nanos(message.arrival_ns)),
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
