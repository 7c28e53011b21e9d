// SPDX-License-Identifier: MIT OR Apache-2.0
//! Terms of a PUT, as its client names them: the time of the file, and digests of its contents, which must match.

use super::{
    digest::{Encoding, Hasher, hexadecimal},
    guard::Rejection,
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use hyper::{HeaderMap, StatusCode, header::HeaderName};
use rustix::fs::{Timespec, Timestamps, UTIME_OMIT};

/// Time of the file, in seconds since 1970 (ownCloud, Nextcloud, rclone).
pub(in crate::http) const MODIFIED: HeaderName = HeaderName::from_static("x-oc-mtime");

/// Terms of one PUT.
#[derive(Debug, Clone, Default)]
pub(in crate::http) struct Terms {
    pub(in crate::http) modified: Option<i64>,
    digests: Vec<Digest>,
}

impl Terms {
    /// Reads the header fields. Digests by unknown algorithms are ignored.
    pub(in crate::http) fn of(headers: &HeaderMap) -> Result<Self, Rejection> {
        let mut digests = Vec::new();
        for (name, read) in FORMATS {
            for value in headers.get_all(name) {
                let text = value.to_str().map_err(|_| INVALID)?;
                digests.extend(read(text).ok_or(INVALID)?);
            }
        }
        let modified = headers.get(MODIFIED).map(|value| {
            let seconds = value.to_str().ok()?.parse::<f64>().ok()?;
            (seconds.is_finite() && seconds.abs() < 1e11).then_some(seconds as i64)
        });
        match modified {
            Some(None) => Err((StatusCode::BAD_REQUEST, "X-OC-Mtime is no time")),
            modified => Ok(Self {
                modified: modified.flatten(),
                digests,
            }),
        }
    }

    /// Adds bytes of the body.
    pub(super) fn update(&mut self, bytes: &[u8]) {
        for digest in &mut self.digests {
            digest.hasher.update(bytes);
        }
    }

    /// Whether the body was what the client meant.
    pub(super) fn check(&self) -> Result<(), Rejection> {
        let is_wrong = |digest: &Digest| digest.hasher.clone().finish() != digest.expected;
        if self.digests.iter().any(is_wrong) {
            Err((
                StatusCode::BAD_REQUEST,
                "the body does not match its digest",
            ))
        } else {
            Ok(())
        }
    }

    /// Times to set, if the client named one.
    pub(super) fn times(&self) -> Option<Timestamps> {
        let nanos = |tv_nsec| Timespec { tv_sec: 0, tv_nsec };
        Some(Timestamps {
            last_access: nanos(UTIME_OMIT),
            last_modification: Timespec {
                tv_sec: self.modified?,
                tv_nsec: 0,
            },
        })
    }
}

const INVALID: Rejection = (StatusCode::BAD_REQUEST, "a digest of the body is invalid");

/// Digest of the contents.
#[derive(Debug, Clone)]
struct Digest {
    hasher: Hasher,
    expected: Vec<u8>,
}

impl Digest {
    fn new(hasher: Hasher, expected: Vec<u8>) -> Option<Self> {
        let is_long_enough = hasher.clone().finish().len() == expected.len();
        is_long_enough.then_some(Self { hasher, expected })
    }
}

type Format = fn(&str) -> Option<Vec<Digest>>;

/// Header fields with digests, and their formats.
const FORMATS: [(&str, Format); 5] = [
    // RFC 1864.
    ("content-md5", |text| {
        let expected = STANDARD.decode(text.trim()).ok()?;
        Some(vec![Digest::new(Hasher::of("md5")?, expected)?])
    }),
    // RFC 9530: a dictionary of byte sequences. A PUT is the whole representation.
    ("content-digest", |text| list(text, Encoding::ByteSequence)),
    ("repr-digest", |text| list(text, Encoding::ByteSequence)),
    // RFC 3230.
    ("digest", |text| list(text, Encoding::Plain)),
    // ownCloud.
    ("oc-checksum", |text| {
        parse(text, ' ', ':', |_, value| hexadecimal(value))
    }),
];

fn list(text: &str, encoding: Encoding) -> Option<Vec<Digest>> {
    parse(text, ',', '=', |hasher, value| {
        encoding.decode(hasher, value)
    })
}

/// Parses digests, each an algorithm and a value. `None` if a value of a known algorithm is invalid.
fn parse(
    text: &str,
    between: char,
    after_name: char,
    decode: impl Fn(&Hasher, &str) -> Option<Vec<u8>>,
) -> Option<Vec<Digest>> {
    let mut digests = Vec::new();
    let items = text.split(between).map(str::trim);
    for item in items.filter(|item| !item.is_empty()) {
        let (algorithm, value) = item.split_once(after_name)?;
        if let Some(hasher) = Hasher::of(algorithm) {
            let expected = decode(&hasher, value)?;
            digests.push(Digest::new(hasher, expected)?);
        }
    }
    Some(digests)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether the body `hello` may have these header fields; `None` if they are invalid.
    fn accepts(fields: &[(&'static str, &str)]) -> Option<bool> {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(*name, value.parse().unwrap());
        }
        let mut terms = Terms::of(&headers).ok()?;
        terms.update(b"hel");
        terms.update(b"lo");
        Some(terms.check().is_ok())
    }

    #[test]
    fn digests_must_match_the_body() {
        const SHA256: &str = "LPJNul+wow4m6DsqxbninhsWHlwfp0JecwQzYpOLmCQ=";
        for (name, right, wrong, invalid) in [
            (
                "content-md5",
                "XUFAKrxLKna5cZ2REBfFkg==",
                "XUFAKrxLKna5cZ2REBfFkQ==",
                "XUFA",
            ),
            (
                "content-digest",
                &*format!("sha-256=:{SHA256}:, unixsum=:AAA=:"),
                "sha-256=:AAAAul+wow4m6DsqxbninhsWHlwfp0JecwQzYpOLmCQ=:",
                "sha-256=2",
            ),
            (
                "repr-digest",
                &*format!("sha-256=:{SHA256}:"),
                "sha-256=:AAAAul+wow4m6DsqxbninhsWHlwfp0JecwQzYpOLmCQ=:",
                "sha-256",
            ),
            (
                "digest",
                &*format!("SHA-256={SHA256},adler32=62c0215,crc64=1"),
                "MD5=XUFAKrxLKna5cZ2REBfFkQ==",
                "MD5=*",
            ),
            (
                "oc-checksum",
                "SHA1:aaf4c61ddcc5e8a2dabede0f3b482cd9aea9434d ADLER32:062c0215",
                "SHA1:aaf4c61ddcc5e8a2dabede0f3b482cd9aea9434e",
                "MD5:5d4",
            ),
        ] {
            assert_eq!(accepts(&[(name, right)]), Some(true), "{name}");
            assert_eq!(accepts(&[(name, wrong)]), Some(false), "{name}");
            assert_eq!(
                accepts(&[(name, right), (name, wrong)]),
                Some(false),
                "{name}"
            );
            assert_eq!(accepts(&[(name, invalid)]), None, "{name}");
        }
        assert_eq!(accepts(&[]), Some(true));
    }

    #[test]
    fn time_is_in_seconds() {
        let of = |text: &str| {
            let headers = HeaderMap::from_iter([(MODIFIED, text.parse().unwrap())]);
            Terms::of(&headers).ok().and_then(|terms| terms.modified)
        };
        assert_eq!(of("981173106"), Some(981_173_106));
        assert_eq!(of("981173106.7"), Some(981_173_106));
        assert_eq!(of("-1"), Some(-1));
        for invalid in ["", "yesterday", "inf", "1e30"] {
            assert_eq!(of(invalid), None);
        }
    }
}
