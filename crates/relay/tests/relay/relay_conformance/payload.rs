// SPDX-License-Identifier: MIT OR Apache-2.0
//! Payloads whose hash reveals lost, duplicated and reordered bytes.

use longhaul_testnet::payload::RandomBytes;
use std::{
    io::{Read, Write},
    net::TcpStream,
};

/// Length and BLAKE3 hash of a payload.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct PayloadDigest {
    pub(crate) bytes: u64,
    pub(crate) hash: blake3::Hash,
}

/// Writes `bytes` pseudorandom bytes from `seed`, and calls `on_write` with the length of each
/// write.
pub(crate) fn send(
    mut to: &TcpStream,
    seed: u64,
    bytes: u64,
    on_write: impl Fn(u64),
) -> std::io::Result<PayloadDigest> {
    let mut random = RandomBytes::new(seed);
    let (mut hash, mut block, mut left) = (blake3::Hasher::new(), [0; 1 << 16], bytes);
    while left > 0 {
        let part = &mut block[..left.min(1 << 16) as usize];
        random.fill(part);
        to.write_all(part)?;
        hash.update(&*part);
        left -= part.len() as u64;
        on_write(part.len() as u64);
    }
    let hash = hash.finalize();
    Ok(PayloadDigest { bytes, hash })
}

/// Reads to the end of the stream.
pub(crate) fn receive(from: &TcpStream) -> std::io::Result<PayloadDigest> {
    receive_after(&[], from)
}

/// Reads to the end of a stream whose beginning has been read.
pub(crate) fn receive_after(
    beginning: &[u8],
    mut from: &TcpStream,
) -> std::io::Result<PayloadDigest> {
    let mut hash = blake3::Hasher::new();
    hash.update(beginning);
    let (mut block, mut bytes) = (vec![0; 1 << 18], beginning.len() as u64);
    loop {
        let read = from.read(&mut block)?;
        if read == 0 {
            let hash = hash.finalize();
            return Ok(PayloadDigest { bytes, hash });
        }
        hash.update(&block[..read]);
        bytes += read as u64;
    }
}
