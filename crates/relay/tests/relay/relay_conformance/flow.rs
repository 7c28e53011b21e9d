// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bytes on their way: all of them, at once, and no more than the reader wants.

use crate::{
    relay_conformance::payload::{receive, receive_after, send},
    relay_conformance::way::{BUFFER_MAX, Chain, LISTENERS, Way},
};
use longhaul_testnet::{
    relay_process::{PATIENCE, exchange, read_array},
    relay_testbed::Family,
};
use std::{
    io::{Read, Write},
    net::{Shutdown, TcpStream},
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    thread::{scope, sleep},
    time::{Duration, Instant},
};

/// On both sides of what a segment, a pipe's default and a copy buffer hold.
const SIZES: [u64; 7] = [0, 1, 1449, 65_535, 65_537, (256 << 10) + 1, (8 << 20) + 1];

pub(crate) fn every_size_arrives_whole(way: &Way<'_>) {
    for size in SIZES {
        let (from, to) = way.open();
        arrives_whole(&from, &to, size);
    }
}

/// `size` bytes and the FIN behind them.
pub(crate) fn arrives_whole(from: &TcpStream, to: &TcpStream, size: u64) {
    scope(|scope| {
        let sent = scope.spawn(|| {
            let sent = send(from, size, size, |_| ()).unwrap();
            from.shutdown(Shutdown::Write).unwrap();
            sent
        });
        let received = receive(to).unwrap();
        assert_eq!(received, sent.join().unwrap());
    });
}

pub(crate) fn both_directions_at_once(way: &Way<'_>) {
    let (from, to) = way.open();
    exchange(&from, &to, 4);
}

/// A second small write behind a first unacknowledged one is what Nagle's algorithm and delayed
/// ACKs hold back together, for 40 ms each time. A busy machine makes many rounds slow, that
/// pair makes every round slow: one batch in many will do, if most of its rounds are fast.
pub(crate) fn single_bytes_wait_for_nothing(way: &Way<'_>) {
    const ROUNDS: usize = 20;
    let (mut from, mut to) = way.open();
    let mut is_slow = |round: usize| {
        let start = Instant::now();
        for half in [b'a', b'b'] {
            from.write_all(&[half]).unwrap();
        }
        assert_eq!(read_array(&mut to), *b"ab");
        to.write_all(&[round as u8]).unwrap();
        assert_eq!(read_array(&mut from), [round as u8]);
        start.elapsed() >= Duration::from_millis(35)
    };
    let start = Instant::now();
    loop {
        let slow = (0..ROUNDS).filter(|round| is_slow(*round)).count();
        if slow < ROUNDS / 2 {
            return;
        }
        assert!(
            start.elapsed() < PATIENCE,
            "{slow} of {ROUNDS} rounds took 35 ms"
        );
    }
}

/// There and back in less than two milliseconds, the path itself included: half of a batch's rounds.
/// On a busy machine one batch in many will do, since whatever delays most messages is in each of
/// them.
pub(crate) fn tiny_messages_pass_within_a_millisecond(way: &Way<'_>) {
    const ROUNDS: usize = 50;
    let (mut from, mut to) = way.open();
    let mut round_trip = |round: usize| {
        let message = [round as u8; 16];
        let start = Instant::now();
        from.write_all(&message).unwrap();
        assert_eq!(read_array(&mut to), message);
        to.write_all(&message).unwrap();
        assert_eq!(read_array(&mut from), message);
        start.elapsed()
    };
    let start = Instant::now();
    loop {
        let mut times: Vec<_> = (0..ROUNDS).map(&mut round_trip).collect();
        times.sort_unstable();
        let median = times[ROUNDS / 2];
        if median < Duration::from_millis(2) {
            return;
        }
        assert!(start.elapsed() < PATIENCE, "{median:?} there and back");
    }
}

