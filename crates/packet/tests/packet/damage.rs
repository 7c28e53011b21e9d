// SPDX-License-Identifier: MIT OR Apache-2.0
//! Damaged capture files: the reader reads the valid records and reports the skipped bytes.

use crate::build::{Pcap, Pcapng};
use crate::reading::{Contents, read};
use longhaul_packet::capture::{DamageKind, OddTimes, RECORD_MAX, Reader, Step};

const NOW: u32 = 1_700_000_000;
const COUNT: usize = 40;
/// Number of the packet whose record is damaged.
const DAMAGED: usize = 17;

/// Pseudo-random bytes, different for each packet, at least 50.
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

/// A valid file, and the offsets of its packets' records.
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

    /// Reads a copy of the file after `change`, which gets the offset of the record to damage.
    fn read_after(&self, change: impl FnOnce(&mut Vec<u8>, usize)) -> Contents {
        let mut file = self.file.clone();
        change(&mut file, self.begins[DAMAGED]);
        read(&file)
    }
}

/// Checks that only the `lost` packets are missing, and that not many more bytes than theirs were skipped.
fn assert_only_lost(contents: &Contents, lost: &[usize], case: &str) {
    let expected: Vec<_> = (0..COUNT)
        .filter(|packet| !lost.contains(packet))
        .map(noise)
        .collect();
    let mut payloads = contents.payloads().into_iter();
    for packet in &expected {
        assert!(
            payloads.any(|payload| payload == packet),
            "{case}: a further packet is missing"
        );
    }
    assert!(
        contents.packets.len() <= COUNT,
        "{case}: more packets than were written"
    );
    let sizes = lost.iter().map(|packet| noise(*packet).len() as u64 + 72);
    assert!(
        contents.skipped() <= sizes.sum(),
        "{case}: {:?}",
        contents.damages
    );
}

#[test]
fn reads_undamaged_samples() {
    for sample in Sample::all() {
        let contents = read(&sample.file);
        assert_only_lost(&contents, &[], "undamaged");
        assert_eq!(contents.damages, []);
    }
}

/// Changes every byte of a record except its packet in several ways. At most that record is lost.
#[test]
fn a_damaged_byte_loses_at_most_its_record() {
    for sample in Sample::all() {
        let len = sample.begins[DAMAGED + 1] - sample.begins[DAMAGED];
        for at in (0..28).chain(len - 4..len) {
            for change in [0x01, 0x02, 0x10, 0x40, 0x80, 0xff] {
                let contents = sample.read_after(|file, begin| file[begin + at] ^= change);
                assert_only_lost(&contents, &[DAMAGED], &format!("byte {at} ^ {change:#x}"));
            }
        }
    }
}

#[test]
fn reports_a_wrong_length() {
    for sample in [Sample::pcap(false), Sample::pcapng(false)] {
        let pcapng = sample.begins[0] > 24;
        let at = if pcapng { 4 } else { 8 };
        for change in [0x08, 0x40] {
            for byte in 0..4 {
                let contents = sample.read_after(|file, begin| file[begin + at + byte] ^= change);
                let damage = contents.damages[0];
                let begins = sample.begins[DAMAGED] as u64;
                assert!((begins..begins + 200).contains(&damage.at), "{damage}");
                assert_eq!(contents.damages.len(), 1);
                let kind = if pcapng {
                    DamageKind::Lengths
                } else {
                    DamageKind::Header
                };
                assert_eq!(damage.kind, kind);
            }
        }
    }
}

/// A date of 2038 or of 1970 comes from a clock or a damaged byte. The packet is as good as any other.
#[test]
fn a_packet_with_a_date_far_off_has_a_time_between_its_neighbours() {
    for (change, damaged) in [
        (0xe5, DAMAGED),
        (0x65, DAMAGED),
        (0x20, COUNT - 2),
        (0x20, 0),
    ] {
        let sample = Sample::pcap(false);
        let mut file = sample.file.clone();
        file[sample.begins[damaged] + 3] ^= change;
        let contents = read(&file);
        let mut expected = read(&sample.file);
        assert_eq!(expected.odd_times, OddTimes::default());
        let before = if damaged == 0 { 1 } else { damaged - 1 };
        let [before, after] = [before, damaged + 1].map(|packet| expected.packets[packet].at_ns);
        expected.packets[damaged].at_ns = before.midpoint(after);
        expected.odd_times.far_off = 1;
        assert_eq!(contents, expected);
    }
}

