// SPDX-License-Identifier: MIT OR Apache-2.0
//! Transfer of bytes: complete, without delay, and with flow control.

use crate::{
    relay_conformance::chain::{Chain, LISTENERS, TestPath},
    relay_conformance::payload::{receive, receive_after, send},
};
use longhaul_testnet::{
    relay_process::{TEST_TIMEOUT, read_array, transfer_both_ways},
    relay_testbed::Addresses,
};
use std::{
    io::{Read, Write},
    net::{Shutdown, TcpStream},
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    thread::{scope, sleep},
    time::{Duration, Instant},
};

/// Sizes around the limits of a segment, a pipe and a copy buffer.
const SIZES: [u64; 7] = [0, 1, 1449, 65_535, 65_537, (256 << 10) + 1, (8 << 20) + 1];

pub(crate) fn transfers_every_size(path: &TestPath<'_>) {
    for size in SIZES {
        let (from, to) = path.open();
        transfer_and_check(&from, &to, size);
    }
}

/// Transfers `size` bytes and the FIN behind them.
pub(crate) fn transfer_and_check(from: &TcpStream, to: &TcpStream, size: u64) {
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

pub(crate) fn transfers_both_directions_at_once(path: &TestPath<'_>) {
    let (from, to) = path.open();
    transfer_both_ways(&from, &to, 4);
}

/// Nagle's algorithm and delayed ACKs together hold back a second small write behind an
/// unacknowledged one, for 40 ms each time. A busy machine slows many rounds, that pair slows every
/// round. So it is enough that most rounds of one batch are fast.
pub(crate) fn sends_single_bytes_without_delay(path: &TestPath<'_>) {
    const ROUNDS: usize = 20;
    let (mut from, mut to) = path.open();
    let mut is_slow = |round: usize| {
        let start = Instant::now();
        for half in *b"ab" {
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
            start.elapsed() < TEST_TIMEOUT,
            "{slow} of {ROUNDS} rounds took 35 ms"
        );
    }
}

/// A relay that holds back every message for two milliseconds, for more data or by a timer, never has a
/// faster round trip. A busy machine slows most of them, so a few fast ones are enough.
/// bench/relay.toml measures the median.
pub(crate) fn relays_small_messages_within_two_milliseconds(path: &TestPath<'_>) {
    const FAST_ROUNDS: usize = 5;
    let (mut from, mut to) = path.open();
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
    let times = (0..)
        .map(&mut round_trip)
        .take_while(|_| start.elapsed() < TEST_TIMEOUT);
    let fast = times.filter(|time| *time < Duration::from_millis(2));
    assert_eq!(
        fast.take(FAST_ROUNDS).count(),
        FAST_ROUNDS,
        "fast round trips"
    );
}

/// Sends single bytes, a write and a segment each, in both directions at once.
pub(crate) fn transfers_many_single_bytes(path: &TestPath<'_>) {
    const BYTES: u64 = 3000;
    let (from, to) = path.open();
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

/// Longer than several retransmission time-outs (0.2 s each at first, on a short path), so that the
/// sender's kernel sends window probes.
const STALL: Duration = Duration::from_secs(3);

/// Stalls transfers through every listener at once, both ways.
pub(crate) fn survives_stalls(chain: &Chain, family: &Addresses) {
    const BYTES: u64 = 24 << 20;
    let paths = LISTENERS.map(|kind| [true, false].map(|upward| (kind, upward)));
    let pairs = paths.as_flattened().iter().map(|&(kind, upward)| {
        TestPath {
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
            scope.spawn(|| stall_and_resume(from, to, BYTES));
        }
    });
}

fn stall_and_resume(from: &TcpStream, mut to: &TcpStream, bytes: u64) {
    let written = AtomicU64::new(0);
    scope(|scope| {
        let sent = scope.spawn(|| {
            let on_write = |bytes| {
                written.fetch_add(bytes, Relaxed);
            };
            let sent = send(from, 1, bytes, on_write).unwrap();
            from.shutdown(Shutdown::Write).unwrap();
            sent
        });
        sleep(STALL);
        let stalled_at = written.load(Relaxed);
        assert!(stalled_at < bytes, "no stall: all of it was written");
        // Reads a little and stalls again: the window opens and closes once more.
        let mut little = vec![0; 1 << 20];
        to.read_exact(&mut little).unwrap();
        sleep(STALL / 3);
        let received = receive_after(&little, to).unwrap();
        assert_eq!(received, sent.join().unwrap());
    });
}

/// The reader stalls: the sender may write at most what all buffers on the path hold. When the
/// reader reads again, all data arrives.
pub(crate) fn slow_reader_stops_sender(path: &TestPath<'_>) {
    let (from, to) = path.open();
    // Twice, as the kernel may allocate more than it reports.
    let room = 2 * path.chain.buffered_max();
    let bytes = room + (1 << 20);
    let written = AtomicU64::new(0);
    scope(|scope| {
        let sent = scope.spawn(|| {
            let sent = send(&from, 1, bytes, |bytes| {
                written.fetch_add(bytes, Relaxed);
            })
            .unwrap();
            from.shutdown(Shutdown::Write).unwrap();
            sent
        });
        let stalled_at = settled_value(&written);
        assert!(stalled_at < room, "{stalled_at} bytes written");
        let received = receive(&to).unwrap();
        assert_eq!(received, sent.join().unwrap());
    });
}

/// Value of a counter once it has stopped to change. If it only paused, the checked upper bound is
/// easier to meet, never harder.
pub(crate) fn settled_value(counter: &AtomicU64) -> u64 {
    loop {
        let before = counter.load(Relaxed);
        sleep(Duration::from_millis(100));
        if before > 0 && counter.load(Relaxed) == before {
            return before;
        }
    }
}

/// Writes until all buffers are full.
pub(crate) fn fill(stream: &TcpStream) {
    stream
        .set_write_timeout(Some(Duration::from_millis(200)))
        .unwrap();
    let mut stream = stream;
    while stream.write(&[0; 1 << 16]).is_ok() {}
}
