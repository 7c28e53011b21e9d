// SPDX-License-Identifier: MIT OR Apache-2.0
//! Transfers over paths with losses, reordering, duplicates and interruptions: the received bytes are those sent.

use crate::testbed::{Bed, Wire, assert_bytes, bbr, bytes_up_to, config, native, open};
use longhaul_udt::{CloseReason, ControlFactory, Seq, packet::Packet};
use longhaul_units::Time;

const MB: u64 = 1_000_000;

fn transfer(bed: &mut Bed, bytes: u64, until: Time) {
    let (written, read) = bed.stream(until, bytes_up_to(bytes), assert_bytes);
    assert_eq!(
        (written, read),
        (bytes, bytes),
        "{:?}",
        bed.ends[0].counts()
    );
}

#[test]
fn transfers_over_a_path_without_losses() {
    let path = [("rate", "100mbit"), ("delay", "10ms")];
    // The window is no more than the path and its queue hold.
    let small = longhaul_udt::Config {
        receive_packets: 1024,
        ..config()
    };
    let mut bed = Bed::new(small, &path, &[]);
    transfer(&mut bed, 20 * MB, Time::from_secs(4));
    assert_eq!(bed.wires[0].lost, 0);
    assert_eq!(bed.ends[0].counts().retransmitted, 0);
}

#[test]
fn transfers_over_a_path_that_loses_duplicates_and_reorders() {
    let path = [
        ("rate", "100mbit"),
        ("delay", "10ms"),
        ("loss", "2%"),
        ("duplicate", "1%"),
        ("corrupt", "0.1%"),
        ("reorder", "5%:3ms"),
    ];
    let mut bed = Bed::new(config(), &path, &[]);
    transfer(&mut bed, 10 * MB, Time::from_secs(60));
    assert!(bed.wires[0].lost > 100);
}

/// A loss ends slow start before a rate is known: the next rate must follow from the packets that arrived.
#[test]
fn a_loss_in_slow_start_delays_by_less_than_a_second() {
    let path = [
        ("rate", "200mbit"),
        ("delay", "10ms"),
        ("loss", "0.3%"),
        ("queue", "200p"),
    ];
    for seed in 0..40 {
        let mut bed = Bed::new(config(), &path, &[]);
        bed.wires = [seed, seed + 1000].map(|seed| Wire::new(&path, &[], seed));
        transfer(&mut bed, MB, Time::from_secs(1));
    }
}

/// Retransmissions must not fill a queue of 20 packets, whether the receiver is ours or UDT4.
#[test]
fn retransmissions_do_not_fill_a_short_queue() {
    let path = [("rate", "10mbit"), ("delay", "20ms"), ("queue", "20p")];
    for control in [&bbr as ControlFactory<'_>, &native] {
        for timers_checked_at in [None, Some(Time::ZERO)] {
            let mut bed = Bed::with_control(control, &path, &[]);
            bed.timers_checked_at = timers_checked_at;
            transfer(&mut bed, 4 * MB, Time::from_secs(10));
            let counts = bed.ends[0].counts();
            assert!(counts.retransmitted * 2 < counts.sent, "{counts:?}");
        }
    }
}

/// The receiver behaves as UDT4: it acknowledges the last packets before a pause 100 ms late, unless a packet comes.
#[test]
fn does_not_stall_when_the_receiver_checks_timers_only_at_packets() {
    let paths = [
        [("rate", "1gbit"), ("delay", "50us")],
        [("rate", "100mbit"), ("delay", "2ms")],
        [("rate", "100mbit"), ("delay", "40ms")],
    ];
    for path in paths {
        for control in [&bbr as ControlFactory<'_>, &native] {
            let mut bed = Bed::with_control(control, &path, &[]);
            bed.timers_checked_at = Some(Time::ZERO);
            transfer(&mut bed, 5 * MB, Time::from_secs(3));
        }
    }
}

/// The limit is the time that UDT4's own sender takes: 3.1 s for 20 MB, measured.
#[test]
fn the_default_control_is_as_fast_as_udt4() {
    for delay in ["100us", "1ms", "10ms", "50ms"] {
        let path = [("rate", "100mbit"), ("delay", delay)];
        let mut bed = Bed::with_control(&bbr, &path, &[]);
        bed.timers_checked_at = Some(Time::ZERO);
        transfer(&mut bed, 20 * MB, Time::from_millis(3100));
    }
}

