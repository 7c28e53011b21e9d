// SPDX-License-Identifier: MIT OR Apache-2.0
//! Valid capture files, in every variant.

use crate::build::{Bytes, Pcap, Pcapng};
use crate::reading::{Contents, read, read_in_chunks};
use longhaul_packet::capture::{
    DamageKind, EmulatorRecord, FormatError, Frame, LinkType, OddTimes, Reader, Record, Statistics,
    Step, Verdict, writer,
};

const NOW: u32 = 1_700_000_000;
const NOW_NS: u64 = NOW as u64 * 1_000_000_000;

/// Adds three packets to a file and returns its bytes.
fn add_three_packets(pcap: &mut Pcap, fraction: u32) -> &[u8] {
    pcap.record(NOW, fraction, &[1; 60])
        .record_of(NOW, 2 * fraction, &[2; 128], 1514)
        .record(NOW + 1, 0, &[3; 61]);
    pcap.bytes()
}

/// Times of the packets, in nanoseconds since [`NOW`].
fn times(contents: &Contents) -> Vec<u64> {
    contents
        .packets
        .iter()
        .map(|packet| packet.at_ns - NOW_NS)
        .collect()
}

/// Checks that a file has the packets of [`add_three_packets`] and no damage.
fn assert_three_packets(contents: &Contents) {
    assert_eq!(contents.payloads(), [&[1; 60][..], &[2; 128], &[3; 61]]);
    let wire: Vec<_> = contents
        .packets
        .iter()
        .map(|packet| packet.wire_len)
        .collect();
    assert_eq!((wire, &contents.damages[..]), (vec![60, 1514, 61], &[][..]));
}

#[test]
fn reads_pcap_in_both_resolutions_and_byte_orders() {
    for big in [false, true] {
        let contents = read(add_three_packets(
            &mut Pcap::new(0xa1b2_c3d4, big, 1),
            250_000,
        ));
        assert_three_packets(&contents);
        assert_eq!(times(&contents), [250_000_000, 500_000_000, 1_000_000_000]);
        let contents = read(add_three_packets(
            &mut Pcap::new(0xa1b2_3c4d, big, 1),
            250_000_001,
        ));
        assert_three_packets(&contents);
        assert_eq!(times(&contents), [250_000_001, 500_000_002, 1_000_000_000]);
    }
}

#[test]
fn reads_pcap_with_longer_record_headers() {
    for (magic, extra) in [
        (0xa1b2_cd34, 8),
        (0xa1b2_cd34, 12),
        (0xa1b2_c3d4, 8),
        (0xa1b2_c3d4, 4),
    ] {
        for big in [false, true] {
            let mut pcap = Pcap::with_extra(magic, big, 1, extra);
            let contents = read(add_three_packets(&mut pcap, 250_000));
            assert_three_packets(&contents);
            assert_eq!(times(&contents), [250_000_000, 500_000_000, 1_000_000_000]);
        }
    }
}

/// Lengths are in the other order before version 2.3, and in either order in version 2.3.
#[test]
fn reads_pcap_of_versions_with_swapped_lengths() {
    let read_with = |big, version, swapped: [bool; 3]| {
        let mut pcap = Pcap::with_version(big, version);
        for (swapped, number) in swapped.into_iter().zip(1..) {
            let lengths = if swapped { [1514, 60] } else { [60, 1514] };
            pcap.record_with_lengths(lengths, &[number; 60]);
        }
        read(pcap.bytes())
    };
    for big in [false, true] {
        for (version, swapped) in [
            ([2, 2], [true; 3]),
            ([2, 0], [true; 3]),
            ([543, 0], [true; 3]),
            ([2, 3], [true, false, true]),
            ([2, 4], [false; 3]),
        ] {
            let contents = read_with(big, version, swapped);
            let expected = [&[1; 60], &[2; 60], &[3; 60]];
            assert_eq!(contents.payloads(), expected, "{version:?}");
            assert!(
                contents
                    .packets
                    .iter()
                    .all(|packet| packet.wire_len == 1514)
            );
            assert_eq!(contents.damages, []);
        }
    }
}

/// Returns a file with the magic number of microseconds and these fractions of a second.
fn pcap_with_fractions(fractions: impl IntoIterator<Item = u32>) -> Contents {
    let mut pcap = Pcap::new(0xa1b2_c3d4, false, 1);
    for (fraction, number) in fractions.into_iter().zip(0..) {
        pcap.record(NOW + number, fraction, &[9; 60]);
    }
    read(pcap.bytes())
}

