// SPDX-License-Identifier: MIT OR Apache-2.0
//! Packets on the wire (draft-gg-udt-03 §4): a header of sixteen bytes, big-endian, and a body.

pub mod handshake;
pub(crate) mod number;

use handshake::Handshake;
use number::{MessageNumber, Seq};

/// Length of a packet's header in bytes.
pub const HEADER_LEN: usize = 16;
/// Bit that marks the first word of a control packet, and the first word of a run in a loss report.
const HIGH_BIT: u32 = 1 << 31;

/// Packet of UDT4, parsed from a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packet<'a> {
    /// Microseconds since the sender's connection began; wraps around after 71 minutes.
    pub timestamp_us: u32,
    /// Connection ID of the receiver; 0 in a request for a new connection.
    pub destination: u32,
    /// Body and type of the packet.
    pub body: Body<'a>,
}

/// Whether a datagram is a path MTU probe: a handshake with padding after its body.
pub(crate) fn is_probe(datagram: &[u8]) -> bool {
    datagram.len() > HEADER_LEN + handshake::LEN && datagram[..2] == [0x80, 0]
}

/// Body of a packet. Numbers are those of the type field (§4.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Body<'a> {
    /// Data packet.
    Data(Data<'a>),
    /// 0: handshake.
    Handshake(Handshake),
    /// 1: keep-alive.
    KeepAlive,
    /// 2: full acknowledgement.
    Ack(Ack),
    /// 2 with nothing but the next sequence number: light acknowledgement, sent every 64 packets between full ones.
    LightAck(Seq),
    /// 3: negative acknowledgement, the loss report.
    Nak(LossReport<'a>),
    /// 4: warning of growing delay. UDT4 never sends it.
    CongestionWarning,
    /// 5: shutdown. The optional number acknowledges all packets before it. (UDT4 sends none, so an application that
    /// waits for an ACK does not learn whether its data arrived.)
    Shutdown(Option<Seq>),
    /// 6: acknowledgement of the ACK with this number.
    Ack2(u32),
    /// 7: request to drop a message that will not be retransmitted.
    Drop {
        /// Number of the message.
        message: MessageNumber,
        /// First packet of the message.
        first: Seq,
        /// Last packet of the message.
        last: Seq,
    },
    /// 8: permanent error at the peer (UDT4: a file that cannot be written).
    Error(u32),
    /// 0x7fff: data of a congestion control.
    User(&'a [u8]),
}

/// Data packet, without the header fields that all packets have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Data<'a> {
    /// Sequence number of the packet.
    pub seq: Seq,
    /// Message that the packet belongs to.
    pub message: Message,
    /// Application data.
    pub payload: &'a [u8],
}

/// Message fields of a data packet: its second word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Message {
    /// Number of the message.
    pub number: MessageNumber,
    /// Whether the packet is the first of the message.
    pub is_first: bool,
    /// Whether the packet is the last of the message.
    pub is_last: bool,
    /// Whether the message is delivered only after all messages before it.
    pub in_order: bool,
}

/// An acknowledgement (§4.2, type 2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ack {
    /// Number of the ACK, which the ACK2 repeats.
    pub number: u32,
    /// Sequence number up to which all packets have arrived, exclusive.
    pub next: Seq,
    /// Smoothed round-trip time of the receiver, in microseconds.
    pub rtt_us: u32,
    /// Variation of the round-trip time, in microseconds.
    pub rtt_var_us: u32,
    /// Free space of the receive buffer, in packets.
    pub available_buffer: u32,
    /// Rates, sent at most every 10 ms.
    pub rates: Option<Rates>,
    /// Number of packets that arrived after [`Self::next`], sent with rates. UDT4 ignores it, and sends none.
    pub out_of_order: Option<u32>,
}

/// Rates that a receiver measured, in packets per second; 0 if unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rates {
    /// Arrival rate of packets.
    pub arrival_rate: u32,
    /// Estimated link capacity, from packets that were sent back to back.
    pub capacity: u32,
}

/// Encoded runs of lost packets (§4.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LossReport<'a>(&'a [u8]);

impl<'a> Packet<'a> {
    /// Parses a datagram. Returns `None` if it is not a packet of UDT4.
    #[must_use]
    pub fn read(datagram: &'a [u8]) -> Option<Self> {
        let (header, body) = datagram.split_first_chunk::<HEADER_LEN>()?;
        let word =
            |n: usize| u32::from_be_bytes(header[4 * n..4 * n + 4].try_into().unwrap_or_default());
        let read = match word(0) & HIGH_BIT {
            0 => Some(Body::Data(Data {
                seq: Seq::new(word(0)),
                message: Message::from_word(word(1)),
                payload: body,
            })),
            _ => read_control(word(0) >> 16 & 0x7fff, word(1), body),
        };
        read.map(|body| Self {
            timestamp_us: word(2),
            destination: word(3),
            body,
        })
    }

