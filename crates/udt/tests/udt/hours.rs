// SPDX-License-Identifier: MIT OR Apache-2.0
//! Transfers of hours at the packet rate of 10 Gbit/s, in the shortest packets, so that the simulation is no slower
//! than necessary. Sequence numbers wrap every 43 minutes with packets of 1500 bytes, every 4 hours with 9000 bytes.
//! Timestamps wrap every 72 minutes.

use crate::testbed::{Bed, bbr, config, open};
use longhaul_udt::{Config, Seq};
use longhaul_units::Time;

/// Packets per second of 10 Gbit/s, for a packet length in bytes.
#[derive(Clone, Copy)]
enum Packets {
    Of1500 = 833_333,
    Of9000 = 138_888,
}

/// Shortest packet with all headers, and its payload, in bytes.
const MSS: u32 = 576;
const PAYLOAD: usize = 532;

/// Returns the payload of a packet: its number and zeros.
fn payload(number: u64) -> [u8; PAYLOAD] {
    let mut payload = [0; PAYLOAD];
    payload[..8].copy_from_slice(&number.to_be_bytes());
    payload
}

/// Sends full packets from `first` on for `time`. All arrive once and in order.
fn transfer_for(time: Time, packets: Packets, first: Seq) {
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
    let mut received = [0; PAYLOAD];
    while bed.now < time {
        while bed.ends[0].send_buffer_free() > 0 {
            assert_eq!(bed.ends[0].write(&payload(written)), PAYLOAD);
            written += 1;
        }
        bed.step(time);
        while bed.ends[1].can_read() {
            assert_eq!(bed.ends[1].read(&mut received), PAYLOAD);
            assert!(received == payload(read), "{read} at {}", bed.now);
            read += 1;
        }
    }
    assert_eq!(bed.ends[0].close_reason(), None);
    let share = read as f64 / (time.as_secs_f64() * packets as u64 as f64);
    assert!(share > 0.84, "{share}");
    println!("{read} of {time}, {share:.3} of the path");
}

#[test]
fn transfers_across_the_sequence_wrap() {
    let first = Seq::new(0x7fff_ffff - 1_000_000);
    transfer_for(Time::from_secs(3), Packets::Of1500, first);
}

/// `cargo test --release -p longhaul-udt --test udt -- --ignored --nocapture two_hours`
#[test]
#[ignore = "it takes a quarter of an hour"]
fn transfers_two_hours_of_9000_byte_packets() {
    let first = Seq::new(0x7fff_ffff - 100_000_000);
    transfer_for(Time::from_secs(7200), Packets::Of9000, first);
}

/// `cargo test --release -p longhaul-udt --test udt -- --ignored --nocapture an_hour`
#[test]
#[ignore = "it takes most of an hour"]
fn transfers_an_hour_of_1500_byte_packets() {
    transfer_for(Time::from_secs(3600), Packets::Of1500, Seq::new(7));
}
