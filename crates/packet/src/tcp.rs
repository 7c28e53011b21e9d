// SPDX-License-Identifier: MIT OR Apache-2.0
//! TCP headers (RFC 9293 §3.1).

/// FIN.
pub const FIN: u8 = 0x01;
/// SYN.
pub const SYN: u8 = 0x02;
/// RST.
pub const RST: u8 = 0x04;
/// PSH.
pub const PSH: u8 = 0x08;
/// ACK.
pub const ACK: u8 = 0x10;
/// URG.
pub const URG: u8 = 0x20;
/// ECE (RFC 3168 §6.1).
pub const ECE: u8 = 0x40;
/// CWR (RFC 3168 §6.1).
pub const CWR: u8 = 0x80;

/// A view of a TCP header with its options, at least 20 bytes.
#[derive(Debug, Clone, Copy)]
pub struct Header<'a>(&'a [u8]);

impl<'a> Header<'a> {
    /// Returns the header at the beginning of `bytes`; `None` if it is cut off or its data offset is below 5.
    #[must_use]
    pub fn at(bytes: &'a [u8]) -> Option<Self> {
        let len = usize::from(bytes.get(12)? >> 4) * 4;
        (len >= 20).then(|| bytes.get(..len)).flatten().map(Self)
    }

    /// Length with options, in bytes.
    #[must_use]
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Source port.
    #[must_use]
    pub fn source(&self) -> u16 {
        u16::from_be_bytes([self.0[0], self.0[1]])
    }

    /// Destination port.
    #[must_use]
    pub fn destination(&self) -> u16 {
        u16::from_be_bytes([self.0[2], self.0[3]])
    }

    /// Sequence number.
    #[must_use]
    pub fn seq(&self) -> u32 {
        u32::from_be_bytes([self.0[4], self.0[5], self.0[6], self.0[7]])
    }

    /// Acknowledgement number.
    #[must_use]
    pub fn ack(&self) -> u32 {
        u32::from_be_bytes([self.0[8], self.0[9], self.0[10], self.0[11]])
    }

    /// Flags byte. FIN is the least significant bit, CWR the most significant.
    #[must_use]
    pub fn flags(&self) -> u8 {
        self.0[13]
    }

    /// Window field as sent, before window scaling (RFC 7323 §2).
    #[must_use]
    pub fn window(&self) -> u16 {
        u16::from_be_bytes([self.0[14], self.0[15]])
    }

    /// Iterates over the options as kind and data. Ends at the End of Option List option or the first malformed option.
    pub fn options(&self) -> impl Iterator<Item = (u8, &'a [u8])> + use<'a> {
        let mut rest = &self.0[20..];
        std::iter::from_fn(move || {
            while let [1, tail @ ..] = rest {
                rest = tail;
            }
            let (&kind, &len) = (rest.first()?, rest.get(1)?);
            let body = (kind != 0)
                .then(|| rest.get(2..usize::from(len)))
                .flatten()?;
            rest = &rest[usize::from(len)..];
            Some((kind, body))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(options: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; 20 + options.len()];
        bytes[12] = ((bytes.len() / 4) << 4) as u8;
        bytes[20..].copy_from_slice(options);
        bytes
    }

    #[test]
    fn finds_an_option_after_no_operation_options() {
        let bytes = header(&[1, 1, 5, 10, 0, 0, 0, 1, 0, 0, 0, 2]);
        let options: Vec<_> = Header::at(&bytes).unwrap().options().collect();
        assert_eq!(options, [(5, &[0, 0, 0, 1, 0, 0, 0, 2][..])]);
    }

    #[test]
    fn stops_at_malformed_options() {
        for options in [[5, 0, 0, 0], [5, 1, 0, 0], [8, 99, 0, 0], [0, 5, 2, 0]] {
            let bytes = header(&options);
            assert_eq!(
                Header::at(&bytes).unwrap().options().count(),
                0,
                "{options:?}"
            );
        }
    }

    #[test]
    fn rejects_a_header_that_is_cut_off() {
        assert!(Header::at(&[0; 19]).is_none());
        let mut bytes = header(&[]);
        bytes[12] = 0xf0;
        assert!(Header::at(&bytes).is_none());
    }
}
