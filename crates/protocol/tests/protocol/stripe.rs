// SPDX-License-Identifier: MIT OR Apache-2.0
//! One stream over several connections: whatever the order in which connections move, the receiver
//! gets the sender's stream or an error, never anything else, and never comes to a halt.

use longhaul_protocol::stripe::{
    Broken, Distributor, Frame, HEADER_LEN, Notice, PIECE_LEN, Reassembler,
};
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
    /// Whether the receiver knows of the switch and has not told the sender.
    confirmation_due: bool,
    sent: Vec<u8>,
    received: Vec<u8>,
}

impl Path {
    fn new(windows: &[usize]) -> Self {
        let (mut spread, mut gather) = (Distributor::new(0), Reassembler::new(0));
        for _ in 1..windows.len() {
            spread.join();
            gather.join();
        }
        Self {
            spread,
            gather,
            pipes: windows.iter().map(|w| Pipe::new(*w)).collect(),
            confirmation_due: false,
            sent: Vec::new(),
            received: Vec::new(),
        }
    }

    /// A path whose first connection carries pieces from the beginning.
    fn switched(windows: &[usize]) -> Self {
        let mut path = Self::new(windows);
        path.switch();
        path.drain();
        path.confirm();
        path
    }

    fn switch(&mut self) {
        self.settle();
        let free = |n: usize| self.pipes[n].can_write();
        if let Some((n, frame)) = self.spread.switch(free) {
            self.pipes[n].waiting.extend(frame);
            self.pipes[n].push();
        }
    }

    fn confirm(&mut self) {
        if std::mem::take(&mut self.confirmation_due) {
            self.spread.confirm();
        }
    }

    fn send(&mut self, piece: &[u8]) -> bool {
        self.settle();
        let free = |n: usize| self.pipes[n].can_write();
        let Some(n) = self.spread.pick(free) else {
            return false;
        };
        let header = self.spread.begin(n, piece.len());
        self.pipes[n].waiting.extend(header.iter().flatten());
        self.pipes[n].waiting.extend(piece);
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
        assert!(!self.spread.awaits_confirmation());
        for (n, header) in self.spread.end() {
            self.pipes[n].waiting.extend(header);
            self.pipes[n].push();
        }
    }

