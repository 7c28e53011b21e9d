// SPDX-License-Identifier: MIT OR Apache-2.0
//! Time that one core takes for a packet of a capture file, ns: `cargo bench -p longhaul-flow --bench decode`.
//!
//! Files of a million packets with a snaplen of 96 bytes are in memory, larger than any cache. The packets are
//! Ethernet, IPv4 and TCP with timestamps: two of data, then one ACK; every fourth ACK has SACK blocks. The reader
//! gets pieces of 256 KiB, as from a program with a buffer. Each case runs five times; printed are the median and the
//! extremes of the CPU time, so that other processes disturb less.

#![allow(missing_docs, reason = "a program")]

use longhaul_flow::decode::decode;
use longhaul_flow::segment::{FlowKey, Segment};
use longhaul_packet::capture::{EmulatorRecord, Frame, LinkType, Reader, Record, Step, writer};
use longhaul_packet::capture::{Run, Verdict};
use longhaul_packet::tunnel::UdpTunnels;
use std::hint::black_box;

const PACKETS: u64 = 1_000_000;
const PIECE: usize = 256 << 10;
const RUNS: usize = 5;
const SNAPLEN: usize = 96;

fn main() {
    let files = [
        ("pcap", pcap()),
        ("pcapng", pcapng(None)),
        ("pcapng with verdicts", pcapng(Some(Verdict::Passed))),
    ];
    for (format, file) in &files {
        println!("{format}: {} MB", file.len() / 1_000_000);
        report("framing", || read(file, |run, _| run.len as u64));
        report("framing, records", || read(file, records));
        report("framing, records, decode", || {
            let mut decoded = Vec::new();
            read(file, |run, bytes| segments(run, bytes, &mut decoded))
        });
    }
}

fn report(what: &str, case: impl Fn() -> u64) {
    let mut times: Vec<f64> = (0..RUNS).map(|_| ns_a_packet(&case)).collect();
    times.sort_by(f64::total_cmp);
    let [low, median, high] = [0, RUNS / 2, RUNS - 1].map(|i| times[i]);
    println!("  {what:<26} {median:5.1} ns a packet  ({low:.1} to {high:.1})");
}

fn ns_a_packet(case: &impl Fn() -> u64) -> f64 {
    let begin = on_core_ns();
    let packets = case();
    let elapsed = on_core_ns() - begin;
    assert!(packets >= PACKETS, "every packet is seen");
    elapsed as f64 / PACKETS as f64
}

/// Returns the CPU time of this thread so far (first number of `schedstat`), ns.
fn on_core_ns() -> u64 {
    std::thread::yield_now();
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("schedstat");
    let first = text.split(' ').next().expect("a number");
    first.parse().expect("nanoseconds")
}

/// Reads a file and returns the sum of `each` over its runs of packets.
fn read(file: &[u8], mut each: impl FnMut(&Run, &[u8]) -> u64) -> u64 {
    let (mut reader, mut at, mut sum) = (Reader::new(), 0, 0);
    loop {
        let end = file.len().min(at + PIECE);
        let available = &file[at..end];
        let step = reader
            .step(available, end == file.len())
            .expect("a capture");
        match &step {
            Step::Run(run) => sum += each(run, &available[..run.len]),
            Step::End => return sum,
            _ => {}
        }
        at += step.taken();
    }
}

fn records(run: &Run, bytes: &[u8]) -> u64 {
    run.records(bytes).map(black_box).count() as u64
}

/// Decodes all segments of a run and keeps them until the next one, as an analysis does that distributes them to
/// shards.
fn segments(run: &Run, bytes: &[u8], kept: &mut Vec<(FlowKey, Segment)>) -> u64 {
    kept.clear();
    let udp_tunnels = UdpTunnels::default();
    for record in run.records(bytes) {
        if let Record::Frame(frame) = record
            && let Ok(segment) = decode(&frame, &udp_tunnels)
        {
            kept.push(segment);
        }
    }
    black_box(&kept).len() as u64
}

/// Returns a pcap file with timestamps in nanoseconds.
fn pcap() -> Vec<u8> {
    let mut file = Vec::new();
    for word in [0xa1b2_3c4d_u32, 0x0004_0002, 0, 0, SNAPLEN as u32, 1] {
        file.extend(word.to_le_bytes());
    }
    for number in 0..PACKETS {
        let (bytes, wire_len) = packet(number);
        let (seconds, ns) = (number / 1_000_000, number % 1_000_000 * 700);
        for word in [seconds as u32, ns as u32, bytes.len() as u32, wire_len] {
            file.extend(word.to_le_bytes());
        }
        file.extend(bytes);
    }
    file
}

/// Returns a pcapng file as `longhaul tap capture` writes it, or, with a verdict, `longhaul link --capture`.
fn pcapng(verdict: Option<Verdict>) -> Vec<u8> {
    let mut file = Vec::new();
    writer::section(&mut file, &writer::SectionInfo::default());
    let interface = writer::Interface {
        name: "eth0",
        link_type: LinkType::Ethernet,
        snaplen: SNAPLEN as u32,
        filter: "",
    };
    writer::interface(&mut file, &interface);
    for number in 0..PACKETS {
        let (bytes, wire_len) = packet(number);
        let frame = Frame {
            timestamp_ns: number * 700,
            interface: 0,
            link_type: LinkType::Ethernet,
            wire_len,
            bytes: &bytes,
            segment_size: if verdict.is_some() { 1448 } else { 0 },
            emulator_record: verdict.map(|verdict| EmulatorRecord {
                queue_bytes: number as u32,
                verdict,
            }),
        };
        writer::packet(&mut file, &frame, writer::PacketDirection::Unknown);
    }
    file
}

/// Returns the captured bytes of packet `number`, and its length on the wire.
fn packet(number: u64) -> (Vec<u8>, u32) {
    const ETHERNET: [u8; 14] = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0];
    let (ends, payload) = match number % 3 {
        0 => ([10, 0, 0, 2, 10, 0, 0, 1, 0, 80, 0x9c, 0x40], 0),
        _ => ([10, 0, 0, 1, 10, 0, 0, 2, 0x9c, 0x40, 0, 80], 1448),
    };
    let sack = number.is_multiple_of(12);
    let header_len = if sack { 44 } else { 32 };
    let total = 20 + header_len + payload;
    let mut bytes = ETHERNET.to_vec();
    bytes.extend([
        0x45,
        0,
        (total >> 8) as u8,
        total as u8,
        0,
        0,
        0x40,
        0,
        64,
        6,
        0,
        0,
    ]);
    bytes.extend(ends);
    bytes.extend((number as u32).wrapping_mul(1448).to_be_bytes());
    bytes.extend([0, 0, 0, 1, (header_len << 2) as u8, 0x10, 1, 0, 0, 0, 0, 0]);
    bytes.extend([1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2]);
    if sack {
        bytes.extend([1, 1, 5, 10, 0, 0, 0, 1, 0, 0, 0, 9]);
    }
    bytes.resize(SNAPLEN.min(14 + total as usize), 0x5a);
    (bytes, 14 + total)
}
