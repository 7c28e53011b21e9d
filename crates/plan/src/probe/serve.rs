// SPDX-License-Identifier: MIT OR Apache-2.0
//! Responder of `plan measure --serve`: replies to requests with their arrival times.

use super::message::{CookieGenerator, Kind, LEN, Message};
use anyhow::Result;
use longhaul_admission::rate_limits::Bucket;
use longhaul_command::exit::bind_error;
use longhaul_linux::{clock, random::random_bytes, timestamps::TimestampSocket};
use longhaul_units::{BitRate, Time};
use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

/// Longest wait for a message, after which the end is checked.
const RECEIVE_TIMEOUT: Duration = Duration::from_millis(200);
/// Bytes of the IPv6 and UDP headers of a reply.
const HEADERS: usize = 48;

/// Responds until `duration` is over, or forever.
pub(super) fn run(
    address: SocketAddr,
    limit: BitRate,
    duration: Option<Time>,
    say: &mut dyn FnMut(&str),
) -> Result<()> {
    let exchange = TimestampSocket::responder(address)
        .map_err(|error| bind_error(format!("cannot answer probes at {address}"), error))?;
    let mut responder = ProbeServer::new(limit)?;
    say(&format!("answering probes at {}", exchange.address()?));
    let end = duration.map(|duration| clock::now() + duration);
    while end.is_none_or(|end| clock::now() < end) {
        responder.next(&exchange)?;
    }
    say(&format!(
        "sent {} replies, dropped {} beyond {limit}, ignored {} messages",
        responder.answered, responder.limited, responder.ignored
    ));
    Ok(())
}

struct ProbeServer {
    jar: CookieGenerator,
    rate: Bucket,
    /// Messages that arrive earlier get no reply.
    next_reply: Instant,
    answered: u64,
    limited: u64,
    ignored: u64,
}

impl ProbeServer {
    fn new(limit: BitRate) -> Result<Self> {
        let now = Instant::now();
        Ok(Self {
            jar: CookieGenerator::new(random_bytes()?),
            rate: Bucket::new(limit, now),
            next_reply: now,
            answered: 0,
            limited: 0,
            ignored: 0,
        })
    }

    /// Handles the next message, if one arrives soon. A reply that can't be sent is lost, as on the network.
    fn next(&mut self, exchange: &TimestampSocket) -> Result<()> {
        let mut bytes = [0; LEN];
        // ICMP errors of earlier replies are reported by this socket, which remains usable.
        let Ok(Some((arrival, Some(from)))) = exchange.receive(&mut bytes, RECEIVE_TIMEOUT) else {
            return Ok(());
        };
        let wall = clock::wall();
        let at = arrival.at.unwrap_or(wall);
        let Some(answer) = Message::read(&bytes[..arrival.len])
            .and_then(|asked| reply(&self.jar, &asked, from, at))
        else {
            self.ignored += 1;
            return Ok(());
        };
        if !self.may_reply(Instant::now()) {
            self.limited += 1;
            return Ok(());
        }
        answer.write(&mut bytes);
        if exchange.send_to(&bytes, from).is_ok() {
            self.answered += 1;
        }
        Ok(())
    }

    /// Whether the limit lets a reply be sent at `now`, and counts it as sent.
    fn may_reply(&mut self, now: Instant) -> bool {
        let may = now >= self.next_reply;
        if may {
            self.next_reply = self.rate.spend(LEN + HEADERS, now);
        }
        may
    }
}

/// Returns the reply to a message that arrived from `from` at `at`; `None` if it has no valid cookie.
fn reply(jar: &CookieGenerator, asked: &Message, from: SocketAddr, at: Time) -> Option<Message> {
    let minute = at.as_nanos() / 60_000_000_000;
    match asked.kind {
        Kind::Hello => Some(Message::new(
            Kind::Cookie,
            jar.cookie(from, minute),
            asked.number,
        )),
        Kind::Request if jar.is_valid(&asked.cookie, from, minute) => Some(Message {
            kind: Kind::Reply,
            arrival_ns: at.as_nanos(),
            ..*asked
        }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limit_bounds_replies() {
        let limit = BitRate::from_bits(8 * 1000 * (LEN + HEADERS) as u64);
        let mut server = ProbeServer::new(limit).unwrap();
        let start = Instant::now();
        // A request each 0.1 ms for a second: 1,000 replies, and a burst of 50 ms.
        let at = |n: u64| start + Duration::from_micros(100 * n);
        let replies = (0..10_000).filter(|n| server.may_reply(at(*n))).count();
        assert_eq!(replies, 1050);
    }

    #[test]
    fn replies_only_to_the_owner_of_a_cookie() {
        let jar = CookieGenerator::new([1; 32]);
        let [owner, thief] = ["192.0.2.1:5", "192.0.2.2:5"].map(|text| text.parse().unwrap());
        let at = Time::from_secs(6000);
        let cookie = reply(&jar, &Message::new(Kind::Hello, [0; 16], 1), owner, at)
            .unwrap()
            .cookie;
        let question = Message::new(Kind::Request, cookie, 7);
        let response = reply(&jar, &question, owner, at).unwrap();
        assert_eq!(
            (response.kind, response.number, response.arrival_ns),
            (Kind::Reply, 7, at.as_nanos())
        );
        assert_eq!(reply(&jar, &question, thief, at), None);
        assert_eq!(reply(&jar, &response, owner, at), None);
    }
}