#[test]
fn reads_nanoseconds_with_the_magic_number_of_microseconds() {
    // Fractions of a burst that begins with a second come first.
    let fractions = || (0..40).map(|number| 300_000 * number * number);
    let contents = pcap_with_fractions(fractions());
    assert!(contents.odd_times.in_nanoseconds);
    let expected = fractions().zip(0..);
    let expected: Vec<_> = expected
        .map(|(fraction, second)| second * 1_000_000_000 + u64::from(fraction))
        .collect();
    assert_eq!(times(&contents), expected);
    let single = pcap_with_fractions([300_000_000]);
    assert_eq!(
        (single.odd_times.in_nanoseconds, times(&single)),
        (true, vec![300_000_000])
    );
}

/// A few records with too long a fraction are damaged, or were written by a program that does not carry over.
#[test]
fn counts_fractions_of_a_second_or_more() {
    let fractions = (0..40).map(|number| {
        if number % 3 == 2 {
            1_000_000 + number
        } else {
            number
        }
    });
    let contents = pcap_with_fractions(fractions);
    assert_eq!(contents.odd_times.long_fractions, 13);
    assert!(!contents.odd_times.in_nanoseconds);
    assert_eq!(
        (contents.packets.len(), &contents.damages[..]),
        (40, &[][..])
    );
    assert_eq!(times(&contents)[2], 3_000_002_000);
    assert_eq!(pcap_with_fractions([5; 40]).odd_times, OddTimes::default());
}

#[test]
fn reads_pcap_link_type_without_the_fcs_bits() {
    let file = Pcap::new(0xa1b2_c3d4, false, 0x2400_0071)
        .record(NOW, 0, &[1; 60])
        .clone();
    let contents = read(file.bytes());
    assert_eq!(contents.packets[0].link_type, LinkType::LinuxCooked);
    assert_eq!(contents.interfaces[0].link_type, LinkType::LinuxCooked);
    assert_eq!(
        (contents.interfaces[0].snaplen, &contents.interfaces[0].name),
        (128, &None)
    );
}

#[test]
fn reads_pcap_without_packets() {
    assert_eq!(read(Pcap::new(0xa1b2_c3d4, false, 1).bytes()).packets, []);
}

#[test]
fn reads_odd_but_whole_records() {
    let mut pcap = Pcap::new(0xa1b2_c3d4, false, 1);
    pcap.record(NOW, 0, &[1; 60])
        // No captured bytes, less on the wire than captured, a fraction beyond a second.
        .record_of(NOW, 0, &[], 60)
        .record_of(NOW, 1, &[2; 60], 30)
        .record(NOW, 1_000_000, &[3; 60])
        // Two years later, and back again.
        .record(NOW + 63_072_000, 0, &[4; 60])
        .record(NOW + 63_072_000, 1, &[5; 60])
        .record(NOW, 3, &[6; 60])
        .record(NOW, 4, &[7; 300_000])
        .record(NOW, 5, &[8; 60]);
    pcap.file.bytes[16..20].copy_from_slice(&400_000_u32.to_le_bytes());
    let contents = read(pcap.bytes());
    assert_eq!(contents.damages, []);
    assert_eq!(contents.packets.len(), 9);
    assert_eq!(contents.packets[2].wire_len, 60);
    assert_eq!(contents.packets[3].at_ns, NOW_NS + 1_000_000_000);
}

#[test]
fn rejects_files_that_are_no_captures() {
    let error_of = |file: &[u8]| read_in_chunks(file, std::iter::repeat(1)).unwrap_err();
    assert_eq!(error_of(&[]), FormatError::Empty);
    assert_eq!(error_of(&[0xd4, 0xc3]), FormatError::Short);
    assert_eq!(
        error_of(&Pcap::new(0xa1b2_c3d4, false, 1).bytes()[..23]),
        FormatError::Short
    );
    assert_eq!(
        error_of(&[0x1f, 0x8b, 8, 0]),
        FormatError::Compressed("gzip")
    );
    assert_eq!(error_of(b"GET / HTTP/1.1"), FormatError::Foreign(*b"GET "));
    let mut section = Pcapng::new(false).section(false, 0).clone();
    section.file.bytes[9] ^= 1;
    assert!(matches!(error_of(section.bytes()), FormatError::Foreign(_)));
    let text = error_of(&[0x28, 0xb5, 0x2f, 0xfd]).to_string();
    assert_eq!(
        text,
        "the file is compressed with zstd: unpack it first (zstd -d)"
    );
}

#[test]
fn reads_pcapng_in_both_byte_orders() {
    for big in [false, true] {
        let mut file = Pcapng::new(big);
        file.section(big, u64::MAX)
            .interface(1, 128, &[(2, b"eth0"), (9, &[9])])
            .packet(0, NOW_NS + 5, &[1; 61])
            .packet_with(0, NOW_NS + 6, &[2; 60], &[(2, &[0; 4])]);
        let contents = read(file.bytes());
        assert_eq!(contents.payloads(), [&[1; 61][..], &[2; 60]]);
        assert_eq!(times(&contents), [5, 6]);
        assert_eq!(contents.packets[0].wire_len, 1514);
        assert_eq!(contents.interfaces[0].name.as_deref(), Some("eth0"));
        assert_eq!(contents.damages, []);
    }
}