    /// The receiver reads up to `most` bytes from one connection, if it may; says how many.
    fn receive(&mut self, n: usize, most: usize) -> usize {
        let is_behind_headers = n == 0 && self.gather.is_unframed();
        if is_behind_headers && (1..self.pipes.len()).any(|n| self.receive(n, HEADER_LEN) > 0) {
            return 1;
        }
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
                let notice = self.gather.header(n, &bytes).unwrap();
                self.confirmation_due |= notice == Some(Notice::Switched);
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
        steps in prop::collection::vec((0usize..10, 1usize..300), 0..200),
    ) {
        let mut path = Path::new(&windows);
        for (number, (what, len)) in steps.into_iter().enumerate() {
            match what {
                0..=2 => { path.send(&piece(number, len)); }
                3 => path.switch(),
                4 => path.confirm(),
                n => { path.receive(n % windows.len(), len); }
            }
            prop_assert!(path.sent.starts_with(&path.received));
            prop_assert!(!path.gather.is_complete());
            prop_assert_eq!(path.gather.check_progress(), Ok(()));
        }
        path.drain();
        path.confirm();
        path.end();
        path.drain();
        if path.spread.is_unframed() {
            prop_assert!(!path.gather.is_complete());
            prop_assert_eq!(path.gather.closed(0), Ok(()));
        }
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
        let mut path = Path::switched(&[usize::MAX; 3]);
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

fn bring(
    gather: &mut Reassembler,
    connection: usize,
    frame: Frame,
) -> Result<Option<Notice>, Broken> {
    gather.header(connection, &frame.encode())
}

fn data(offset: u64, len: u32) -> Frame {
    Frame::Data { offset, len }
}

fn end(total: u64, connections: u32) -> Frame {
    Frame::End { total, connections }
}

/// Two connections that carry pieces.
fn two() -> Reassembler {
    let mut gather = Reassembler::new(0);
    let switcher = gather.join();
    let switched = bring(&mut gather, switcher, Frame::Switch { offset: 0 });
    assert_eq!(switched, Ok(Some(Notice::Switched)));
    gather
}

#[test]
fn a_piece_that_is_next_ends_the_unframed_part_before_the_switch_is_known() {
    let mut gather = Reassembler::new(3);
    let (announcer, other) = (gather.join(), gather.join());
    let unframed = gather.next_read().unwrap();
    assert_eq!((unframed.connection, unframed.bytes), (0, u32::MAX));
    gather.consume(4).unwrap();
    bring(&mut gather, other, data(7, 5)).unwrap();
    assert_eq!(gather.next_read().unwrap().connection, other);
    let switch = Frame::Switch { offset: 7 };
    assert_eq!(
        bring(&mut gather, announcer, switch),
        Ok(Some(Notice::Switched))
    );
    gather.consume(5).unwrap();
    assert_eq!(
        gather.missing(0),
        HEADER_LEN,
        "the first one carries pieces"
    );
}

#[test]
fn pieces_may_overtake_the_switch() {
    let mut gather = Reassembler::new(3);
    let (announcer, other) = (gather.join(), gather.join());
    bring(&mut gather, other, data(3, 5)).unwrap();
    gather.consume(2).unwrap();
    assert!(!gather.is_unframed(), "the first piece tells where it is");
    gather.consume(3).unwrap();
    let wrong = Frame::Switch { offset: 8 };
    let refused = bring(&mut gather.clone(), announcer, wrong);
    assert_eq!(refused, Err(Broken::Switch));
    let switched = bring(&mut gather, announcer, Frame::Switch { offset: 3 });
    assert_eq!(switched, Ok(Some(Notice::Switched)));
    assert_eq!(gather.missing(0), HEADER_LEN);
}

#[test]
fn no_byte_behind_the_switch_is_read_unframed() {
    let mut gather = Reassembler::new(0);
    let announcer = gather.join();
    bring(&mut gather, announcer, Frame::Switch { offset: 10 }).unwrap();
    assert_eq!(gather.next_read().unwrap().bytes, 10);
    assert_eq!(gather.clone().closed(0), Err(Broken::CutOff));
    gather.consume(10).unwrap();
    assert!(!gather.is_unframed());
    assert_eq!(gather.closed(0), Err(Broken::CutOff));
}

#[test]
fn a_switch_comes_once_and_not_too_late() {
    let mut gather = Reassembler::new(5);
    let announcer = gather.join();
    let late = bring(&mut gather.clone(), announcer, Frame::Switch { offset: 4 });
    assert_eq!(late, Err(Broken::Switch));
    bring(&mut gather, announcer, Frame::Switch { offset: 9 }).unwrap();
    let again = bring(&mut gather, announcer, Frame::Switch { offset: 9 });
    assert_eq!(again, Err(Broken::Switch));
}

#[test]
fn a_stream_without_a_switch_ends_with_its_first_connection() {
    let mut gather = Reassembler::new(0);
    let other = gather.join();
    gather.consume(4).unwrap();
    assert_eq!(
        bring(&mut gather, other, Frame::Confirm),
        Ok(Some(Notice::Confirmed))
    );
    assert_eq!(gather.closed(0), Ok(()));
    assert!(gather.is_complete());
    assert_eq!(gather.closed(other), Ok(()), "nothing is missing");
}

#[test]
fn the_first_connection_carries_no_piece_before_the_confirmation() {
    let mut spread = Distributor::new(0);
    assert_eq!(spread.switch(|_| true), None, "nobody can announce it");
    let other = spread.join();
    assert_eq!(spread.pick(|_| true), Some(0));
    assert_eq!(spread.begin(0, 5), None, "an unframed piece has no header");
    assert_eq!(spread.switch(|_| true), None, "in the middle of a piece");
    spread.piece_written(0);
    let frame = Frame::Switch { offset: 5 }.encode();
    assert_eq!(spread.switch(|_| true), Some((other, frame)));
    spread.piece_written(other);
    assert_eq!(spread.pick(|_| true), Some(other));
    assert!(spread.awaits_confirmation());
    assert_eq!(spread.pick(|n| n == 0), None);
    spread.confirm();
    assert_eq!(spread.pick(|n| n == 0), Some(0));
}

#[test]
fn a_confirmation_may_follow_the_end() {
    let mut gather = two();
    bring(&mut gather, 0, end(0, 2)).unwrap();
    bring(&mut gather, 1, end(0, 2)).unwrap();
    assert!(gather.is_complete());
    assert_eq!(gather.missing(1), HEADER_LEN);
    let confirmed = bring(&mut gather, 1, Frame::Confirm);
    assert_eq!(confirmed, Ok(Some(Notice::Confirmed)));
    assert_eq!(bring(&mut gather.clone(), 1, data(0, 1)), Err(Broken::End));
    assert_eq!(gather.closed(1), Ok(()));
    assert_eq!(gather.missing(1), 0);
}

#[test]
fn only_connections_in_use_get_pieces() {
    let mut spread = framed();
    spread.join();
    spread.use_connections(2);
    let mut carry = || {
        let n = spread.pick(|_| true).unwrap();
        spread.begin(n, PIECE_LEN);
        spread.piece_written(n);
        n
    };
    let carriers = [0; 4].map(|_| carry());
    assert_eq!(carriers, [0, 1, 0, 1]);
}

/// A sender of two connections that carry pieces.
fn framed() -> Distributor {
    let mut spread = Distributor::new(0);
    let other = spread.join();
    let _ = spread.switch(|_| true);
    spread.piece_written(other);
    spread.confirm();
    // The next piece goes to the first one.
    spread.begin(other, PIECE_LEN);
    spread.piece_written(other);
    spread
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
fn only_a_connection_that_brought_no_piece_may_leave() {
    let mut gather = two();
    let unused = gather.join();
    assert_eq!(gather.clone().closed(0), Err(Broken::CutOff));
    assert_eq!(gather.clone().closed(1), Ok(()), "only a switch");
    assert_eq!(gather.clone().closed(unused), Ok(()));
    gather.header(unused, &[0; 3]).unwrap();
    assert_eq!(gather.closed(unused), Err(Broken::CutOff));
    let mut spread = framed();
    let n = spread.join();
    assert!(spread.clone().close(n) && !spread.clone().close(0));
    spread.begin(n, 1);
    assert!(!spread.close(n));
}

#[test]
fn full_pieces_go_round_and_short_ones_stay() {
    let mut spread = framed();
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
    let mut spread = framed();
    assert_eq!(spread.pick(|n| n == 1), Some(1));
    spread.begin(1, PIECE_LEN);
    assert_eq!(spread.pick(|n| n == 1), None, "it has not taken its piece");
    assert_eq!(spread.pick(|_| true), Some(0));
}