/// A silence of months may be real; that the time goes back, or years forward, is not.
#[test]
fn the_last_packet_with_a_date_far_off_has_the_time_of_the_one_before() {
    for (seconds, far_off) in [
        (0, true),
        (NOW - 86_402, true),
        (NOW - 80_000, false),
        (NOW + 100 * 86_400, false),
        (NOW + 400 * 86_400, true),
    ] {
        let mut pcap = Pcap::new(0xa1b2_c3d4, false, 1);
        for number in 0..5 {
            pcap.record(NOW, number * 100, &[number as u8; 60]);
        }
        pcap.record(seconds, 7, &[9; 60]);
        let contents = read(pcap.bytes());
        let times: Vec<_> = contents.packets.iter().map(|packet| packet.at_ns).collect();
        let own = u64::from(seconds) * 1_000_000_000 + 7_000;
        assert_eq!(times.len(), 6);
        assert_eq!(times[5], if far_off { times[4] } else { own }, "{seconds}");
        assert_eq!(contents.odd_times.far_off, u64::from(far_off));
    }
}

/// Frames of some link types begin with a small number, such as the length of a header. Four bytes after the header of a
/// record of full length, another header seems to begin there, and so on to the end of the file.
#[test]
fn a_date_far_off_is_no_reason_to_search_inside_of_records() {
    for (far_off, later) in [(COUNT - 2, false), (COUNT / 2, false), (COUNT / 2, true)] {
        let mut pcap = Pcap::new(0xa1b2_c3d4, false, 117);
        for number in 0..COUNT {
            let is_far_off = number == far_off || later && number > far_off;
            let seconds = NOW + if is_far_off { 1 << 30 } else { 0 };
            let bytes = [&[61, 2, 0, 0][..], &[number as u8; 80]].concat();
            pcap.record(seconds, number as u32 * 100, &bytes);
        }
        let contents = read(pcap.bytes());
        assert_eq!((contents.packets.len(), contents.damages), (COUNT, vec![]));
        assert_eq!(contents.odd_times.far_off, u64::from(!later));
    }
}

/// Of two packets with different dates, either may be wrong.
#[test]
fn two_packets_keep_their_dates() {
    let mut pcap = Pcap::new(0xa1b2_3c4d, false, 1);
    pcap.record(NOW + 400_000_000, 0, &[1; 60])
        .record(NOW, 0, &[2; 60]);
    let contents = read(pcap.bytes());
    assert_eq!(
        contents.packets[0].at_ns / 1_000_000_000,
        u64::from(NOW) + 400_000_000
    );
    assert_eq!(contents.odd_times, OddTimes::default());
}

#[test]
fn missing_or_extra_bytes_lose_at_most_their_record() {
    for sample in Sample::all() {
        for count in [1, 2, 3, 5, 16, 31] {
            let contents =
                sample.read_after(|file, begin| drop(file.drain(begin + 20..begin + 20 + count)));
            assert_only_lost(&contents, &[DAMAGED], "missing");
            assert_eq!(contents.damages.len(), 1, "{count} are missing");
            let contents = sample.read_after(|file, begin| {
                drop(file.splice(begin + 20..begin + 20, vec![0x55; count]));
            });
            assert_only_lost(&contents, &[DAMAGED], "extra");
            assert_eq!(contents.damages.len(), 1, "{count} extra");
        }
    }
}

#[test]
fn a_range_of_zeros_loses_the_packets_in_it() {
    for sample in Sample::all() {
        let until = sample.begins[DAMAGED + 5] + 3;
        let contents = sample.read_after(|file, begin| file[begin + 3..until].fill(0));
        assert_only_lost(&contents, &[17, 18, 19, 20, 21, 22], "zeros");
        assert_eq!(contents.damages.len(), 1, "{:?}", contents.damages);
    }
}

#[test]
fn reports_zeros_at_the_end_as_a_single_damage() {
    for sample in Sample::all() {
        let contents = sample.read_after(|file, _| file.extend([0; 8192]));
        assert_single_damage(&contents, 8192);
    }
}

/// Checks that all packets were read and a single damage of `skipped` bytes was reported.
fn assert_single_damage(contents: &Contents, skipped: u64) {
    assert_eq!(contents.packets.len(), COUNT);
    assert_eq!((contents.damages.len(), contents.skipped()), (1, skipped));
}