    /// Appends the encoded packet to `to`.
    pub fn write(&self, to: &mut Vec<u8>) {
        let (kind, info) = match self.body {
            Body::Data(Data { seq, message, .. }) => (seq.get(), message.to_word()),
            Body::Handshake(_) => (HIGH_BIT, 0),
            Body::KeepAlive => (HIGH_BIT | 1 << 16, 0),
            Body::Ack(ack) => (HIGH_BIT | 2 << 16, ack.number),
            Body::LightAck(_) => (HIGH_BIT | 2 << 16, 0),
            Body::Nak(_) => (HIGH_BIT | 3 << 16, 0),
            Body::CongestionWarning => (HIGH_BIT | 4 << 16, 0),
            Body::Shutdown(arrived) => (
                HIGH_BIT | 5 << 16,
                arrived.map_or(0, |next| HIGH_BIT | next.get()),
            ),
            Body::Ack2(number) => (HIGH_BIT | 6 << 16, number),
            Body::Drop { message, .. } => (HIGH_BIT | 7 << 16, message.get()),
            Body::Error(code) => (HIGH_BIT | 8 << 16, code),
            Body::User(_) => (HIGH_BIT | 0x7fff << 16, 0),
        };
        put_words(to, &[kind, info, self.timestamp_us, self.destination]);
        self.body.write(to);
    }
}

impl Body<'_> {
    fn write(&self, to: &mut Vec<u8>) {
        match *self {
            Self::Data(data) => to.extend(data.payload),
            Self::Handshake(handshake) => handshake.write(to),
            Self::Ack(ack) => ack.write(to),
            Self::LightAck(next) => put_words(to, &[next.get()]),
            Self::Nak(losses) => to.extend(losses.0),
            Self::Drop { first, last, .. } => put_words(to, &[first.get(), last.get()]),
            Self::User(body) => to.extend(body),
            // libudt sends and expects a word where the body is empty (UDT4 packet.cpp, pack).
            Self::KeepAlive
            | Self::CongestionWarning
            | Self::Shutdown(_)
            | Self::Ack2(_)
            | Self::Error(_) => {
                put_words(to, &[0]);
            }
        }
    }
}

fn read_control(kind: u32, info: u32, body: &[u8]) -> Option<Body<'_>> {
    Some(match kind {
        0 => Body::Handshake(Handshake::read(body)?),
        1 => Body::KeepAlive,
        2 if body.len() == 4 => Body::LightAck(Seq::new(words(body).next()?)),
        2 => Body::Ack(Ack::read(info, body)?),
        3 => Body::Nak(LossReport(body)),
        4 => Body::CongestionWarning,
        5 => Body::Shutdown((info & HIGH_BIT != 0).then(|| Seq::new(info & !HIGH_BIT))),
        6 => Body::Ack2(info),
        7 => {
            let mut words = words(body);
            Body::Drop {
                message: MessageNumber::new(info),
                first: Seq::new(words.next()?),
                last: Seq::new(words.next()?),
            }
        }
        8 => Body::Error(info),
        0x7fff => Body::User(body),
        _ => return None,
    })
}

impl Message {
    /// Returns the fields for a packet of a stream: each packet is one message. No receiver reads the number.
    pub(crate) fn for_stream(seq: Seq) -> Self {
        Self {
            number: MessageNumber::new(seq.get()),
            is_first: true,
            is_last: true,
            in_order: false,
        }
    }

    fn from_word(word: u32) -> Self {
        Self {
            number: MessageNumber::new(word),
            is_first: word & 1 << 31 != 0,
            is_last: word & 1 << 30 != 0,
            in_order: word & 1 << 29 != 0,
        }
    }

    fn to_word(self) -> u32 {
        let flags = [(self.is_first, 31), (self.is_last, 30), (self.in_order, 29)];
        flags.iter().fold(self.number.get(), |word, &(is, bit)| {
            word | u32::from(is) << bit
        })
    }
}

impl Ack {
    fn read(number: u32, body: &[u8]) -> Option<Self> {
        let mut words = words(body);
        let (next, rtt_us, rtt_var_us) = (words.next()?, words.next()?, words.next()?);
        let available_buffer = words.next()?;
        let rates = words.next().zip(words.next());
        Some(Self {
            number,
            next: Seq::new(next),
            rtt_us,
            rtt_var_us,
            available_buffer,
            rates: rates.map(|(arrival_rate, capacity)| Rates {
                arrival_rate,
                capacity,
            }),
            out_of_order: words.next(),
        })
    }

    fn write(&self, to: &mut Vec<u8>) {
        put_words(
            to,
            &[
                self.next.get(),
                self.rtt_us,
                self.rtt_var_us,
                self.available_buffer,
            ],
        );
        if let Some(rates) = self.rates {
            put_words(to, &[rates.arrival_rate, rates.capacity]);
            put_words(to, self.out_of_order.as_slice());
        }
    }
}