#[test]
fn reads_pcapng_timestamp_resolutions_and_offsets() {
    let offset = |big: bool| {
        if big {
            (-3_i64).to_be_bytes()
        } else {
            (-3_i64).to_le_bytes()
        }
    };
    for big in [false, true] {
        let mut file = Pcapng::new(big);
        file.section(big, 0)
            .interface(1, 0, &[])
            .interface(1, 0, &[(9, &[3])])
            .interface(1, 0, &[(9, &[0x80 | 10])])
            .interface(1, 0, &[(14, &offset(big)), (9, &[9])]);
        for (interface, stamp) in [(0, 7), (1, 7), (2, 1024 + 512), (3, 4_000_000_000)] {
            file.packet(interface, stamp, &[0; 60]);
        }
        let contents = read(file.bytes());
        let times: Vec<_> = contents.packets.iter().map(|packet| packet.at_ns).collect();
        assert_eq!(times, [7_000, 7_000_000, 1_500_000_000, 1_000_000_000]);
    }
}

#[test]
fn reads_byte_order_and_interfaces_of_each_section() {
    let mut file = Pcapng::new(false);
    file.section(false, 5000)
        .interface(1, 0, &[(2, b"left")])
        .interface(101, 0, &[(2, b"right\0?")])
        .packet(1, 1, &[1; 4])
        .section(true, u64::MAX)
        .packet(0, 1, &[9; 4])
        .interface(113, 0, &[])
        .packet(0, 2, &[2; 4])
        .packet(1, 2, &[9; 4]);
    let contents = read(file.bytes());
    let found: Vec<_> = contents
        .packets
        .iter()
        .map(|packet| (packet.interface, packet.link_type))
        .collect();
    assert_eq!(found, [(1, LinkType::Raw), (2, LinkType::LinuxCooked)]);
    let names: Vec<_> = contents
        .interfaces
        .iter()
        .map(|interface| interface.name.as_deref())
        .collect();
    assert_eq!(names, [Some("left"), Some("right"), None]);
    let faults: Vec<_> = contents.damages.iter().map(|damage| damage.kind).collect();
    assert_eq!(faults, [DamageKind::Interface; 2]);
}

#[test]
fn reads_simple_and_obsolete_packet_blocks() {
    let mut file = Pcapng::new(false);
    file.section(false, 0)
        .interface(1, 64, &[])
        .block(0x0bad, |body| {
            body.u32(32473).u32(7);
        })
        .obsolete_packet(0, 1, &[1; 60])
        .block(0x7777_7777, |_| {})
        .simple_packet(&[2; 64], 1514)
        .simple_packet(&[3; 50], 50);
    let contents = read(file.bytes());
    assert_eq!(contents.payloads(), [&[1; 60][..], &[2; 64], &[3; 50]]);
    let times_and_lengths: Vec<_> = contents
        .packets
        .iter()
        .map(|packet| (packet.at_ns, packet.wire_len))
        .collect();
    assert_eq!(times_and_lengths, [(1000, 1514), (0, 1514), (0, 50)]);
    assert_eq!(contents.damages, []);
}

#[test]
fn reads_pcapng_statistics() {
    for big in [false, true] {
        let mut file = Pcapng::new(big);
        file.section(big, 0)
            .interface(1, 0, &[])
            .statistics(0, 5, &[(4, 1 << 33), (7, 3)])
            .statistics(0, 6, &[(5, 2)])
            .statistics(7, 6, &[(5, 2)]);
        let contents = read(file.bytes());
        let statistics = |at_ns, received, if_dropped, os_dropped| Statistics {
            interface: 0,
            timestamp_ns: at_ns,
            received,
            if_dropped,
            os_dropped,
        };
        let expected = [
            statistics(5000, Some(1 << 33), None, Some(3)),
            statistics(6000, None, Some(2), None),
        ];
        assert_eq!(contents.statistics, expected);
        assert_eq!(contents.damages[0].kind, DamageKind::Interface);
    }
}

/// Value of longhaul's custom option: enterprise number, version, verdict, segment size, queue.
fn custom_option(big: bool, verdict: u8, version: u8) -> Vec<u8> {
    let mut value = Bytes::new(big);
    value
        .u32(32473)
        .raw(&[version, verdict])
        .u16(1448)
        .u32(70_000);
    value.bytes
}

