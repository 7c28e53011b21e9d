// SPDX-License-Identifier: MIT OR Apache-2.0
//! Parcels in flight on each stream: sent, and not yet confirmed by the receiver. A stream keeps their order, so the
//! number of confirmed parcels identifies them.

use super::Parcel;
use longhaul_units::Time;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Parcels in flight on all streams of a session. Memory: an entry for each parcel in flight, 8 bytes for each small
/// file in it, and 8 bytes for each stream that has ended. The data buffers limit the number of parcels in flight.
#[derive(Debug, Default)]
pub struct Ledger {
    streams: BTreeMap<u64, Stream>,
    ended: BTreeSet<u64>,
}

#[derive(Debug)]
struct Stream {
    /// Number of parcels that the receiver has confirmed.
    confirmed: u64,
    in_flight: VecDeque<SentParcel>,
    /// Time at which the oldest parcel in flight became the oldest.
    head_since: Time,
}

/// A parcel in flight.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SentParcel {
    /// The parcel itself.
    pub parcel: Parcel,
    /// Length in bytes.
    pub bytes: u64,
}

/// An error: the receiver confirmed more parcels than were sent.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("stream {stream}: {count} parcels confirmed of {sent} that were sent")]
pub struct ExcessConfirmation {
    stream: u64,
    count: u64,
    sent: u64,
}

/// An error: the receiver has ended the stream, and the sender may not know it yet. The parcel must be sent on another
/// stream.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("the stream has ended")]
pub struct StreamEnded(pub Parcel);

impl Ledger {
    /// Records that a stream begins to carry a parcel of `bytes`. Returns the parcel as an error if the stream has
    /// ended.
    pub fn record_sent(
        &mut self,
        stream: u64,
        parcel: Parcel,
        bytes: u64,
        now: Time,
    ) -> Result<(), StreamEnded> {
        if self.has_ended(stream) {
            return Err(StreamEnded(parcel));
        }
        let stream = self.stream(stream, now);
        if stream.in_flight.is_empty() {
            stream.head_since = now;
        }
        stream.in_flight.push_back(SentParcel { parcel, bytes });
        Ok(())
    }

    fn stream(&mut self, number: u64, now: Time) -> &mut Stream {
        self.streams.entry(number).or_insert_with(|| Stream {
            confirmed: 0,
            in_flight: VecDeque::new(),
            head_since: now,
        })
    }

    /// Records that the receiver has received the first `count` parcels of a stream. Counts may arrive out of order or
    /// after the stream's end, because several threads of the receiver report them. A count of more parcels than were
    /// sent is an error.
    pub fn confirm(
        &mut self,
        stream: u64,
        count: u64,
        now: Time,
    ) -> Result<(), ExcessConfirmation> {
        if self.has_ended(stream) {
            return Ok(());
        }
        let state = self.stream(stream, now);
        let sent = state.confirmed + state.in_flight.len() as u64;
        if count > sent {
            return Err(ExcessConfirmation {
                stream,
                count,
                sent,
            });
        }
        let more = count.saturating_sub(state.confirmed);
        if more > 0 {
            state.in_flight.drain(..more as usize);
            state.confirmed += more;
            state.head_since = now;
        }
        Ok(())
    }

    /// Records that a stream has ended after the receiver received its first `count` parcels. Returns the parcels that
    /// did not arrive. Nothing more is sent on the stream. A count of more parcels than were sent is an error.
    pub fn close(
        &mut self,
        stream: u64,
        count: u64,
        now: Time,
    ) -> Result<VecDeque<Parcel>, ExcessConfirmation> {
        self.confirm(stream, count, now)?;
        self.ended.insert(stream);
        let in_flight = self.streams.remove(&stream).map(|stream| stream.in_flight);
        let lost = in_flight.into_iter().flatten().map(|sent| sent.parcel);
        Ok(lost.collect())
    }

    /// Whether the receiver has ended a stream.
    #[must_use]
    pub fn has_ended(&self, stream: u64) -> bool {
        self.ended.contains(&stream)
    }

    /// Whether a stream has no parcel in flight.
    #[must_use]
    pub fn is_idle(&self, stream: u64) -> bool {
        let state = self.streams.get(&stream);
        state.is_none_or(|stream| stream.in_flight.is_empty())
    }

    /// Streams with parcels in flight: the stream's number, the time at which its oldest parcel became the oldest, and
    /// all its parcels in order.
    pub fn in_flight(&self) -> impl Iterator<Item = (u64, Time, &VecDeque<SentParcel>)> {
        let all = self.streams.iter();
        all.filter(|(_, stream)| !stream.in_flight.is_empty())
            .map(|(number, stream)| (*number, stream.head_since, &stream.in_flight))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Time = Time::ZERO;

    fn block(block: u64) -> Parcel {
        Parcel::Block { file: 1, block }
    }

    fn is_empty(ledger: &Ledger) -> bool {
        ledger.in_flight().next().is_none()
    }

    #[test]
    fn returns_parcels_that_a_broken_stream_lost() {
        let mut ledger = Ledger::default();
        for number in 0..4 {
            ledger
                .record_sent(number % 2, block(number), 9, NOW)
                .unwrap();
        }
        ledger.confirm(0, 1, NOW).unwrap();
        assert_eq!(ledger.close(0, 1, NOW).unwrap(), [block(2)]);
        assert!(!is_empty(&ledger));
        assert_eq!(ledger.close(1, 2, NOW).unwrap(), []);
        assert!(is_empty(&ledger));
    }

    /// The receiver notices first that a stream broke, and reports it before the sender has sent all its parcels.
    #[test]
    fn refuses_parcels_for_a_stream_that_has_ended() {
        let mut ledger = Ledger::default();
        ledger.record_sent(0, block(0), 9, NOW).unwrap();
        assert_eq!(ledger.close(0, 0, NOW).unwrap(), [block(0)]);
        assert_eq!(
            ledger.record_sent(0, block(1), 9, NOW),
            Err(StreamEnded(block(1)))
        );
        assert!(is_empty(&ledger));
        assert_eq!(ledger.close(0, 0, NOW).unwrap(), []);
        ledger.confirm(0, 1, NOW).unwrap();
        assert!(is_empty(&ledger));
        assert_eq!(
            ledger.close(7, 0, NOW).unwrap(),
            [],
            "a stream without parcels"
        );
        assert!(ledger.has_ended(7) && !ledger.has_ended(1));
        assert!(ledger.record_sent(7, block(1), 9, NOW).is_err());
    }

    #[test]
    fn ignores_late_counts_and_refuses_excessive_ones() {
        let mut ledger = Ledger::default();
        ledger.record_sent(0, block(0), 9, NOW).unwrap();
        ledger.record_sent(0, block(1), 9, NOW).unwrap();
        ledger.confirm(0, 2, NOW).unwrap();
        ledger.confirm(0, 1, NOW).unwrap();
        assert!(is_empty(&ledger));
        let error = ledger.confirm(0, 3, NOW).unwrap_err().to_string();
        assert_eq!(error, "stream 0: 3 parcels confirmed of 2 that were sent");
        assert!(ledger.confirm(9, 1, NOW).is_err());
    }
}