impl<'a> LossReport<'a> {
    /// Appends runs of lost packets (§4.3) to `to`, at most `bytes_max` bytes. A run of one packet takes one word,
    /// any other two.
    pub fn encode(runs: impl IntoIterator<Item = (Seq, Seq)>, bytes_max: usize, to: &mut Vec<u8>) {
        let end = to.len() + bytes_max;
        for (first, last) in runs {
            let words: &[u32] = if first == last {
                &[first.get()]
            } else {
                &[first.get() | HIGH_BIT, last.get()]
            };
            if to.len() + words.len() * 4 > end {
                return;
            }
            put_words(to, words);
        }
    }

    /// Wraps an encoded loss report.
    #[must_use]
    pub fn from_encoded(encoded: &'a [u8]) -> Self {
        Self(encoded)
    }

    /// Iterates over the runs as pairs of first and last packet, as they were sent: the last may come before the
    /// first. A run without its last packet is omitted.
    pub fn runs(&self) -> impl Iterator<Item = (Seq, Seq)> + use<'a> {
        let mut words = words(self.0);
        std::iter::from_fn(move || {
            let first = words.next()?;
            let last = match first & HIGH_BIT {
                0 => first,
                _ => words.next()?,
            };
            Some((Seq::new(first), Seq::new(last)))
        })
    }
}

/// Iterates over the whole words of a body. Left-over bytes are ignored.
fn words(body: &[u8]) -> impl Iterator<Item = u32> + use<'_> {
    let (words, _) = body.as_chunks();
    words.iter().map(|word| u32::from_be_bytes(*word))
}

fn put_words(to: &mut Vec<u8>, words: &[u32]) {
    to.extend(words.iter().flat_map(|word| word.to_be_bytes()));
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::{collection::vec, prelude::*};

    fn assert_reads_back(body: Body<'_>) {
        let packet = Packet {
            timestamp_us: 0x0102_0304,
            destination: 0x7fff_fffe,
            body,
        };
        let mut bytes = Vec::new();
        packet.write(&mut bytes);
        assert_eq!(Packet::read(&bytes), Some(packet));
    }

    #[test]
    fn data_packet_has_the_layout_of_the_draft() {
        let packet = Packet {
            timestamp_us: 5,
            destination: 6,
            body: Body::Data(Data {
                seq: Seq::new(0x1234_5678),
                message: Message {
                    number: MessageNumber::new(9),
                    is_first: true,
                    is_last: true,
                    in_order: false,
                },
                payload: b"data",
            }),
        };
        let mut bytes = Vec::new();
        packet.write(&mut bytes);
        let expected = b"\x12\x34\x56\x78\xc0\0\0\x09\0\0\0\x05\0\0\0\x06data";
        assert_eq!(bytes, expected);
        assert_eq!(Packet::read(expected), Some(packet));
    }

    #[test]
    fn control_packets_read_back_as_written() {
        let ack = Ack {
            number: 1,
            next: Seq::new(2),
            rtt_us: 3,
            rtt_var_us: 4,
            available_buffer: 5,
            rates: None,
            out_of_order: None,
        };
        let rates = Some(Rates {
            arrival_rate: 6,
            capacity: 7,
        });
        assert_reads_back(Body::Ack(ack));
        assert_reads_back(Body::Ack(Ack {
            rates,
            out_of_order: Some(7),
            ..ack
        }));
        assert_reads_back(Body::LightAck(Seq::new(8)));
        assert_reads_back(Body::Ack2(9));
        assert_reads_back(Body::KeepAlive);
        assert_reads_back(Body::Shutdown(None));
        assert_reads_back(Body::Shutdown(Some(Seq::new(0))));
        assert_reads_back(Body::Shutdown(Some(Seq::new(0x7fff_ffff))));
        assert_reads_back(Body::CongestionWarning);
        assert_reads_back(Body::Error(4));
        assert_reads_back(Body::User(&[1, 2, 3]));
        assert_reads_back(Body::Drop {
            message: MessageNumber::new(3),
            first: Seq::new(4),
            last: Seq::new(5),
        });
    }

    proptest! {
        #[test]
        fn loss_reports_read_back_as_written(runs in vec((any::<u32>(), 0u32..5), 0..20)) {
            let runs: Vec<_> = runs.into_iter().map(|(first, more)| (Seq::new(first), Seq::new(first).plus(more))).collect();
            let mut encoded = Vec::new();
            LossReport::encode(runs.iter().copied(), 1_000, &mut encoded);
            prop_assert_eq!(LossReport::from_encoded(&encoded).runs().collect::<Vec<_>>(), runs);
            assert_reads_back(Body::Nak(LossReport::from_encoded(&encoded)));
        }

        #[test]
        fn parses_or_rejects_arbitrary_datagrams(datagram in vec(any::<u8>(), 0..100)) {
            if let Some(Packet { body: Body::Nak(losses), .. }) = Packet::read(&datagram) {
                prop_assert!(losses.runs().count() <= datagram.len() / 4);
            }
        }
    }
}
