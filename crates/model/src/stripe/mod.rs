// SPDX-License-Identifier: MIT OR Apache-2.0
//! One byte stream over several connections that each keep their order: who carries what
//! ([`Spread`]), and how it becomes one stream again ([`Gather`]).
//!
//! The sender cuts the stream into pieces and puts each, behind a header with its offset, on some
//! connection, in rising order. So every connection carries a sorted sequence, and the receiver
//! merges sorted sequences: it looks at each connection's head and takes the piece that is next.
//! What is ahead stays in its connection.
//!
//! **Bound.** The receiver holds one header a connection and no byte of the stream. What is ahead
//! waits in the kernel's receive buffers, at most one window a connection, and then the sender's
//! connection takes no more.
//!
//! **No deadlock.** Let `n` be the first byte that has not been taken. Its piece is on one
//! connection; all that was put on that connection before it has smaller offsets and has been taken.
//! So the piece is at that connection's head: nothing of ours is in front of it, its window is open
//! for it, and TCP delivers it. The sender never waits for one connection before it goes on
//! sending on another, so a piece that was begun is finished whatever the others do.
//!
//! **The end.** Each connection that carried anything in a direction, and the first one always,
//! carries an end with the total length and with how many connections carry such an end. Then the
//! direction is closed, and a connection that closes before its end was cut off.

mod gather;
mod spread;

pub use gather::{Broken, Gather, Turn};
pub use spread::{PIECE_LEN, Spread};
