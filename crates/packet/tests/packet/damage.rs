// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files that are not as they should be: what is sound is read, and what was left out is said.

use crate::build::{Pcap, Pcapng};
use crate::reading::{Said, read};
use longhaul_packet::capture::{Fault, RECORD_MAX, Reader, Step};

const NOW: u32 = 1_700_000_000;
const COUNT: usize = 40;
/// The one that is damaged.
const HURT: usize = 17;

/// Bytes without a pattern, different for each packet, at least 50 of them.
fn noise(packet: usize) -> Vec<u8> {
    let mut state = packet as u64 + 1;
    let step = || {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        (state >> 33) as u8
    };
    std::iter::repeat_with(step)
        .take(50 + packet % 47)
        .collect()
}

/// A file, and where its packets' records begin.
struct Sample {
    file: Vec<u8>,
    begins: Vec<usize>,
}

impl Sample {
    fn pcap(big: bool) -> Self {
        let mut pcap = Pcap::new(0xa1b2_3c4d, big, 1);
        let mut begins = Vec::new();
        for packet in 0..COUNT {
            begins.push(pcap.bytes().len());
            let at = packet as u32;
            pcap.record_of(NOW + at / 10, at * 1_000_003, &noise(packet), 1514);
        }
        let file = pcap.bytes().to_vec();
        Self { file, begins }
    }

    fn pcapng(big: bool) -> Self {
        let mut pcapng = Pcapng::new(big);
        pcapng
            .section(big, u64::MAX)
            .interface(1, 128, &[(9, &[9])]);
        let mut begins = Vec::new();
        for packet in 0..COUNT {
            begins.push(pcapng.bytes().len());
            pcapng.packet(0, u64::from(NOW) << 30, &noise(packet));
        }
        let file = pcapng.bytes().to_vec();
        Self { file, begins }
    }

    fn all() -> [Self; 4] {
        [
            Self::pcap(false),
            Self::pcap(true),
            Self::pcapng(false),
            Self::pcapng(true),
        ]
    }

    fn hurt(&self, change: impl FnOnce(&mut Vec<u8>, usize)) -> Said {
        let mut file = self.file.clone();
        change(&mut file, self.begins[HURT]);
        read(&file)
    }
}

/// All packets are there as they were, but for these, and what was left out is not much longer.
fn only(said: &Said, hurt: &[usize], what: &str) {
    let kept: Vec<_> = (0..COUNT)
        .filter(|packet| !hurt.contains(packet))
        .map(noise)
        .collect();
    let mut payloads = said.payloads().into_iter();
    for packet in &kept {
        assert!(
            payloads.any(|payload| payload == packet),
            "{what}: one more is missing"
        );
    }
    assert!(said.packets.len() <= COUNT, "{what}: nothing is invented");
    let sizes = hurt.iter().map(|packet| noise(*packet).len() as u64 + 72);
    assert!(said.skipped() <= sizes.sum(), "{what}: {:?}", said.damages);
}

#[test]
fn samples_are_sound() {
    for sample in Sample::all() {
        let said = read(&sample.file);
        only(&said, &[], "sound");
        assert_eq!(said.damages, []);
    }
}

/// Every byte of a record but its packet, changed in several ways, loses that record at most.
#[test]
fn a_byte_of_a_record_costs_no_neighbour() {
    for sample in Sample::all() {
        let len = sample.begins[HURT + 1] - sample.begins[HURT];
        for at in (0..28).chain(len - 4..len) {
            for change in [0x01, 0x02, 0x10, 0x40, 0x80, 0xff] {
                let said = sample.hurt(|file, begin| file[begin + at] ^= change);
                only(&said, &[HURT], &format!("byte {at} ^ {change:#x}"));
            }
        }
    }
}

