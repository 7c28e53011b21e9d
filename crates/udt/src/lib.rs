// SPDX-License-Identifier: MIT OR Apache-2.0
//! UDT4 (draft-gg-udt-03, and the code of libudt 4.11, with which it speaks) as state machines without I/O: datagrams
//! and the time go in, datagrams and deadlines come out. [`socket`] drives them on UDP sockets.
//!
//! [`Opening`] and [`Listener`] make [`Connection`]s. Whoever drives one gives it each packet that names it
//! ([`Connection::handle`]), takes what is to be sent ([`Connection::transmit`], again and again until there is nothing),
//! and comes back at its [deadline](Connection::deadline). How fast it sends a [`congestion::Control`] decides.
//!
//! A connection carries bytes (`SOCK_STREAM` of libudt); one for messages (`SOCK_DGRAM`) is refused.
//!
//! Nothing that a peer says is believed beyond what was sent or announced: a packet that says more is passed over,
//! where libudt would break the connection, and with that anybody could who guesses its number.
//!
//! # Where the draft, the note of 2009 and the code of UDT4 differ
//!
//! | what | draft, note | code | here |
//! |---|---|---|---|
//! | variation of the round trip, of the old | 3/4 (note: 7/8) | 3/4 | 3/4 |
//! | first window | 2 (note) | 16 | 16 |
//! | rates of arrival before any is known | unknown | a packet a second, then 16 | unknown |
//! | the link's capacity before 32 pairs came | – | 1000 packets a second | what 4 or more trains say |
//! | what says what the link carries | every 16th pair | every 16th pair | that, and all that was sent in one microsecond |
//! | when a packet came | – | when it is read | when the kernel had it |
//! | the first round trip | – | an eighth of it, beside 100 ms | all of it |
//! | rate after slow start when none is known | window / (RTT + SYN) | its inverse | as the draft |
//! | the least increase | 1/MSS | 0.01 packets a SYN | 0.01 |
//! | decreases in a period of losses | no bound | 5 | 5 |
//! | what is lost again | reported again | after an expiration | to UDT4, after a long round trip and two SYN |
//! | periodic loss reports | yes | switched off | each RTT + 4 variations + SYN |
//! | time of an expiration | RTT + 4 variations + SYN, at least 100 ms | at least 300 ms | two of these round trips, at least 300 ms |
//! | what counts as lost then | all | all | what was reported missing, and the last packet; all if that brings nothing |
//! | silence that breaks a connection | 16 expirations and 10 s | 16 and 5 s, 41 s at least | [`Config::silence`] |
//! | a cookie of the minute before | good | never matches | good |
//! | the end of a connection | said once | said once | said up to 5 times, and answered; with what had arrived |
//! | the length of packets | as agreed | as agreed | what [passes](crate#the-length-of-packets) of it |
//! | the last ACK before a pause | after a SYN | after 100 ms, or when a packet comes | after a SYN; of UDT4 it is asked for with a keep-alive |
//! | an ACK or a loss report of what was not sent | – | breaks the connection | passed over |
//! | that a part of a stream will not come | – | obeyed, and never said | passed over |
//!
//! # The length of packets
//!
//! Both ends agree on the longest packet, and nothing says that the path carries it. So data goes in short packets (1280 bytes with IPv6)
//! until a probe as long as agreed has been answered, mostly after one round trip; if none is, the longest that passes is searched for
//! (RFC 8899). A probe is a request to open the connection, made long: libudt answers it as if its own answer had been lost.

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