/// A write and a segment each, both ways at once: nothing waits for the other.
pub(crate) fn single_bytes_add_up(way: &Way<'_>) {
    const BYTES: u64 = 3000;
    let (from, to) = way.open();
    let write = |mut stream: &TcpStream| {
        for number in 0..BYTES {
            stream.write_all(&[number as u8]).unwrap();
        }
        stream.shutdown(Shutdown::Write).unwrap();
    };
    let read = |mut stream: &TcpStream| {
        let mut got = Vec::new();
        stream.read_to_end(&mut got).unwrap();
        assert!(
            got.iter()
                .copied()
                .eq((0..BYTES).map(|number| number as u8))
        );
    };
    scope(|scope| {
        for end in [&from, &to] {
            scope.spawn(|| write(end));
            scope.spawn(|| read(end));
        }
    });
}

/// Longer than several retransmission time-outs (0.2 s each to begin with, on a short path): the
/// sender's kernel sends window probes meanwhile.
const STALL: Duration = Duration::from_secs(3);

/// Every listener at once, both ways.
pub(crate) fn stalls_of_some_seconds_are_survived(chain: &Chain, family: &Family) {
    const BYTES: u64 = 24 << 20;
    let ways = LISTENERS.map(|kind| [true, false].map(|upward| (kind, upward)));
    let pairs = ways.as_flattened().iter().map(|&(kind, upward)| {
        Way {
            chain,
            kind,
            family,
            upward,
        }
        .open()
    });
    let pairs: Vec<_> = pairs.collect();
    scope(|scope| {
        for (from, to) in &pairs {
            scope.spawn(|| stalls_and_goes_on(from, to, BYTES));
        }
    });
}

fn stalls_and_goes_on(from: &TcpStream, mut to: &TcpStream, bytes: u64) {
    let taken = AtomicU64::new(0);
    scope(|scope| {
        let sent = scope.spawn(|| {
            let on_write = |bytes| {
                taken.fetch_add(bytes, Relaxed);
            };
            let sent = send(from, 1, bytes, on_write).unwrap();
            from.shutdown(Shutdown::Write).unwrap();
            sent
        });
        sleep(STALL);
        let stalled_at = taken.load(Relaxed);
        assert!(stalled_at < bytes, "no stall: all of it was taken");
        // A little, and no more again: the window opens and closes once more.
        let mut little = vec![0; 1 << 20];
        to.read_exact(&mut little).unwrap();
        sleep(STALL / 3);
        let received = receive_after(&little, to).unwrap();
        assert_eq!(received, sent.join().unwrap());
    });
}

/// The reader's window closes, the sender stops, no more than every buffer on the way is taken;
/// when the reader reads again, everything comes.
pub(crate) fn a_slow_reader_stops_the_sender(way: &Way<'_>) {
    const BYTES: u64 = 40 << 20;
    const PIPE: u64 = 1 << 20;
    let (from, to) = way.open();
    let relays = way.chain.relays.len() as u64;
    let room = way.chain.sockets() * 2 * BUFFER_MAX + relays * PIPE;
    let taken = AtomicU64::new(0);
    scope(|scope| {
        let sent = scope.spawn(|| {
            let sent = send(&from, 1, BYTES, |bytes| {
                taken.fetch_add(bytes, Relaxed);
            })
            .unwrap();
            from.shutdown(Shutdown::Write).unwrap();
            sent
        });
        let stalled_at = at_rest(&taken);
        // Twice, as the kernel may grant more than it says.
        assert!(
            stalled_at < 2 * room && 2 * room < BYTES,
            "{stalled_at} bytes taken"
        );
        let received = receive(&to).unwrap();
        assert_eq!(received, sent.join().unwrap());
    });
}

/// The value of a counter that has begun and stopped to move. What is believed too early makes a
/// bound on it easier to keep, never harder.
pub(crate) fn at_rest(counter: &AtomicU64) -> u64 {
    loop {
        let before = counter.load(Relaxed);
        sleep(Duration::from_millis(100));
        if before > 0 && counter.load(Relaxed) == before {
            return before;
        }
    }
}

/// Writes until nothing is taken any more.
pub(crate) fn fill(stream: &TcpStream) {
    stream
        .set_write_timeout(Some(Duration::from_millis(200)))
        .unwrap();
    let mut stream = stream;
    while stream.write(&[0; 1 << 16]).is_ok() {}
}
