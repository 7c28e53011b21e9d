// SPDX-License-Identifier: MIT OR Apache-2.0
//! One stream over several connections: whatever the order in which connections move, the receiver
//! gets the sender's stream or an error, never anything else, and never comes to a halt.

use longhaul_protocol::stripe::Frame;
use longhaul_protocol::stripe::{Broken, Distributor, PIECE_LEN, Reassembler};
use proptest::prelude::*;
use std::collections::VecDeque;

/// A connection: what was put on it and has not been read.
#[derive(Default)]
struct Pipe {
    bytes: VecDeque<u8>,
    /// Bytes that it takes before somebody reads.
    window: usize,
    /// Bytes that the sender wrote and the receiver has not read.
    waiting: VecDeque<u8>,
}

impl Pipe {
    fn new(window: usize) -> Self {
        Self {
            window,
            ..Self::default()
        }
    }

    fn can_write(&self) -> bool {
        self.waiting.is_empty() && self.bytes.len() < self.window
    }

    fn push(&mut self) {
        while self.bytes.len() < self.window
            && let Some(byte) = self.waiting.pop_front()
        {
            self.bytes.push_back(byte);
        }
    }

    fn read(&mut self, most: usize) -> Vec<u8> {
        let len = most.min(self.bytes.len());
        let bytes = self.bytes.drain(..len).collect();
        self.push();
        bytes
    }
}

/// Both ends over pipes of small windows.
struct Path {
    spread: Distributor,
    gather: Reassembler,
    pipes: Vec<Pipe>,
    sent: Vec<u8>,
    received: Vec<u8>,
}

impl Path {
    fn new(windows: &[usize]) -> Self {
        let (mut spread, mut gather) = (Distributor::default(), Reassembler::default());
        for _ in 1..windows.len() {
            spread.join();
            gather.join();
        }
        Self {
            spread,
            gather,
            pipes: windows.iter().map(|w| Pipe::new(*w)).collect(),
            sent: Vec::new(),
            received: Vec::new(),
        }
    }

    fn send(&mut self, piece: &[u8]) -> bool {
        self.settle();
        let free = |n: usize| self.pipes[n].can_write();
        let Some(n) = self.spread.pick(free) else {
            return false;
        };
        let header = self.spread.begin(n, piece.len());
        self.pipes[n].waiting.extend(header.iter().chain(piece));
        self.sent.extend(piece);
        true
    }

    /// Notices which connections have taken their pieces.
    fn settle(&mut self) {
        for (n, pipe) in self.pipes.iter_mut().enumerate() {
            pipe.push();
            if pipe.waiting.is_empty() {
                self.spread.piece_written(n);
            }
        }
    }

    fn end(&mut self) {
        for (n, header) in self.spread.end() {
            self.pipes[n].waiting.extend(header);
            self.pipes[n].push();
        }
    }

    /// The receiver reads up to `most` bytes from one connection, if it may; says how many.
    fn receive(&mut self, n: usize, most: usize) -> usize {
        let turn = self.gather.next_read().filter(|turn| turn.connection == n);
        match (self.gather.missing(n), turn) {
            (0, None) => 0,
            (0, Some(turn)) => {
                let bytes = self.pipes[n].read(most.min(turn.bytes as usize));
                self.gather.consume(bytes.len()).unwrap();
                self.received.extend(&bytes);
                bytes.len()
            }
            (missing, _) => {
                let bytes = self.pipes[n].read(missing.min(most));
                self.gather.header(n, &bytes).unwrap();
                bytes.len()
            }
        }
    }

    /// Reads until nothing moves.
    fn drain(&mut self) {
        loop {
            self.settle();
            let moved: usize = (0..self.pipes.len()).map(|n| self.receive(n, 1000)).sum();
            if moved == 0 {
                return;
            }
        }
    }
}

fn piece(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|i| (seed * 31 + i * 7) as u8).collect()
}

proptest! {
    /// Deadlock freedom and order: any schedule of sending and reading, any windows, some smaller
    /// than a header; at the end everything is there.
    #[test]
    fn the_stream_comes_out_as_it_went_in(
        windows in prop::collection::vec(1usize..200, 1..6),
        steps in prop::collection::vec((0usize..8, 1usize..300), 0..200),
    ) {
        let mut path = Path::new(&windows);
        for (number, (what, len)) in steps.into_iter().enumerate() {
            match what {
                0..=2 => { path.send(&piece(number, len)); }
                n => { path.receive(n % windows.len(), len); }
            }
            prop_assert!(path.sent.starts_with(&path.received));
            prop_assert!(!path.gather.is_complete());
            prop_assert_eq!(path.gather.check_progress(), Ok(()));
        }
        path.drain();
        path.end();
        path.drain();
        prop_assert!(path.gather.is_complete());
        prop_assert_eq!(path.received, path.sent);
    }

    /// A connection that is cut off anywhere is an error or has carried nothing.
    #[test]
    fn what_is_cut_off_never_looks_complete(
        sizes in prop::collection::vec(1usize..100, 1..20),
        cut in 0usize..3,
        keep in 0usize..4000,
    ) {
        let mut path = Path::new(&[usize::MAX; 3]);
        for (number, len) in sizes.into_iter().enumerate() {
            path.send(&piece(number, len.max(PIECE_LEN * (number % 2))));
        }
        path.settle();
        path.end();
        let lost = path.pipes[cut].bytes.len().saturating_sub(keep);
        let left = path.pipes[cut].bytes.len() - lost;
        path.pipes[cut].bytes.truncate(left);
        path.drain();
        let closed = path.gather.closed(cut);
        let progress = path.gather.check_progress();
        prop_assert_eq!(path.gather.is_complete(), lost == 0);
        prop_assert_eq!(lost > 0, closed.is_err() || progress.is_err());
    }
}

