// SPDX-License-Identifier: MIT OR Apache-2.0
//! What `longhaul link --tap` wrote, read by hand: docs/tap-format.md and the pcapng draft, nothing of
//! the program's own.

/// A file as far as it is whole.
#[derive(Default)]
pub(crate) struct TapFile {
    pub(crate) interfaces: Vec<String>,
    pub(crate) records: Vec<Record>,
    /// By interface: received, dropped, comment.
    pub(crate) statistics: Vec<(u64, u64, String)>,
    /// Bytes behind the last whole block.
    pub(crate) rest: usize,
}

/// A segment at one tap point.
#[derive(Clone)]
pub(crate) struct Record {
    pub(crate) interface: u32,
    pub(crate) at_ns: u64,
    pub(crate) wire_len: u32,
    pub(crate) bytes: Vec<u8>,
    pub(crate) truth: Option<Truth>,
}

/// Before the queue only.
#[derive(Clone, Copy)]
pub(crate) struct Truth {
    /// 0 passed, 1 lost, 2 dropped, 3 thinned.
    pub(crate) fate: u8,
    pub(crate) queue_bytes: u64,
}

impl TapFile {
    pub(crate) fn read(mut bytes: &[u8]) -> Self {
        let mut file = Self::default();
        while bytes.len() >= 12 {
            let len = word(bytes, 4) as usize;
            if len > bytes.len() {
                break;
            }
            let (block, rest) = bytes.split_at(len);
            assert_eq!(word(block, len - 4) as usize, len, "length at both ends");
            file.add(word(block, 0), &block[8..len - 4]);
            bytes = rest;
        }
        file.rest = bytes.len();
        file
    }

    fn add(&mut self, kind: u32, body: &[u8]) {
        match kind {
            0x0a0d_0d0a => assert_eq!(word(body, 0), 0x1a2b_3c4d, "little-endian"),
            1 => self.interfaces.push(interface(body)),
            5 => self.statistics.push(statistics(&body[12..])),
            6 => self.records.push(record(body)),
            other => panic!("block type {other:#x}"),
        }
    }

    /// What came to the queue of a direction (0 forward, 1 backward), in order.
    pub(crate) fn arrivals(&self, direction: u32) -> Vec<Record> {
        self.select(direction, true)
    }

    /// What came out of it.
    pub(crate) fn departures(&self, direction: u32) -> Vec<Record> {
        self.select(1 - direction, false)
    }

    fn select(&self, interface: u32, with_truth: bool) -> Vec<Record> {
        let here = |record: &&Record| {
            record.interface == interface && record.truth.is_some() == with_truth
        };
        let mut records: Vec<_> = self.records.iter().filter(here).cloned().collect();
        records.sort_by_key(|record| record.at_ns);
        records
    }
}

fn interface(body: &[u8]) -> String {
    assert_eq!(word(body, 0), 101, "LINKTYPE_RAW");
    let mut name = String::new();
    let mut resolution = 6;
    for (code, value) in options(&body[8..]) {
        match code {
            2 => name = text(value),
            9 => resolution = value[0],
            _ => {}
        }
    }
    assert_eq!(resolution, 9, "nanoseconds");
    name
}

fn statistics(body: &[u8]) -> (u64, u64, String) {
    let mut out = (0, 0, String::new());
    for (code, value) in options(body) {
        match code {
            1 => out.2 = text(value),
            4 => out.0 = u64::from_le_bytes(value.try_into().unwrap()),
            5 => out.1 = u64::from_le_bytes(value.try_into().unwrap()),
            _ => {}
        }
    }
    out
}

fn record(body: &[u8]) -> Record {
    let captured = word(body, 12) as usize;
    let bytes = body[20..20 + captured].to_vec();
    let mut truth = None;
    for (code, value) in options(&body[20 + captured.next_multiple_of(4)..]) {
        if code == 2989 && word(value, 0) == 32473 {
            assert_eq!(value[4], 1, "version");
            truth = Some(Truth {
                fate: value[5],
                queue_bytes: u64::from(word(value, 8)),
            });
        }
    }
    Record {
        interface: word(body, 0),
        at_ns: u64::from(word(body, 4)) << 32 | u64::from(word(body, 8)),
        wire_len: word(body, 16),
        bytes,
        truth,
    }
}

fn options(mut body: &[u8]) -> Vec<(u16, &[u8])> {
    let mut out = Vec::new();
    while body.len() >= 4 {
        let code = u16::from_le_bytes([body[0], body[1]]);
        let len = usize::from(u16::from_le_bytes([body[2], body[3]]));
        if code != 0 {
            out.push((code, &body[4..4 + len]));
        }
        body = &body[4 + len.next_multiple_of(4)..];
    }
    out
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}