#[test]
fn a_wrong_length_is_told() {
    for sample in [Sample::pcap(false), Sample::pcapng(false)] {
        let pcapng = sample.begins[0] > 24;
        let at = if pcapng { 4 } else { 8 };
        for change in [0x08, 0x40] {
            for byte in 0..4 {
                let said = sample.hurt(|file, begin| file[begin + at + byte] ^= change);
                let told = said.damages[0];
                let begins = sample.begins[HURT] as u64;
                assert!((begins..begins + 200).contains(&told.at), "{told}");
                assert_eq!(said.damages.len(), 1);
                let fault = if pcapng {
                    Fault::Lengths
                } else {
                    Fault::Header
                };
                assert_eq!(told.fault, fault);
            }
        }
    }
}

#[test]
fn a_wrong_time_of_a_pcap_record_is_told() {
    let said = Sample::pcap(false).hurt(|file, begin| file[begin + 3] ^= 0x20);
    let faults: Vec<_> = said.damages.iter().map(|damage| damage.fault).collect();
    assert_eq!(faults, [Fault::Time]);
    assert_eq!(said.packets.len(), COUNT - 1);
}

#[test]
fn bytes_that_are_missing_or_too_many() {
    for sample in Sample::all() {
        for count in [1, 2, 3, 5, 16, 31] {
            let said = sample.hurt(|file, begin| drop(file.drain(begin + 20..begin + 20 + count)));
            only(&said, &[HURT], "missing");
            assert_eq!(said.damages.len(), 1, "{count} are missing");
            let said = sample.hurt(|file, begin| {
                drop(file.splice(begin + 20..begin + 20, vec![0x55; count]));
            });
            only(&said, &[HURT], "too many");
            assert_eq!(said.damages.len(), 1, "{count} too many");
        }
    }
}

#[test]
fn a_hole_loses_what_was_in_it() {
    for sample in Sample::all() {
        let until = sample.begins[HURT + 5] + 3;
        let said = sample.hurt(|file, begin| file[begin + 3..until].fill(0));
        only(&said, &[17, 18, 19, 20, 21, 22], "a hole");
        assert_eq!(said.damages.len(), 1, "{:?}", said.damages);
    }
}

#[test]
fn zeros_at_the_end_are_one_damage() {
    for sample in Sample::all() {
        let said = sample.hurt(|file, _| file.extend([0; 8192]));
        only_told(&said, 8192);
    }
}

fn only_told(said: &Said, skipped: u64) {
    assert_eq!(said.packets.len(), COUNT);
    assert_eq!((said.damages.len(), said.skipped()), (1, skipped));
}

#[test]
fn a_file_may_end_anywhere() {
    for sample in Sample::all() {
        let last = sample.begins[COUNT - 1];
        assert_eq!(read(&sample.file[..last]).damages, []);
        for len in last + 1..sample.file.len() {
            let said = read(&sample.file[..len]);
            assert_eq!(said.packets.len(), COUNT - 1);
            let damage = said.damages[0];
            assert_eq!(
                (said.damages.len(), damage.fault),
                (1, Fault::Truncated),
                "{len}"
            );
            assert_eq!(
                (damage.at, damage.skipped),
                (last as u64, (len - last) as u64)
            );
        }
    }
}

#[test]
fn damage_says_where() {
    let said = Sample::pcapng(false).hurt(|file, begin| file[begin + 5] = 0xff);
    let begin = Sample::pcapng(false).begins[HURT];
    let text = said.damages[0].to_string();
    let len = Sample::pcapng(false).begins[HURT + 1] - begin;
    let wanted =
        format!("at byte {begin}: not a block whose two lengths agree; {len} bytes left out");
    assert_eq!(text, wanted);
}

/// A clock that was set while the capture ran is no damage, and damage right there costs little.
#[test]
fn a_jump_in_time_is_no_damage() {
    let sample = |hurt: bool| {
        let mut pcap = Pcap::new(0xa1b2_3c4d, false, 1);
        for packet in 0..COUNT {
            let jump = if packet < HURT { 0 } else { 400_000_000 };
            pcap.record(NOW + jump, packet as u32, &noise(packet));
            if hurt && packet == HURT {
                let begin = pcap.bytes().len() - noise(HURT).len() - 16;
                pcap.file.bytes[begin + 10] = 0xff;
            }
        }
        read(pcap.bytes())
    };
    assert_eq!(sample(false).damages, []);
    only(&sample(false), &[], "a jump");
    only(&sample(true), &[HURT], "a jump with damage");
}