fn bring(gather: &mut Reassembler, connection: usize, frame: Frame) -> Result<(), Broken> {
    gather.header(connection, &frame.encode())
}

fn data(offset: u64, len: u32) -> Frame {
    Frame::Data { offset, len }
}

fn end(total: u64, connections: u32) -> Frame {
    Frame::End { total, connections }
}

fn two() -> Reassembler {
    let mut gather = Reassembler::default();
    gather.join();
    gather
}

#[test]
fn bytes_that_came_before_are_refused() {
    let mut gather = two();
    bring(&mut gather, 0, data(0, 10)).unwrap();
    gather.consume(10).unwrap();
    assert_eq!(bring(&mut gather, 0, data(9, 5)), Err(Broken::Overlap));
}

#[test]
fn heads_that_overlap_are_found_when_the_first_is_taken() {
    let mut gather = two();
    bring(&mut gather, 0, data(0, 10)).unwrap();
    bring(&mut gather, 1, data(5, 10)).unwrap();
    assert_eq!(gather.consume(5), Ok(()));
    assert_eq!(gather.consume(1), Err(Broken::Overlap));
}

#[test]
fn a_gap_is_found_when_every_head_is_behind_it() {
    let mut gather = two();
    bring(&mut gather, 0, data(10, 10)).unwrap();
    assert_eq!(gather.check_progress(), Ok(()), "the other may bring it");
    bring(&mut gather, 1, data(20, 10)).unwrap();
    assert_eq!(gather.next_read(), None);
    assert_eq!(gather.check_progress(), Err(Broken::Gap));
    gather.join();
    assert_eq!(gather.check_progress(), Ok(()));
}

#[test]
fn ends_must_agree_with_each_other_and_with_the_pieces() {
    let mut gather = two();
    bring(&mut gather, 0, end(10, 2)).unwrap();
    assert_eq!(bring(&mut gather.clone(), 1, end(11, 2)), Err(Broken::End));
    assert_eq!(bring(&mut gather.clone(), 1, end(10, 1)), Err(Broken::End));
    assert_eq!(bring(&mut gather.clone(), 1, data(5, 6)), Err(Broken::End));
    bring(&mut gather, 1, data(0, 10)).unwrap();
    gather.consume(10).unwrap();
    assert!(!gather.is_complete(), "one end is missing");
    bring(&mut gather, 1, end(10, 2)).unwrap();
    assert!(gather.is_complete());
}

#[test]
fn an_end_that_nobody_can_bring_any_more_is_a_gap() {
    let mut gather = two();
    bring(&mut gather, 0, end(0, 3)).unwrap();
    assert_eq!(gather.check_progress(), Err(Broken::Gap));
}

#[test]
fn only_a_connection_that_brought_nothing_may_leave() {
    let mut gather = two();
    assert_eq!(gather.clone().closed(0), Err(Broken::CutOff));
    assert_eq!(gather.closed(1), Ok(()));
    let mut gather = two();
    gather.header(1, &[0; 3]).unwrap();
    assert_eq!(gather.closed(1), Err(Broken::CutOff));
    let mut spread = Distributor::default();
    let n = spread.join();
    assert!(spread.clone().close(n) && !spread.clone().close(0));
    spread.begin(n, 1);
    assert!(!spread.close(n));
}

#[test]
fn full_pieces_go_round_and_short_ones_stay() {
    let mut spread = Distributor::default();
    spread.join();
    let mut carry = |len| {
        let n = spread.pick(|_| true).unwrap();
        spread.begin(n, len);
        spread.piece_written(n);
        n
    };
    let carriers = [1, 1, PIECE_LEN, 1, 1, PIECE_LEN, 1].map(&mut carry);
    assert_eq!(carriers, [0, 0, 0, 1, 1, 1, 0]);
}

#[test]
fn gives_no_piece_to_a_blocked_connection() {
    let mut spread = Distributor::default();
    spread.join();
    assert_eq!(spread.pick(|n| n == 1), Some(1));
    spread.begin(1, PIECE_LEN);
    assert_eq!(spread.pick(|n| n == 1), None, "it has not taken its piece");
    assert_eq!(spread.pick(|_| true), Some(0));
}
