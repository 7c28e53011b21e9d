// SPDX-License-Identifier: MIT OR Apache-2.0
//! Builders of capture files, independent of the library's writer.

/// A buffer to which numbers are appended in a byte order.
#[derive(Debug, Clone)]
pub(crate) struct Bytes {
    big: bool,
    pub(crate) bytes: Vec<u8>,
}

impl Bytes {
    pub(crate) fn new(big: bool) -> Self {
        Self {
            big,
            bytes: Vec::new(),
        }
    }

    fn put(&mut self, mut little: Vec<u8>) -> &mut Self {
        if self.big {
            little.reverse();
        }
        self.bytes.extend(little);
        self
    }

    pub(crate) fn u16(&mut self, value: u16) -> &mut Self {
        self.put(value.to_le_bytes().into())
    }

    pub(crate) fn u32(&mut self, value: u32) -> &mut Self {
        self.put(value.to_le_bytes().into())
    }

    pub(crate) fn u64(&mut self, value: u64) -> &mut Self {
        self.put(value.to_le_bytes().into())
    }

    pub(crate) fn raw(&mut self, bytes: &[u8]) -> &mut Self {
        self.bytes.extend(bytes);
        self
    }

    /// Pads with zeros to a multiple of four bytes.
    pub(crate) fn pad(&mut self) -> &mut Self {
        let len = self.bytes.len().next_multiple_of(4);
        self.bytes.resize(len, 0);
        self
    }
}

/// A pcap file.
#[derive(Debug, Clone)]
pub(crate) struct Pcap {
    pub(crate) file: Bytes,
    /// Bytes of each record header after the first 16.
    extra: usize,
}

impl Pcap {
    pub(crate) fn new(magic: u32, big: bool, link_type: u32) -> Self {
        Self::with_extra(magic, big, link_type, 0)
    }

    pub(crate) fn with_extra(magic: u32, big: bool, link_type: u32, extra: usize) -> Self {
        let mut file = Bytes::new(big);
        file.u32(magic).u16(2).u16(4).u32(0).u32(0).u32(128);
        file.u32(link_type);
        Self { file, extra }
    }

    /// Begins a file of another version than 2.4.
    pub(crate) fn with_version(big: bool, [major, minor]: [u16; 2]) -> Self {
        let mut pcap = Self::new(0xa1b2_c3d4, big, 1);
        let mut version = Bytes::new(big);
        version.u16(major).u16(minor);
        pcap.file.bytes[4..8].copy_from_slice(&version.bytes);
        pcap
    }

    /// Adds a record with these two lengths in its header, in their order.
    pub(crate) fn record_with_lengths(&mut self, lengths: [u32; 2], bytes: &[u8]) -> &mut Self {
        let file = self.file.u32(1_700_000_000).u32(0);
        file.u32(lengths[0]).u32(lengths[1]).raw(bytes);
        self
    }

    pub(crate) fn record(&mut self, seconds: u32, fraction: u32, bytes: &[u8]) -> &mut Self {
        self.record_of(seconds, fraction, bytes, bytes.len() as u32)
    }

    pub(crate) fn record_of(
        &mut self,
        seconds: u32,
        fraction: u32,
        bytes: &[u8],
        wire_len: u32,
    ) -> &mut Self {
        let extra = vec![0xee; self.extra];
        let file = self.file.u32(seconds).u32(fraction);
        file.u32(bytes.len() as u32).u32(wire_len);
        file.raw(&extra).raw(bytes);
        self
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.file.bytes
    }
}

/// A pcapng file.
#[derive(Debug, Clone)]
pub(crate) struct Pcapng {
    pub(crate) file: Bytes,
}

impl Pcapng {
    pub(crate) fn new(big: bool) -> Self {
        Self {
            file: Bytes::new(big),
        }
    }

    pub(crate) fn block(&mut self, kind: u32, body: impl FnOnce(&mut Bytes)) -> &mut Self {
        let mut inner = Bytes::new(self.file.big);
        body(&mut inner);
        inner.pad();
        let len = inner.bytes.len() as u32 + 12;
        self.file.u32(kind).u32(len).raw(&inner.bytes).u32(len);
        self
    }

    /// Begins a section in this byte order.
    pub(crate) fn section(&mut self, big: bool, len: u64) -> &mut Self {
        self.file.big = big;
        self.block(0x0a0d_0d0a, |body| {
            body.u32(0x1a2b_3c4d).u16(1).u16(0).u64(len);
        })
    }

    pub(crate) fn interface(
        &mut self,
        link_type: u16,
        snaplen: u32,
        options: &[(u16, &[u8])],
    ) -> &mut Self {
        self.block(1, |body| {
            body.u16(link_type).u16(0).u32(snaplen);
            put_options(body, options);
        })
    }

    pub(crate) fn packet(&mut self, interface: u32, timestamp: u64, bytes: &[u8]) -> &mut Self {
        self.packet_with(interface, timestamp, bytes, &[])
    }

    pub(crate) fn packet_with(
        &mut self,
        interface: u32,
        timestamp: u64,
        bytes: &[u8],
        options: &[(u16, &[u8])],
    ) -> &mut Self {
        self.block(6, |body| {
            body.u32(interface);
            put_packet(body, timestamp, bytes);
            put_options(body, options);
        })
    }

    pub(crate) fn obsolete_packet(
        &mut self,
        interface: u16,
        timestamp: u64,
        bytes: &[u8],
    ) -> &mut Self {
        self.block(2, |body| {
            body.u16(interface).u16(0xffff);
            put_packet(body, timestamp, bytes);
        })
    }

    pub(crate) fn simple_packet(&mut self, bytes: &[u8], wire_len: u32) -> &mut Self {
        self.block(3, |body| {
            body.u32(wire_len).raw(bytes);
        })
    }

    pub(crate) fn statistics(
        &mut self,
        interface: u32,
        timestamp: u64,
        counts: &[(u16, u64)],
    ) -> &mut Self {
        self.block(5, |body| {
            body.u32(interface)
                .u32((timestamp >> 32) as u32)
                .u32(timestamp as u32);
            for (code, count) in counts {
                body.u16(*code).u16(8).u64(*count);
            }
            body.u32(0);
        })
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.file.bytes
    }
}

fn put_packet(body: &mut Bytes, timestamp: u64, bytes: &[u8]) {
    body.u32((timestamp >> 32) as u32).u32(timestamp as u32);
    body.u32(bytes.len() as u32).u32(1514);
    body.raw(bytes).pad();
}

fn put_options(body: &mut Bytes, options: &[(u16, &[u8])]) {
    for (code, value) in options {
        body.u16(*code).u16(value.len() as u16).raw(value).pad();
    }
    if !options.is_empty() {
        body.u32(0);
    }
}
