// SPDX-License-Identifier: MIT OR Apache-2.0
//! UDT4 (draft-gg-udt-03, and the code of libudt 4.11, with which it interoperates) as state machines without I/O:
//! datagrams and the time go in, datagrams and deadlines come out. [`socket`] drives them on UDP sockets.
//!
//! [`Connector`] and [`Listener`] create [`Connection`]s. The driver of a connection passes it each packet with its
//! connection ID ([`Connection::handle`]). It calls [`Connection::transmit`] until that returns `false`, and calls it
//! again at the [deadline](Connection::deadline). A [`congestion::Control`] sets the sending rate and the window.
//!
//! A connection carries a byte stream (`SOCK_STREAM` of libudt). Message mode (`SOCK_DGRAM`) is refused.
//!
//! No packet of a peer is trusted beyond what was sent or announced: a packet that claims more is ignored. libudt
//! breaks the connection there, so anyone who guesses a connection ID can break it.
//!
//! # Where the draft, the note of 2009 and the code of UDT4 differ
//!
//! SYN is the draft's word for an interval of 10 ms ([`congestion::SYN_INTERVAL`]). It is not TCP's SYN.
//!
//! | subject | draft, note | code of UDT4 | this crate |
//! |---|---|---|---|
//! | weight of the old RTT variation | 3/4 (note: 7/8) | 3/4 | 3/4 |
//! | initial window | 2 (note) | 16 | 16 |
//! | arrival rate before it is measured | unknown | 1 packet/s, then 16 | unknown |
//! | link capacity before 32 pairs arrived | – | 1000 packets/s | estimate of 4 or more packet trains |
//! | packets that measure the link capacity | every 16th pair | every 16th pair | every 16th pair, and packets sent in one microsecond |
//! | receive time of a packet | – | when it is read | when the kernel received it |
//! | weight of the first RTT sample | – | 1/8, beside 100 ms | 1 |
//! | rate after slow start if none is known | window / (RTT + SYN) | the inverse of that | as the draft |
//! | least increase | 1/MSS | 0.01 packets per SYN | 0.01 |
//! | decreases in a loss period | unbounded | 5 | 5 |
//! | packet that is lost again | reported again | resent after an expiration | for UDT4: resent after an RTT bound and two SYN |
//! | first report of a gap | at once | at once | after the [reordering](crate#reordering) that the path shows |
//! | periodic loss reports | yes | switched off | each RTT + 4 variations + SYN + the wait for late packets |
//! | packets behind the first missing one | not told | not told | counted in an ACK's seventh word, which UDT4 ignores |
//! | ICMP port unreachable | – | ignored | ends the connection unless the peer answers |
//! | expiration time | RTT + 4 variations + SYN, at least 100 ms | at least 300 ms | two of these round trips, at least 300 ms |
//! | packets lost at an expiration | all | all | the reported ones and the last packet; all at the second |
//! | idle timeout | 16 expirations and 10 s | 16 and 5 s, 41 s at least | [`Config::idle_timeout`] |
//! | cookie of the minute before | valid | never matches | valid |
//! | shutdown | sent once | sent once | sent up to 5 times, answered, and with the last ACK |
//! | packet length | as negotiated | as negotiated | the part of it that [the path carries](crate#packet-length) |
//! | last ACK before a pause | after a SYN | after 100 ms, or at the next packet | after a SYN; UDT4 is asked with a keep-alive |
//! | ACK or loss report of unsent packets | – | breaks the connection | ignored |
//! | request to drop a part of a stream | – | obeyed, and never sent | ignored |
//!
//! # Reordering
//!
//! A receiver reports a gap after a reordering window, as RACK does (RFC 8985 §6.2). The window is a quarter of the
//! minimum round trip or, if that is more, five quarters of the time by which packets were late. It is at most the
//! upper bound of the round trip. A packet was late, and not lost, if its timestamp is no later than that of the packet
//! behind the gap. 16 to 32 recoveries later, a lateness is forgotten. While packets were lost and none was late, a gap
//! is reported as soon as three packets are behind it.
//!
//! # Packet length
//!
//! Both endpoints negotiate the maximum packet length, which the path may not carry. Data therefore starts in short
//! packets (1280 bytes with IPv6). Once a probe of the negotiated length is answered, usually after one round trip,
//! data uses that length. If it is not answered, a search finds the longest length that passes (RFC 8899). A probe is a
//! handshake request with padding: libudt answers it as if its own response had been lost.

#![cfg_attr(not(test), warn(unused_crate_dependencies))]

mod config;
pub mod congestion;
mod connection;
mod endpoint;
mod halves;
pub mod packet;
pub mod socket;

pub use config::Config;
pub use connection::{
    CloseReason, Connection, Stats,
    connector::{ConnectOutcome, Connector, ControlFactory},
    listener::{HandshakeOutcome, Listener},
};
pub use endpoint::{Endpoint, Event};
pub use halves::sender::Counts;
pub use packet::number::{MessageNumber, Seq};