/// A transfer of a capture file, captured: what looks like records inside of a record is payload.
#[test]
fn records_inside_of_packets_are_payload() {
    let inner = Sample::pcap(false).file;
    let mut pcap = Pcap::new(0xa1b2_3c4d, false, 1);
    pcap.record(NOW, 0, &inner).record(NOW, 1, &inner);
    let said = read(pcap.bytes());
    assert_eq!(
        (said.payloads(), &said.damages[..]),
        (vec![&inner[..]; 2], &[][..])
    );
    let inner = Sample::pcapng(false).file;
    let mut pcapng = Pcapng::new(false);
    pcapng
        .section(false, 0)
        .interface(1, 0, &[])
        .packet(0, 0, &inner);
    assert_eq!(read(pcapng.bytes()).payloads(), [&inner[..]]);
}

#[test]
fn packets_of_blocks_that_are_too_short() {
    let mut pcapng = Pcapng::new(false);
    pcapng
        .section(false, 0)
        .interface(1, 0, &[])
        .block(6, |body| {
            body.u32(0).u64(0).u32(61).u32(61).raw(&[1; 60]);
        })
        .block(6, |body| {
            body.u32(0);
        })
        .block(5, |body| {
            body.u32(0);
        })
        .block(3, |body| {
            body.u32(8).u32(0);
        })
        .packet(0, 0, &[2; 60])
        .block(1, |body| {
            body.u32(0);
        })
        .interface(101, 0, &[])
        .packet(2, 0, &[3; 60]);
    let said = read(pcapng.bytes());
    let faults: Vec<_> = said.damages.iter().map(|damage| damage.fault).collect();
    assert_eq!(faults, [Fault::Short; 5]);
    assert_eq!(said.payloads(), [&[2; 60], &[3; 60]]);
}

#[test]
fn interfaces_are_bounded() {
    let mut pcapng = Pcapng::new(false);
    pcapng.section(false, 0);
    for _ in 0..4098 {
        pcapng.interface(1, 0, &[]);
    }
    pcapng.packet(4095, 0, &[1; 60]).packet(4096, 0, &[2; 60]);
    let said = read(pcapng.bytes());
    let faults: Vec<_> = said.damages.iter().map(|damage| damage.fault).collect();
    assert_eq!(
        faults,
        [Fault::Interfaces, Fault::Interfaces, Fault::Interface]
    );
    assert_eq!(said.payloads(), [&[1; 60]]);
}

/// What comes next after all packets of a file, if so much of it is shown.
fn next_step(file: &[u8], shown_after: usize) -> Step {
    let (mut reader, end) = (Reader::new(), file.len() - 16);
    let mut begin = 0;
    for _ in 0..3 {
        begin += reader.step(&file[begin..end], false).unwrap().taken();
    }
    reader.step(&file[begin..end + shown_after], false).unwrap()
}

#[test]
fn records_are_bounded() {
    let pcap = |len: usize| {
        let mut pcap = Pcap::new(0xa1b2_3c4d, false, 1);
        pcap.file.bytes[16..20].fill(0xff);
        let file = pcap.file.u32(NOW).u32(0).u32(len as u32).u32(len as u32);
        next_step(&file.bytes, 16)
    };
    assert!(matches!(pcap(RECORD_MAX - 28), Step::More(need) if need == RECORD_MAX + 4));
    assert!(matches!(pcap(RECORD_MAX - 27), Step::Skip(1)));
    let pcapng = |len: usize| {
        let mut pcapng = Pcapng::new(false);
        let file = pcapng.section(false, 0).file.u32(6).u32(len as u32).u64(0);
        next_step(&file.bytes, 12)
    };
    assert!(matches!(pcapng(RECORD_MAX), Step::More(need) if need == RECORD_MAX));
    assert!(matches!(pcapng(RECORD_MAX + 4), Step::Skip(1)));
}
