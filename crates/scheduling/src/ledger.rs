// SPDX-License-Identifier: MIT OR Apache-2.0
//! What each stream was given and its far end has not yet confirmed. TCP keeps order, so a count of parcels says which.

use super::Parcel;
use longhaul_units::Time;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Of all streams of a conversation. Memory: a parcel's number for each that is under way, and of small files 8 bytes
/// each; what is under way is bounded by the buffers that hold it. And 8 bytes for each stream that has ended.
#[derive(Debug, Default)]
pub struct Ledger {
    streams: BTreeMap<u64, Stream>,
    ended: BTreeSet<u64>,
}

#[derive(Debug)]
struct Stream {
    confirmed: u64,
    under_way: VecDeque<Flight>,
    /// Since when the first of them has the stream for itself.
    since: Time,
}

/// A parcel under way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flight {
    /// What it is.
    pub parcel: Parcel,
    /// Its length in bytes.
    pub bytes: u64,
}

/// A far end confirmed what it was never sent.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("stream {stream}: {count} parcels confirmed of {sent} that were sent")]
pub struct Overcounted {
    stream: u64,
    count: u64,
    sent: u64,
}

/// The far end of a stream has ended, which the near end may not know yet: the parcel goes on another.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("the stream has ended")]
pub struct HasEnded(pub Parcel);

impl Ledger {
    /// A stream begins to carry a parcel of so many bytes.
    pub fn sent(
        &mut self,
        stream: u64,
        parcel: Parcel,
        bytes: u64,
        now: Time,
    ) -> Result<(), HasEnded> {
        if self.has_ended(stream) {
            return Err(HasEnded(parcel));
        }
        let stream = self.stream(stream, now);
        if stream.under_way.is_empty() {
            stream.since = now;
        }
        stream.under_way.push_back(Flight { parcel, bytes });
        Ok(())
    }

    fn stream(&mut self, number: u64, now: Time) -> &mut Stream {
        self.streams.entry(number).or_insert_with(|| Stream {
            confirmed: 0,
            under_way: VecDeque::new(),
            since: now,
        })
    }

    /// The far end has received `count` parcels of a stream, from its beginning on. What it confirmed before it may
    /// confirm again, also after the stream's end: it counts and tells in several threads.
    pub fn received(&mut self, stream: u64, count: u64, now: Time) -> Result<(), Overcounted> {
        if self.has_ended(stream) {
            return Ok(());
        }
        let of = self.stream(stream, now);
        let sent = of.confirmed + of.under_way.len() as u64;
        if count > sent {
            return Err(Overcounted {
                stream,
                count,
                sent,
            });
        }
        let more = count.saturating_sub(of.confirmed);
        if more > 0 {
            of.under_way.drain(..more as usize);
            of.confirmed += more;
            of.since = now;
        }
        Ok(())
    }

    /// A stream has ended, and its far end received `count` parcels of it: what did not arrive. Nothing more is sent on it.
    pub fn ended(
        &mut self,
        stream: u64,
        count: u64,
        now: Time,
    ) -> Result<VecDeque<Parcel>, Overcounted> {
        self.received(stream, count, now)?;
        self.ended.insert(stream);
        let under_way = self.streams.remove(&stream).map(|ended| ended.under_way);
        let lost = under_way.into_iter().flatten().map(|flight| flight.parcel);
        Ok(lost.collect())
    }

    /// Whether the far end of a stream has ended.
    #[must_use]
    pub fn has_ended(&self, stream: u64) -> bool {
        self.ended.contains(&stream)
    }

    /// Whether a stream has nothing under way.
    #[must_use]
    pub fn is_idle(&self, stream: u64) -> bool {
        let of = self.streams.get(&stream);
        of.is_none_or(|stream| stream.under_way.is_empty())
    }

    /// Streams that have something under way: since when the first of it, and all of it in its order.
    pub fn under_way(&self) -> impl Iterator<Item = (u64, Time, &VecDeque<Flight>)> {
        let all = self.streams.iter();
        all.filter(|(_, stream)| !stream.under_way.is_empty())
            .map(|(number, stream)| (*number, stream.since, &stream.under_way))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Time = Time::ZERO;

    fn block(block: u64) -> Parcel {
        Parcel::Block { file: 1, block }
    }

    fn is_settled(ledger: &Ledger) -> bool {
        ledger.under_way().next().is_none()
    }

    #[test]
    fn what_a_broken_stream_did_not_deliver_is_known() {
        let mut ledger = Ledger::default();
        for number in 0..4 {
            ledger.sent(number % 2, block(number), 9, NOW).unwrap();
        }
        ledger.received(0, 1, NOW).unwrap();
        assert_eq!(ledger.ended(0, 1, NOW).unwrap(), [block(2)]);
        assert!(!is_settled(&ledger));
        assert_eq!(ledger.ended(1, 2, NOW).unwrap(), []);
        assert!(is_settled(&ledger));
    }

    /// The far end notices first that a stream broke, and tells it before the near end has sent all that it will.
    #[test]
    fn nothing_is_sent_on_a_stream_that_has_ended() {
        let mut ledger = Ledger::default();
        ledger.sent(0, block(0), 9, NOW).unwrap();
        assert_eq!(ledger.ended(0, 0, NOW).unwrap(), [block(0)]);
        assert_eq!(ledger.sent(0, block(1), 9, NOW), Err(HasEnded(block(1))));
        assert!(is_settled(&ledger));
        assert_eq!(ledger.ended(0, 0, NOW).unwrap(), []);
        ledger.received(0, 1, NOW).unwrap();
        assert!(is_settled(&ledger));
        assert_eq!(
            ledger.ended(7, 0, NOW).unwrap(),
            [],
            "one that never carried"
        );
        assert!(ledger.has_ended(7) && !ledger.has_ended(1));
        assert!(ledger.sent(7, block(1), 9, NOW).is_err());
    }

    #[test]
    fn a_late_count_takes_nothing_back_and_an_excess_is_refused() {
        let mut ledger = Ledger::default();
        ledger.sent(0, block(0), 9, NOW).unwrap();
        ledger.sent(0, block(1), 9, NOW).unwrap();
        ledger.received(0, 2, NOW).unwrap();
        ledger.received(0, 1, NOW).unwrap();
        assert!(is_settled(&ledger));
        let refused = ledger.received(0, 3, NOW).unwrap_err().to_string();
        assert_eq!(refused, "stream 0: 3 parcels confirmed of 2 that were sent");
        assert!(ledger.received(9, 1, NOW).is_err());
    }
}
