// SPDX-License-Identifier: MIT OR Apache-2.0
//! Digests of contents by the algorithms that clients name.

use base64::{Engine as _, engine::general_purpose::STANDARD};

/// Digest that is being computed.
#[derive(Debug, Clone)]
pub(in crate::http) enum Hasher {
    Adler32(adler2::Adler32),
    Md5(md5::Md5),
    Sha1(sha1::Sha1),
    Sha256(sha2::Sha256),
    Sha512(sha2::Sha512),
}

impl Hasher {
    /// Returns the hasher of an algorithm, by the names of RFC 3230, RFC 9530 and ownCloud.
    pub(in crate::http) fn of(algorithm: &str) -> Option<Self> {
        Some(match algorithm.to_ascii_lowercase().as_str() {
            "adler" | "adler32" => Self::Adler32(adler2::Adler32::default()),
            "md5" => Self::Md5(md5::Md5::default()),
            "sha" | "sha1" | "sha-1" => Self::Sha1(sha1::Sha1::default()),
            "sha256" | "sha-256" => Self::Sha256(sha2::Sha256::default()),
            "sha512" | "sha-512" => Self::Sha512(sha2::Sha512::default()),
            _ => return None,
        })
    }

    pub(in crate::http) fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Adler32(hasher) => hasher.write_slice(bytes),
            Self::Md5(hasher) => md5::Digest::update(hasher, bytes),
            Self::Sha1(hasher) => sha1::Digest::update(hasher, bytes),
            Self::Sha256(hasher) => sha2::Digest::update(hasher, bytes),
            Self::Sha512(hasher) => sha2::Digest::update(hasher, bytes),
        }
    }

    pub(in crate::http) fn finish(self) -> Vec<u8> {
        match self {
            Self::Adler32(hasher) => hasher.checksum().to_be_bytes().to_vec(),
            Self::Md5(hasher) => md5::Digest::finalize(hasher).to_vec(),
            Self::Sha1(hasher) => sha1::Digest::finalize(hasher).to_vec(),
            Self::Sha256(hasher) => sha2::Digest::finalize(hasher).to_vec(),
            Self::Sha512(hasher) => sha2::Digest::finalize(hasher).to_vec(),
        }
    }
}

/// Form of a digest in a header field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::http) enum Encoding {
    /// Base64; Adler-32 in hexadecimal (RFC 3230).
    Plain,
    /// Byte sequence of a structured field (RFC 9530).
    ByteSequence,
}

impl Encoding {
    pub(in crate::http) fn encode(self, hasher: Hasher) -> String {
        let is_adler = matches!(hasher, Hasher::Adler32(_));
        let digest = hasher.finish();
        match self {
            Self::Plain if is_adler => digest.iter().map(|byte| format!("{byte:02x}")).collect(),
            Self::Plain => STANDARD.encode(digest),
            Self::ByteSequence => format!(":{}:", STANDARD.encode(digest)),
        }
    }

    pub(in crate::http) fn decode(self, hasher: &Hasher, text: &str) -> Option<Vec<u8>> {
        match self {
            Self::Plain if matches!(hasher, Hasher::Adler32(_)) => {
                hexadecimal(&format!("{text:0>8}"))
            }
            Self::Plain => STANDARD.decode(text).ok(),
            Self::ByteSequence => {
                let inside = text.strip_prefix(':')?.strip_suffix(':')?;
                STANDARD.decode(inside).ok()
            }
        }
    }
}

pub(in crate::http) fn hexadecimal(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes().chunks(2);
    let byte = |pair: &[u8]| u8::from_str_radix(str::from_utf8(pair).ok()?, 16).ok();
    match text.len() % 2 {
        0 => digits.map(byte).collect(),
        _ => None,
    }
}