#[test]
fn reads_segment_size_and_verdict_from_the_custom_option() {
    let record = |verdict| {
        Some(EmulatorRecord {
            queue_bytes: 70_000,
            verdict,
        })
    };
    for big in [false, true] {
        let options = [
            (custom_option(big, 0, 1), 1448, record(Verdict::Passed)),
            (custom_option(big, 1, 1), 1448, record(Verdict::Lost)),
            (custom_option(big, 2, 1), 1448, record(Verdict::Dropped)),
            (custom_option(big, 3, 1), 1448, record(Verdict::AckFiltered)),
            (custom_option(big, 0xff, 1), 1448, None),
            (custom_option(big, 0, 2), 0, None),
            (vec![0; 12], 0, None),
            (custom_option(big, 0, 1)[..11].to_vec(), 0, None),
        ];
        let mut file = Pcapng::new(big);
        file.section(big, 0).interface(1, 0, &[]);
        for (option, ..) in &options {
            file.packet_with(0, 0, &[1; 61], &[(2, &[0; 4]), (2989, option)]);
        }
        let contents = read(file.bytes());
        for (packet, (option, segment_size, record)) in contents.packets.iter().zip(&options) {
            assert_eq!(
                (packet.segment_size, packet.emulator_record),
                (*segment_size, *record),
                "{option:?}"
            );
        }
        assert_eq!(contents.packets.len(), options.len());
    }
}

#[test]
fn reads_options_before_a_damaged_one() {
    let mut file = Pcapng::new(false);
    file.section(false, 0)
        .interface(1, 0, &[])
        .block(6, |body| {
            body.u32(0).u64(0).u32(4).u32(60).u32(0);
            // The second option is longer than the block.
            body.u16(2989)
                .u16(12)
                .raw(&custom_option(false, 1, 1))
                .u16(3)
                .u16(400)
                .u32(0);
        });
    let contents = read(file.bytes());
    assert_eq!(
        (contents.packets[0].segment_size, contents.damages.len()),
        (1448, 0)
    );
}

#[test]
fn reads_back_files_of_the_writer() {
    let mut file = Vec::new();
    writer::section(&mut file, &writer::SectionInfo::default());
    for name in ["left", "right"] {
        let interface = writer::Interface {
            name,
            link_type: LinkType::Raw,
            snaplen: 128,
            filter: "tcp",
        };
        writer::interface(&mut file, &interface);
    }
    let verdicts = [
        Verdict::Passed,
        Verdict::Lost,
        Verdict::Dropped,
        Verdict::AckFiltered,
    ];
    let records = verdicts.map(|verdict| {
        Some(EmulatorRecord {
            queue_bytes: 5,
            verdict,
        })
    });
    let frames: Vec<_> = records
        .into_iter()
        .chain([None])
        .zip(0_u16..)
        .map(|(record, count)| Frame {
            timestamp_ns: NOW_NS + u64::from(count),
            interface: u32::from(count % 2),
            link_type: LinkType::Raw,
            wire_len: 1500,
            bytes: &[0x45; 127][usize::from(count)..],
            segment_size: 1448 * (count % 3),
            emulator_record: record,
        })
        .collect();
    for frame in &frames {
        writer::packet(&mut file, frame, writer::PacketDirection::Inbound);
    }
    let statistics = writer::Statistics {
        interface: 1,
        from_ns: 1,
        until_ns: NOW_NS,
        received: 7,
        dropped: 2,
    };
    writer::statistics(&mut file, &statistics);
    let contents = read(&file);
    assert_eq!(
        contents.packets,
        frames.into_iter().map(Into::into).collect::<Vec<_>>()
    );
    assert_eq!(
        (
            contents.statistics[0].if_dropped,
            contents.statistics[0].timestamp_ns
        ),
        (Some(2), NOW_NS)
    );
    assert_eq!(contents.interfaces[1].name.as_deref(), Some("right"));
}

#[test]
fn reads_runs_on_other_threads() {
    let mut file = Pcapng::new(false);
    file.section(false, 0);
    for interface in 0..4 {
        file.interface(1, 0, &[]);
        for at in 0..1000 {
            file.packet(interface, at, &[1; 60]);
        }
    }
    let mut reader = Reader::new();
    let mut rest = file.bytes();
    let counts = std::thread::scope(|scope| {
        let mut threads = Vec::new();
        loop {
            let buffer = &rest[..rest.len().min(4096)];
            let step = reader.step(buffer, buffer.len() == rest.len()).unwrap();
            rest = &rest[step.taken()..];
            match step {
                Step::Run(run) => threads.push(scope.spawn(move || {
                    let records = run.records(&buffer[..run.len]);
                    records
                        .filter(|record| matches!(record, Record::Frame(_)))
                        .count()
                })),
                Step::End => break,
                _ => {}
            }
        }
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect::<Vec<_>>()
    });
    assert_eq!(counts.iter().sum::<usize>(), 4000);
    assert!(counts.len() > 50);
}
