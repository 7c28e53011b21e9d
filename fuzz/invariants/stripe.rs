// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks the receiver of a striped stream: it takes every byte once and in order, reads no more than announced, and
//! reports no stream with a gap as complete.
//!
//! The input is a script of byte pairs. The first byte selects a connection and an event (low two bits): the next
//! bytes of the script arrive, a valid header arrives, the connection closes, or one joins. The second byte is the
//! amount.

use longhaul_protocol::stripe::{Broken, Reassembler};
use longhaul_protocol::stripe::{Frame, HEADER_LEN, PIECE_LEN_MAX};

/// Maximum number of connections in a script.
const CONNECTIONS_MAX: usize = 8;

pub(crate) fn check(input: &[u8]) {
    check_header_round_trip(input);
    let mut script = Script {
        reassembler: Reassembler::new(0),
        connections: 1,
        taken: 0,
    };
    let mut rest = input;
    while let [event, amount, more @ ..] = rest {
        let len = usize::from(*amount).min(more.len());
        let (bytes, after) = more.split_at(len);
        let outcome = match event & 3 {
            0 => script.deliver(usize::from(event >> 2), bytes),
            1 => script.deliver(usize::from(event >> 2), &valid_header(bytes)),
            2 => script.close(usize::from(event >> 2)),
            _ => script.join(),
        };
        if outcome.is_err() {
            return;
        }
        rest = after;
    }
}

fn check_header_round_trip(input: &[u8]) {
    if let Some(bytes) = input.first_chunk::<HEADER_LEN>()
        && let Ok(frame) = Frame::parse(*bytes)
    {
        assert_eq!(frame.encode(), *bytes);
        if let Frame::Data { offset, len } = frame {
            assert!((1..=PIECE_LEN_MAX).contains(&len) && offset.checked_add(len.into()).is_some());
        }
    }
}

/// Returns a valid header made of four bytes, so that scripts reach further states.
fn valid_header(bytes: &[u8]) -> Vec<u8> {
    let [kind, offset, len, ..] = bytes else {
        return bytes.to_vec();
    };
    let (offset, len) = (u64::from(*offset), u32::from(*len).max(1));
    let frame = match kind & 3 {
        0 => Frame::Data { offset, len },
        1 => Frame::Switch { offset },
        2 => Frame::Confirm,
        _ => Frame::End {
            total: offset,
            connections: len,
        },
    };
    frame.encode().to_vec()
}

struct Script {
    reassembler: Reassembler,
    connections: usize,
    taken: u64,
}

impl Script {
    /// Delivers bytes of a connection, as far as the receiver reads them.
    fn deliver(&mut self, connection: usize, mut bytes: &[u8]) -> Result<(), Broken> {
        let connection = connection % self.connections;
        while !bytes.is_empty() {
            let missing = self.reassembler.missing(connection);
            let read = self.reassembler.next_read();
            let read = read.filter(|read| read.connection == connection);
            let len = match (missing, read) {
                // The connection must wait: the rest stays in its socket, which a script does not model.
                (0, None) => return Ok(()),
                (0, Some(read)) => bytes.len().min(read.bytes as usize),
                (missing, _) => bytes.len().min(missing),
            };
            assert!(missing <= HEADER_LEN && len > 0);
            let (now, later) = bytes.split_at(len);
            match missing {
                0 => self.take(now.len())?,
                _ => self.reassembler.header(connection, now).map(drop)?,
            }
            bytes = later;
            self.check_invariants();
        }
        Ok(())
    }

    fn take(&mut self, bytes: usize) -> Result<(), Broken> {
        assert!(
            !self.reassembler.is_complete(),
            "complete, but more bytes arrive"
        );
        let outcome = self.reassembler.consume(bytes);
        self.taken += bytes as u64;
        assert_eq!(self.reassembler.taken(), self.taken);
        outcome
    }

    fn close(&mut self, connection: usize) -> Result<(), Broken> {
        let connection = connection % self.connections;
        self.reassembler.closed(connection)?;
        assert_eq!(
            self.reassembler.missing(connection),
            0,
            "no more bytes are expected"
        );
        self.check_invariants();
        Ok(())
    }

    fn join(&mut self) -> Result<(), Broken> {
        if self.connections < CONNECTIONS_MAX && !self.reassembler.is_complete() {
            assert_eq!(self.reassembler.join(), self.connections);
            self.connections += 1;
        }
        Ok(())
    }

    /// Checks the invariants between two events.
    fn check_invariants(&self) {
        if self.reassembler.is_complete() {
            assert_eq!(self.reassembler.next_read(), None);
            assert_eq!(self.reassembler.check_progress(), Ok(()));
        }
        // Without progress no connection has bytes to wait for.
        if self.reassembler.check_progress() == Err(Broken::Gap) {
            assert!(!self.reassembler.is_complete());
        }
    }
}