#[test]
fn reports_a_truncated_last_record() {
    for sample in Sample::all() {
        let last = sample.begins[COUNT - 1];
        assert_eq!(read(&sample.file[..last]).damages, []);
        for len in last + 1..sample.file.len() {
            let contents = read(&sample.file[..len]);
            assert_eq!(contents.packets.len(), COUNT - 1);
            let damage = contents.damages[0];
            assert_eq!(
                (contents.damages.len(), damage.kind),
                (1, DamageKind::Truncated),
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
fn damage_displays_offset_and_length() {
    let contents = Sample::pcapng(false).read_after(|file, begin| file[begin + 5] = 0xff);
    let begin = Sample::pcapng(false).begins[DAMAGED];
    let text = contents.damages[0].to_string();
    let len = Sample::pcapng(false).begins[DAMAGED + 1] - begin;
    let expected = format!(
        "at byte {begin}: not a block whose two lengths agree; {len} bytes were skipped, up to the next valid record or the end of the file"
    );
    assert_eq!(text, expected);
}

/// A clock that was set during the capture is no damage. A damaged record right at the jump is lost alone.
#[test]
fn a_time_jump_is_no_damage() {
    let sample = |damaged: bool| {
        let mut pcap = Pcap::new(0xa1b2_3c4d, false, 1);
        for packet in 0..COUNT {
            let jump = if packet < DAMAGED { 0 } else { 400_000_000 };
            pcap.record(NOW + jump, packet as u32, &noise(packet));
            if damaged && packet == DAMAGED {
                let begin = pcap.bytes().len() - noise(DAMAGED).len() - 16;
                pcap.file.bytes[begin + 10] = 0xff;
            }
        }
        read(pcap.bytes())
    };
    assert_eq!(sample(false).damages, []);
    assert_only_lost(&sample(false), &[], "a jump");
    assert_only_lost(&sample(true), &[DAMAGED], "a jump with damage");
}

/// A capture of a transfer of a capture file has records inside of packets.
#[test]
fn records_inside_of_packets_are_payload() {
    let inner = Sample::pcap(false).file;
    let mut pcap = Pcap::new(0xa1b2_3c4d, false, 1);
    pcap.record(NOW, 0, &inner).record(NOW, 1, &inner);
    let contents = read(pcap.bytes());
    assert_eq!(
        (contents.payloads(), &contents.damages[..]),
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
fn reports_blocks_that_are_too_short() {
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
    let contents = read(pcapng.bytes());
    let faults: Vec<_> = contents.damages.iter().map(|damage| damage.kind).collect();
    assert_eq!(faults, [DamageKind::Short; 5]);
    assert_eq!(contents.payloads(), [&[2; 60], &[3; 60]]);
}

#[test]
fn bounds_the_number_of_interfaces() {
    let mut pcapng = Pcapng::new(false);
    pcapng.section(false, 0);
    for _ in 0..4098 {
        pcapng.interface(1, 0, &[]);
    }
    pcapng.packet(4095, 0, &[1; 60]).packet(4096, 0, &[2; 60]);
    let contents = read(pcapng.bytes());
    let faults: Vec<_> = contents.damages.iter().map(|damage| damage.kind).collect();
    assert_eq!(
        faults,
        [
            DamageKind::Interfaces,
            DamageKind::Interfaces,
            DamageKind::Interface
        ]
    );
    assert_eq!(contents.payloads(), [&[1; 60]]);
}

/// Step at the last 16 bytes of a file, if the buffer has the first `len` of them.
fn step_at_last_record(file: &[u8], len: usize) -> Step {
    let (mut reader, end) = (Reader::new(), file.len() - 16);
    let mut begin = 0;
    for _ in 0..3 {
        begin += reader.step(&file[begin..end], false).unwrap().taken();
    }
    reader.step(&file[begin..end + len], false).unwrap()
}

#[test]
fn bounds_the_length_of_records() {
    let pcap = |len: usize| {
        let mut pcap = Pcap::new(0xa1b2_3c4d, false, 1);
        pcap.file.bytes[16..20].fill(0xff);
        let file = pcap.file.u32(NOW).u32(0).u32(len as u32).u32(len as u32);
        step_at_last_record(&file.bytes, 16)
    };
    assert!(matches!(pcap(RECORD_MAX - 28), Step::More(need) if need == RECORD_MAX + 4));
    assert!(matches!(pcap(RECORD_MAX - 27), Step::Skip(1)));
    let pcapng = |len: usize| {
        let mut pcapng = Pcapng::new(false);
        let file = pcapng.section(false, 0).file.u32(6).u32(len as u32).u64(0);
        step_at_last_record(&file.bytes, 12)
    };
    assert!(matches!(pcapng(RECORD_MAX), Step::More(need) if need == RECORD_MAX));
    assert!(matches!(pcapng(RECORD_MAX + 4), Step::Skip(1)));
}
