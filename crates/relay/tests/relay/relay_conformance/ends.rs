// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ends of connections: a FIN ends one direction and never precedes data, a RST ends both and never
//! becomes a FIN.

use crate::{
    relay_conformance::chain::{TestPath, is_reset, wait_until},
    relay_conformance::flow::{fill, transfer_and_check},
    relay_conformance::payload::send,
};
use longhaul_linux::socket::{pending_error, reset_on_close};
use longhaul_testnet::relay_process::read_array;
use std::{
    io::{self, Read, Write},
    net::{Shutdown, TcpStream},
    thread::scope,
};

pub(crate) fn half_close_then_much_data_back(path: &TestPath<'_>) {
    let (from, mut to) = path.open();
    from.shutdown(Shutdown::Write).unwrap();
    assert_eq!(to.read(&mut [0]).unwrap(), 0);
    transfer_and_check(&to, &from, path.chain.buffered_max() + (1 << 20));
}

/// The data fits into the buffers on the path: the sender closes before the receiver has read.
pub(crate) fn fin_behind_the_data(path: &TestPath<'_>) {
    let (mut from, mut to) = path.open();
    from.write_all(&[7; 64 << 10]).unwrap();
    drop(from);
    let mut got = Vec::new();
    to.read_to_end(&mut got).unwrap();
    assert!(got == [7; 64 << 10], "{} bytes", got.len());
}

pub(crate) fn reset(stream: TcpStream) {
    reset_on_close(&stream).unwrap();
    drop(stream);
}

/// Reads until an error, which must be a reset; an end of the stream is a failure.
pub(crate) fn assert_reset(mut stream: &TcpStream) {
    let mut block = vec![0; 1 << 16];
    let error = loop {
        match stream.read(&mut block) {
            Ok(0) => panic!("FIN instead of RST"),
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    assert!(is_reset(&error), "{error}");
}

/// Waits for a reset without reading: unread data must not delay it.
pub(crate) fn assert_reset_noticed(stream: &TcpStream) {
    let mut error = None;
    wait_until("a reset", || {
        error = pending_error(stream).unwrap();
        error.is_some()
    });
    assert!(is_reset(error.as_ref().unwrap()), "{error:?}");
}

/// Transfers a byte both ways.
pub(crate) fn transfer_both_ways(from: &mut TcpStream, to: &mut TcpStream) {
    from.write_all(b"x").unwrap();
    assert_eq!(read_array(to), *b"x");
    to.write_all(b"y").unwrap();
    assert_eq!(read_array(from), *b"y");
}

pub(crate) fn reset_at_rest(path: &TestPath<'_>) {
    let (mut from, mut to) = path.open();
    transfer_both_ways(&mut from, &mut to);
    reset(from);
    assert_reset_noticed(&to);
}

pub(crate) fn reset_by_a_sender_in_full_flow(path: &TestPath<'_>) {
    let (from, mut to) = path.open();
    scope(|scope| {
        let resetting = scope.spawn(|| {
            send(&from, 1, path.chain.buffered_max() + (1 << 20), |_| ()).unwrap();
            reset(from);
        });
        let mut block = vec![0; 1 << 20];
        to.read_exact(&mut block).unwrap();
        assert_reset(&to);
        resetting.join().unwrap();
    });
}

pub(crate) fn reset_by_a_reader_in_full_flow(path: &TestPath<'_>) {
    let (from, mut to) = path.open();
    scope(|scope| {
        let sending = scope.spawn(|| send(&from, 1, u64::MAX, |_| ()));
        let mut block = vec![0; 1 << 20];
        to.read_exact(&mut block).unwrap();
        reset(to);
        let error: io::Error = sending.join().unwrap().unwrap_err();
        assert!(is_reset(&error), "{error}");
    });
}

/// All buffers are full and nothing is read: a reset must not wait in a queue.
pub(crate) fn reset_by_a_stalled_sender(path: &TestPath<'_>) {
    let (from, to) = path.open();
    fill(&from);
    reset(from);
    assert_reset_noticed(&to);
}

pub(crate) fn reset_by_a_stalled_reader(path: &TestPath<'_>) {
    let (from, to) = path.open();
    fill(&from);
    reset(to);
    assert_reset_noticed(&from);
}

pub(crate) fn reset_after_fin(path: &TestPath<'_>) {
    let (from, mut to) = path.open();
    from.shutdown(Shutdown::Write).unwrap();
    assert_eq!(to.read(&mut [0]).unwrap(), 0);
    reset(from);
    assert_reset_noticed(&to);
}

pub(crate) fn reset_after_peer_fin(path: &TestPath<'_>) {
    let (from, mut to) = path.open();
    from.shutdown(Shutdown::Write).unwrap();
    assert_eq!(to.read(&mut [0]).unwrap(), 0);
    reset(to);
    assert_reset_noticed(&from);
}

/// Data sent before a reset may be lost, as in TCP, but the stream must not end cleanly.
pub(crate) fn reset_behind_the_data(path: &TestPath<'_>) {
    let (mut from, to) = path.open();
    from.write_all(&[7; 64 << 10]).unwrap();
    reset(from);
    assert_reset(&to);
}
