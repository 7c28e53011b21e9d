// SPDX-License-Identifier: MIT OR Apache-2.0
//! Encoding of a Convert message: the fixed header, and the TLVs after it.

use super::error::ConvertError;

/// The length of the longest message, bytes: the length field is one byte that counts 32-bit words (RFC 8803 §6.1).
pub const MESSAGE_LEN_MAX: usize = 255 * WORD;

// RFC 8803 §6.1.
const VERSION: u8 = 1;
const MAGIC: u16 = 0x2263;
pub(super) const WORD: usize = 4;
pub(super) const HEADER_LEN: usize = WORD;

/// The type of the Connect TLV (RFC 8803 §6.2.5). It names the destination. Each request has it, and no answer does.
pub(super) const CONNECT: u8 = 0x0A;

/// Message under construction. `finish` fills in the total length.
pub(super) struct Message(pub(super) Vec<u8>);

impl Message {
    pub(super) fn new() -> Self {
        let [high, low] = MAGIC.to_be_bytes();
        Self(vec![VERSION, 0, high, low])
    }

    /// Appends a TLV (RFC 8803 §6.2): type, length in words (these two bytes included), value, zero padding.
    pub(super) fn tlv(&mut self, kind: u8, value: &[u8]) {
        let words = (2 + value.len()).div_ceil(WORD);
        let end = self.0.len() + words * WORD;
        self.0.extend([kind, words as u8]);
        self.0.extend(value);
        self.0.resize(end, 0);
    }

    pub(super) fn finish(mut self) -> Vec<u8> {
        assert!(self.0.len() <= MESSAGE_LEN_MAX, "{} bytes", self.0.len());
        self.0[1] = (self.0.len() / WORD) as u8;
        self.0
    }
}

/// Checks the fixed header (RFC 8803 §6.1) and returns the message's length in bytes.
pub(super) fn message_len(input: &[u8]) -> Result<usize, ConvertError> {
    // The magic number is checked first: without it, the other fields mean nothing.
    if input[2..HEADER_LEN] != MAGIC.to_be_bytes() {
        return Err(ConvertError::Magic);
    }
    match (input[0], input[1]) {
        (VERSION, 0) => Err(ConvertError::Length),
        (VERSION, words) => Ok(usize::from(words) * WORD),
        (other, _) => Err(ConvertError::Version(other)),
    }
}

/// Returns the TLVs of a whole message, or `None` while bytes are missing.
pub(super) fn body(input: &[u8]) -> Result<Option<&[u8]>, ConvertError> {
    if input.len() < HEADER_LEN {
        return Ok(None);
    }
    let len = message_len(input)?;
    Ok(input.get(HEADER_LEN..len))
}

/// Iterator over the TLVs of a message. It yields the type and the value of each, padding included.
pub(super) struct Tlvs<'a>(pub(super) &'a [u8]);

impl<'a> Iterator for Tlvs<'a> {
    type Item = Result<(u8, &'a [u8]), ConvertError>;

    fn next(&mut self) -> Option<Self::Item> {
        let (&kind, &words) = (self.0.first()?, self.0.get(1)?);
        let len = usize::from(words) * WORD;
        if words == 0 || len > self.0.len() {
            self.0 = &[];
            return Some(Err(ConvertError::Length));
        }
        let (tlv, rest) = self.0.split_at(len);
        self.0 = rest;
        Some(Ok((kind, &tlv[2..])))
    }
}