/// UDT4 reports a loss once, and again only after that packet arrived.
#[test]
fn repeated_losses_need_no_expiration_when_reported_once() {
    let paths = [
        [("delay", "100us"), ("queue", "5p")],
        [("delay", "1ms"), ("queue", "5p")],
        [("delay", "10ms"), ("queue", "20p")],
        [("delay", "100us"), ("loss", "1%")],
        [("delay", "1ms"), ("loss", "1%")],
        [("delay", "10ms"), ("loss", "1%")],
        [("delay", "50ms"), ("loss", "1%")],
    ];
    for path in paths {
        for (control, seconds) in [(&bbr as ControlFactory<'_>, 8), (&native, 30)] {
            let path = [&[("rate", "100mbit")], &path[..]].concat();
            let mut bed = Bed::with_control(control, &path, &[]);
            bed.timers_checked_at = Some(Time::ZERO);
            transfer(&mut bed, 20 * MB, Time::from_secs(seconds));
            let counts = bed.ends[0].counts();
            assert!(counts.timeouts < 2, "{path:?}: {counts:?}");
        }
    }
}

/// The peer has read all data, and the last packet it sends may be its shutdown.
#[test]
fn a_shutdown_acknowledges_what_arrived() {
    let path = [("rate", "100mbit"), ("delay", "10ms")];
    for bytes in [1, 1000, 2000, 20_000] {
        let mut bed = Bed::new(config(), &path, &[]);
        let mut read = 0;
        bed.ends[0].write(&vec![1; bytes]);
        while read < bytes {
            bed.step(Time::from_secs(10));
            read += bed.ends[1].read(&mut [0; 4096]);
        }
        bed.ends[1].close();
        while bed.ends[0].close_reason().is_none() {
            bed.step(Time::from_secs(10));
        }
        assert_eq!(bed.ends[0].close_reason(), Some(CloseReason::Remote));
        assert!(bed.ends[0].is_flushed(), "{bytes}");
    }
}

#[test]
fn transfers_across_the_sequence_wrap() {
    let path = [("rate", "100mbit"), ("delay", "10ms"), ("loss", "1%")];
    let first = Seq::new(0x7fff_ff00);
    let mut bed = Bed::starting_at(config(), first, &path, &[]);
    transfer(&mut bed, 10 * MB, Time::from_secs(60));
}

#[test]
fn a_slow_reader_throttles_the_sender_without_losses() {
    let path = [("rate", "100mbit"), ("delay", "5ms")];
    let small = longhaul_udt::Config {
        receive_packets: 256,
        ..config()
    };
    let mut bed = Bed::new(small, &path, &[]);
    let mut source = bytes_up_to(5 * MB);
    let (mut written, mut read) = (0, 0);
    let mut buffer = vec![0; 64 << 10];
    for second in 1..60 {
        let until = Time::from_secs(second);
        while bed.now < until {
            let length = source(written, &mut buffer);
            written += bed.ends[0].write(&buffer[..length]) as u64;
            bed.step(until);
        }
        let length = bed.ends[1].read(&mut buffer);
        assert_bytes(read, &buffer[..length]);
        read += length as u64;
    }
    // The window is 256 packets, and the reader takes 64 KiB per second.
    assert!(read > 40 * 60_000, "{read}");
    assert_eq!(bed.wires[0].lost, 0);
}

#[test]
fn close_delivers_all_data_first() {
    let path = [("rate", "100mbit"), ("delay", "10ms"), ("loss", "2%")];
    let mut bed = Bed::new(config(), &path, &[]);
    let mut buffer = vec![0; 1 << 20];
    assert_eq!(bytes_up_to(MB)(0, &mut buffer), MB as usize);
    assert_eq!(bed.ends[0].write(&buffer[..MB as usize]), MB as usize);
    bed.ends[0].close();
    assert_eq!(bed.ends[0].write(b"more"), 0);
    while bed.ends[0].close_reason().is_none() {
        bed.step(Time::from_secs(10));
    }
    assert_eq!(bed.ends[0].close_reason(), Some(CloseReason::Local));
    let later = bed.now + Time::from_secs(1);
    while bed.now < later {
        bed.step(later);
    }
    let mut read = vec![0; 1 << 20];
    assert_eq!(bed.ends[1].read(&mut read), MB as usize);
    assert_bytes(0, &read[..MB as usize]);
}

#[test]
fn a_silent_peer_times_out_and_an_idle_one_does_not() {
    let path = [("rate", "100mbit"), ("delay", "10ms")];
    let mut bed = Bed::new(config(), &path, &["100s: loss 100%"]);
    let idle = Time::from_secs(100);
    while bed.now < idle {
        bed.step(idle);
    }
    assert_eq!(
        bed.ends
            .each_ref()
            .map(longhaul_udt::Connection::close_reason),
        [None, None]
    );
    let broken = Time::from_secs(200);
    while bed.now < broken && bed.ends[0].close_reason().is_none() {
        bed.step((bed.now + Time::from_secs(1)).min(broken));
    }
    assert_eq!(bed.ends[0].close_reason(), Some(CloseReason::Timeout));
    let silent = bed.now.since(idle);
    assert!(
        silent > Time::from_secs(44) && silent < Time::from_secs(47),
        "{silent}"
    );
}

/// Only short packets pass, among them keep-alives.
#[test]
fn a_path_that_drops_all_data_times_out() {
    let [mut end, mut other] = open(config(), Seq::new(5), &native);
    end.write(&[7; 20_000]);
    let mut now = Time::ZERO;
    while end.close_reason().is_none() && now < Time::from_secs(100) {
        let mut datagram = Vec::new();
        while end.transmit(now, &mut datagram) {
            if datagram.len() < 500 {
                other.handle(&Packet::read(&datagram).unwrap(), now);
            }
            datagram.clear();
        }
        while other.transmit(now, &mut datagram) {
            end.handle(&Packet::read(&datagram).unwrap(), now);
            datagram.clear();
        }
        now += Time::from_millis(10);
    }
    assert_eq!(end.close_reason(), Some(CloseReason::Timeout));
    assert!(
        now > Time::from_secs(44) && now < Time::from_secs(52),
        "{now}"
    );
}

#[test]
fn survives_an_interruption_of_seconds() {
    let path = [("rate", "100mbit"), ("delay", "10ms")];
    let changes = ["1s: loss 100%", "6s: loss 0%"];
    let mut bed = Bed::new(config(), &path, &changes);
    transfer(&mut bed, 30 * MB, Time::from_secs(20));
}
