// SPDX-License-Identifier: MIT OR Apache-2.0
//! How connections end: a FIN ends one direction and overtakes nothing, a RST ends both and never
//! looks like a FIN.

use crate::{
    relay_conformance::flow::{arrives_whole, fill},
    relay_conformance::payload::send,
    relay_conformance::way::{Way, is_reset, wait_until},
};
use longhaul_linux::socket::{pending_error, reset_on_close};
use longhaul_testnet::relay_process::read_array;
use std::{
    io::{self, Read, Write},
    net::{Shutdown, TcpStream},
    thread::scope,
};

pub(crate) fn half_close_then_much_data_back(way: &Way<'_>) {
    let (from, mut to) = way.open();
    from.shutdown(Shutdown::Write).unwrap();
    assert_eq!(to.read(&mut [0]).unwrap(), 0);
    arrives_whole(&to, &from, 32 << 20);
}

/// It fits into the buffers on the way: the sender is gone before anyone has read.
pub(crate) fn fin_behind_the_data(way: &Way<'_>) {
    let (mut from, mut to) = way.open();
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

/// Reads until an error, which must be a reset; an end of the stream is a lie.
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

/// Without reading: what is unread is no reason to hear of it late.
pub(crate) fn assert_reset_noticed(stream: &TcpStream) {
    let mut error = None;
    wait_until("a reset", || {
        error = pending_error(stream).unwrap();
        error.is_some()
    });
    assert!(is_reset(error.as_ref().unwrap()), "{error:?}");
}

/// The relays carry bytes both ways before anything ends.
pub(crate) fn warm(from: &mut TcpStream, to: &mut TcpStream) {
    from.write_all(b"x").unwrap();
    assert_eq!(read_array(to), *b"x");
    to.write_all(b"y").unwrap();
    assert_eq!(read_array(from), *b"y");
}

pub(crate) fn reset_at_rest(way: &Way<'_>) {
    let (mut from, mut to) = way.open();
    warm(&mut from, &mut to);
    reset(from);
    assert_reset_noticed(&to);
}

pub(crate) fn reset_by_a_sender_in_full_flow(way: &Way<'_>) {
    let (from, mut to) = way.open();
    scope(|scope| {
        let resetting = scope.spawn(|| {
            send(&from, 1, 16 << 20, |_| ()).unwrap();
            reset(from);
        });
        let mut block = vec![0; 1 << 20];
        to.read_exact(&mut block).unwrap();
        assert_reset(&to);
        resetting.join().unwrap();
    });
}

pub(crate) fn reset_by_a_reader_in_full_flow(way: &Way<'_>) {
    let (from, mut to) = way.open();
    scope(|scope| {
        let sending = scope.spawn(|| send(&from, 1, u64::MAX, |_| ()));
        let mut block = vec![0; 1 << 20];
        to.read_exact(&mut block).unwrap();
        reset(to);
        let error: io::Error = sending.join().unwrap().unwrap_err();
        assert!(is_reset(&error), "{error}");
    });
}

/// Nobody reads and everything is full: a reset is not a byte that could wait in a queue.
pub(crate) fn reset_by_a_stalled_sender(way: &Way<'_>) {
    let (from, to) = way.open();
    fill(&from);
    reset(from);
    assert_reset_noticed(&to);
}

pub(crate) fn reset_by_a_stalled_reader(way: &Way<'_>) {
    let (from, to) = way.open();
    fill(&from);
    reset(to);
    assert_reset_noticed(&from);
}

pub(crate) fn reset_after_fin(way: &Way<'_>) {
    let (from, mut to) = way.open();
    from.shutdown(Shutdown::Write).unwrap();
    assert_eq!(to.read(&mut [0]).unwrap(), 0);
    reset(from);
    assert_reset_noticed(&to);
}

pub(crate) fn reset_after_the_other_s_fin(way: &Way<'_>) {
    let (from, mut to) = way.open();
    from.shutdown(Shutdown::Write).unwrap();
    assert_eq!(to.read(&mut [0]).unwrap(), 0);
    reset(to);
    assert_reset_noticed(&from);
}

/// What was sent before may be lost, as TCP has it, but what follows it is no clean end.
pub(crate) fn reset_behind_the_data(way: &Way<'_>) {
    let (mut from, to) = way.open();
    from.write_all(&[7; 64 << 10]).unwrap();
    reset(from);
    assert_reset(&to);
}
