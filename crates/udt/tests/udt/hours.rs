// SPDX-License-Identifier: MIT OR Apache-2.0
//! Hours at the rate of packets that 10 Gbit/s have, in the shortest packets that there are, so that a simulation lasts no
//! longer than it must. Of 1500 bytes, numbers begin anew every 43 minutes; of 9000 bytes, every 4 hours. Timestamps do
//! every 72 minutes.

use crate::testbed::{Bed, bbr, config, open};
use longhaul_udt::{Config, Seq};
use longhaul_units::Time;

/// Packets a second.
#[derive(Clone, Copy)]
enum Packets {
    Of1500 = 833_333,
    Of9000 = 138_888,
}

/// Bytes of the shortest packet with all headers, and of what it carries.
const MSS: u32 = 576;
const PAYLOAD: usize = 532;

/// What a packet carries: its number, and nothing.
fn payload(number: u64) -> [u8; PAYLOAD] {
    let mut payload = [0; PAYLOAD];
    payload[..8].copy_from_slice(&number.to_be_bytes());
    payload
}

/// Sends full packets from `first` on for so long; all arrive, each once and in its order.
fn last(time: Time, packets: Packets, first: Seq) {
    let rate = format!("{}bit", packets as u64 * u64::from(MSS) * 8);
    let path = [
        ("rate", rate.as_str()),
        ("delay", "5ms"),
        ("loss", "0.001%"),
        ("queue", "10000p"),
    ];
    let config = Config {
        mss: MSS,
        ..config()
    };
    let mut bed = Bed {
        ends: open(config, first, &bbr),
        ..Bed::new(config, &path, &[])
    };
    let (mut written, mut read) = (0_u64, 0_u64);
    let mut came = [0; PAYLOAD];
    while bed.now < time {
        while bed.ends[0].send_buffer_free() > 0 {
            assert_eq!(bed.ends[0].write(&payload(written)), PAYLOAD);
            written += 1;
        }
        bed.step(time);
        while bed.ends[1].can_read() {
            assert_eq!(bed.ends[1].read(&mut came), PAYLOAD);
            assert!(came == payload(read), "{read} at {}", bed.now);
            read += 1;
        }
    }
    assert_eq!(bed.ends[0].close_reason(), None);
    let share = read as f64 / (time.as_secs_f64() * packets as u64 as f64);
    assert!(share > 0.84, "{share}");
    println!("{read} of {time}, {share:.3} of the path");
}

#[test]
fn seconds_around_the_last_number() {
    let first = Seq::new(0x7fff_ffff - 1_000_000);
    last(Time::from_secs(3), Packets::Of1500, first);
}

/// `cargo test --release -p udt --test hours -- --ignored --nocapture hours`
#[test]
#[ignore = "it takes a quarter of an hour"]
fn two_hours_of_long_packets() {
    let first = Seq::new(0x7fff_ffff - 100_000_000);
    last(Time::from_secs(7200), Packets::Of9000, first);
}

/// `cargo test --release -p udt --test hours -- --ignored --nocapture an_hour`
#[test]
#[ignore = "it takes most of an hour"]
fn an_hour() {
    last(Time::from_secs(3600), Packets::Of1500, Seq::new(7));
}
