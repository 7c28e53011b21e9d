// SPDX-License-Identifier: MIT OR Apache-2.0
//! The far end of a probe: says when questions came.

use super::message::{Jar, Kind, LEN, Message};
use anyhow::Result;
use longhaul_command::exit::port_not_opened;
use longhaul_linux::{clock, timestamps::TimestampSocket};
use longhaul_units::{BitRate, Time};
use std::{net::SocketAddr, time::Duration};

/// How often it looks whether it is to end.
const LOOK: Duration = Duration::from_millis(200);
/// IP and UDP headers of an answer, IPv6.
const HEADERS: u64 = 48;

/// Answers until `span` is over, or for ever.
pub(super) fn run(
    address: SocketAddr,
    limit: BitRate,
    span: Option<Time>,
    say: &mut dyn FnMut(&str),
) -> Result<()> {
    let exchange = TimestampSocket::responder(address)
        .map_err(|error| port_not_opened(format!("cannot answer probes at {address}"), error))?;
    let mut responder = Responder::new(limit)?;
    say(&format!("answering probes at {}", exchange.address()?));
    let end = span.map(|span| clock::now() + span);
    while end.is_none_or(|end| clock::now() < end) {
        responder.next(&exchange)?;
    }
    say(&format!(
        "answered {}, left out {} beyond {limit}, ignored {}",
        responder.answered, responder.limited, responder.ignored
    ));
    Ok(())
}

struct Responder {
    jar: Jar,
    bucket: Bucket,
    answered: u64,
    limited: u64,
    ignored: u64,
}

impl Responder {
    fn new(limit: BitRate) -> Result<Self> {
        let mut secret = [0; 32];
        rustix::rand::getrandom(&mut secret, rustix::rand::GetRandomFlags::empty())?;
        Ok(Self {
            jar: Jar::new(secret),
            bucket: Bucket::new(limit, clock::now()),
            answered: 0,
            limited: 0,
            ignored: 0,
        })
    }

    /// The next message, if one comes soon. An answer that can't be sent is lost, as on the wire.
    fn next(&mut self, exchange: &TimestampSocket) -> Result<()> {
        let mut bytes = [0; LEN];
        // What others' answers met comes back as errors of this socket, which stays sound.
        let Ok(Some((arrival, Some(from)))) = exchange.receive(&mut bytes, LOOK) else {
            return Ok(());
        };
        let wall = clock::wall();
        let at = arrival.at.unwrap_or(wall);
        let Some(answer) = Message::read(&bytes[..arrival.len])
            .and_then(|asked| answer(&self.jar, &asked, from, at))
        else {
            self.ignored += 1;
            return Ok(());
        };
        if !self.bucket.take(clock::now(), LEN as u64 + HEADERS) {
            self.limited += 1;
            return Ok(());
        }
        answer.write(&mut bytes);
        if exchange.send_to(&bytes, from).is_ok() {
            self.answered += 1;
        }
        Ok(())
    }
}

/// What is said to a message from `from` that came at `at`; nothing to what has no right to it.
fn answer(jar: &Jar, asked: &Message, from: SocketAddr, at: Time) -> Option<Message> {
    let minute = at.as_nanos() / 60_000_000_000;
    match asked.kind {
        Kind::Hello => Some(Message::new(
            Kind::Cookie,
            jar.cookie(from, minute),
            asked.number,
        )),
        Kind::Question if jar.is_ours(&asked.cookie, from, minute) => Some(Message {
            kind: Kind::Answer,
            arrival_ns: at.as_nanos(),
            ..*asked
        }),
        _ => None,
    }
}

/// A token bucket of a tenth of a second.
struct Bucket {
    rate: BitRate,
    bytes: u64,
    most: u64,
    filled: Time,
}

impl Bucket {
    fn new(rate: BitRate, now: Time) -> Self {
        let most = rate
            .bytes_in(Time::from_millis(100))
            .max(2 * (LEN as u64 + HEADERS));
        Self {
            rate,
            bytes: most,
            most,
            filled: now,
        }
    }

    fn take(&mut self, now: Time, bytes: u64) -> bool {
        let new = self.rate.bytes_in(now - self.filled);
        if new > 0 {
            self.bytes = (self.bytes + new).min(self.most);
            self.filled = now;
        }
        let enough = self.bytes >= bytes;
        self.bytes -= if enough { bytes } else { 0 };
        enough
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_owner_of_a_cookie_is_told() {
        let jar = Jar::new([1; 32]);
        let [owner, thief] = ["192.0.2.1:5", "192.0.2.2:5"].map(|text| text.parse().unwrap());
        let at = Time::from_secs(6000);
        let cookie = answer(&jar, &Message::new(Kind::Hello, [0; 16], 1), owner, at)
            .unwrap()
            .cookie;
        let question = Message::new(Kind::Question, cookie, 7);
        let told = answer(&jar, &question, owner, at).unwrap();
        assert_eq!(
            (told.kind, told.number, told.arrival_ns),
            (Kind::Answer, 7, at.as_nanos())
        );
        assert_eq!(answer(&jar, &question, thief, at), None);
        assert_eq!(answer(&jar, &told, owner, at), None);
    }

    #[test]
    fn a_bucket_lets_through_its_rate_and_no_more() {
        let mut bucket = Bucket::new(BitRate::from_bits(800_000), Time::ZERO);
        let mut let_through = 0;
        for ms in 0..1000 {
            let_through += u64::from(bucket.take(Time::from_millis(ms), 1000));
        }
        // 100,000 bytes a second, and the 10,000 that it began with.
        assert!((108..=110).contains(&let_through), "{let_through}");
    }
}
