// SPDX-License-Identifier: MIT OR Apache-2.0
//! Hours at the rate of packets that 10 Gbit/s have of 1500 bytes, with messages of 8 bytes, so that a simulation lasts no longer than
//! it must. Numbers of packets begin anew every 43 minutes, of messages every 11, timestamps every 72.

mod testbed;

use testbed::{Bed, bbr, config, open};
use udt::{Mode, Seq};
use units::Time;

/// 833,333 packets a second of 8 bytes with headers of 44.
const RATE: &str = "346666664bit";

/// Packets a second that arrive at least.
const ENOUGH: u64 = 700_000;

/// Sends numbered messages from `first` on for so long; all arrive, each once and in its order.
fn last(time: Time, first: Seq) {
    let path = [
        ("rate", RATE),
        ("delay", "5ms"),
        ("loss", "0.001%"),
        ("queue", "10000p"),
    ];
    let mut bed = Bed {
        ends: open(config(Mode::Message), first, &bbr),
        ..Bed::new(config(Mode::Message), &path, &[])
    };
    let (mut written, mut read) = (0_u64, 0_u64);
    let mut message = Vec::new();
    while bed.now < time {
        while bed.ends[0].write_message(&written.to_be_bytes(), true, Time::MAX) {
            written += 1;
        }
        bed.step(time);
        while bed.ends[1].read_message(&mut message) {
            assert_eq!(message, read.to_be_bytes(), "{}", bed.now);
            read += 1;
        }
    }
    assert_eq!(bed.ends[0].end(), None);
    assert!(read > time.as_secs_f64() as u64 * ENOUGH, "{read}");
}

#[test]
fn seconds_around_the_last_number() {
    last(Time::from_secs(3), Seq::new(0x7fff_ffff - 1_000_000));
}

/// `cargo test --release -p udt --test hours -- --ignored`
#[test]
#[ignore = "it takes an hour or two"]
fn an_hour() {
    last(Time::from_secs(3600), Seq::new(7));
}
