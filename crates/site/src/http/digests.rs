// SPDX-License-Identifier: MIT OR Apache-2.0
//! Digests of contents: those that a PUT announces, and those that a GET or a HEAD asks for. The header fields are
//! those of RFC 1864, RFC 3230, RFC 9530 and ownCloud.

use super::{
    export::meta::Meta,
    response::{HttpResponse, Outcome, Rejection, blocking, insert},
};
use adler2::Adler32;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use hyper::{HeaderMap, StatusCode, header::HeaderName};
use md5::Md5;
use sha1::Sha1;
use sha2::{Digest, Sha256, Sha512};
use std::{collections::HashMap, fs::File, os::unix::fs::FileExt as _, sync::Arc};

/// Bytes that are read between two looks at whether the client is still there.
const STEP: usize = 1 << 20;

/// Digest that is being computed.
trait Hasher: Send {
    fn update(&mut self, bytes: &[u8]);
    fn digest(&self) -> Vec<u8>;
}

impl<D: Digest + Clone + Send> Hasher for D {
    fn update(&mut self, bytes: &[u8]) {
        Digest::update(self, bytes);
    }

    fn digest(&self) -> Vec<u8> {
        self.clone().finalize().to_vec()
    }
}

#[derive(Default)]
struct Adler(Adler32);

impl Hasher for Adler {
    fn update(&mut self, bytes: &[u8]) {
        self.0.write_slice(bytes);
    }

    fn digest(&self) -> Vec<u8> {
        self.0.checksum().to_be_bytes().to_vec()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Algorithm {
    Adler32,
    Md5,
    Sha1,
    Sha256,
    Sha512,
}

impl Algorithm {
    fn named(name: &str) -> Option<Self> {
        Some(match name.to_ascii_lowercase().as_str() {
            "adler" | "adler32" => Self::Adler32,
            "md5" => Self::Md5,
            "sha" | "sha1" | "sha-1" => Self::Sha1,
            "sha256" | "sha-256" => Self::Sha256,
            "sha512" | "sha-512" => Self::Sha512,
            _ => return None,
        })
    }

    fn hasher(self) -> Box<dyn Hasher> {
        match self {
            Self::Adler32 => Box::<Adler>::default(),
            Self::Md5 => Box::<Md5>::default(),
            Self::Sha1 => Box::<Sha1>::default(),
            Self::Sha256 => Box::<Sha256>::default(),
            Self::Sha512 => Box::<Sha512>::default(),
        }
    }
}

/// Form of a digest in a header field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Encoding {
    /// Base64; Adler-32 in hexadecimal (RFC 3230).
    Plain,
    /// Byte sequence of a structured field (RFC 9530).
    ByteSequence,
    /// Hexadecimal (ownCloud).
    Hexadecimal,
}

impl Encoding {
    fn encode(self, algorithm: Algorithm, digest: &[u8]) -> String {
        match self {
            Self::Plain if algorithm != Algorithm::Adler32 => STANDARD.encode(digest),
            Self::ByteSequence => format!(":{}:", STANDARD.encode(digest)),
            _ => digest.iter().map(|byte| format!("{byte:02x}")).collect(),
        }
    }

    fn decode(self, algorithm: Algorithm, text: &str) -> Option<Vec<u8>> {
        match self {
            // The first digits may be missing.
            Self::Plain if algorithm == Algorithm::Adler32 => hexadecimal(&format!("{text:0>8}")),
            Self::Plain => STANDARD.decode(text).ok(),
            Self::ByteSequence => {
                let inside = text.strip_prefix(':')?.strip_suffix(':')?;
                STANDARD.decode(inside).ok()
            }
            Self::Hexadecimal => hexadecimal(text),
        }
    }
}

fn hexadecimal(text: &str) -> Option<Vec<u8>> {
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    let byte = |pair: &[u8; 2]| u8::from_str_radix(str::from_utf8(pair).ok()?, 16).ok();
    rest.is_empty().then(|| pairs.iter().map(byte).collect())?
}

/// Fields with digests of a PUT's body, which is the whole representation: what separates the digests, what separates
/// the name of an algorithm from its digest, and the encoding.
const ANNOUNCING: [(&str, char, char, Encoding); 4] = [
    ("content-digest", ',', '=', Encoding::ByteSequence),
    ("repr-digest", ',', '=', Encoding::ByteSequence),
    ("digest", ',', '=', Encoding::Plain),
    ("oc-checksum", ' ', ':', Encoding::Hexadecimal),
];

const INVALID: Rejection = Rejection(400, "a digest of the body is invalid");

/// Digests that the body of a PUT must have. Each algorithm has one hasher, however many digests the client sends.
#[derive(Default)]
pub(super) struct ExpectedDigests(HashMap<Algorithm, (Box<dyn Hasher>, Vec<u8>)>);

impl ExpectedDigests {
    /// Reads the header fields. Digests by unknown algorithms are ignored.
    pub(super) fn of(headers: &HeaderMap) -> Outcome<Self> {
        let mut expected = Self::default();
        for value in headers.get_all("content-md5") {
            let text = value.to_str().map_err(|_| INVALID)?.trim();
            expected.add(Algorithm::Md5, Encoding::Plain, text)?;
        }
        for (name, between, after_name, encoding) in ANNOUNCING {
            for value in headers.get_all(name) {
                let items = value.to_str().map_err(|_| INVALID)?.split(between);
                for item in items.map(str::trim).filter(|item| !item.is_empty()) {
                    let (algorithm, text) = item.split_once(after_name).ok_or(INVALID)?;
                    if let Some(algorithm) = Algorithm::named(algorithm) {
                        expected.add(algorithm, encoding, text)?;
                    }
                }
            }
        }
        Ok(expected)
    }

    fn add(&mut self, algorithm: Algorithm, encoding: Encoding, text: &str) -> Outcome<()> {
        let hasher = algorithm.hasher();
        let digest = encoding.decode(algorithm, text);
        let is_whole = |digest: &Vec<u8>| digest.len() == hasher.digest().len();
        let digest = digest.filter(is_whole).ok_or(INVALID)?;
        let (_, known) = (self.0.entry(algorithm)).or_insert_with(|| (hasher, digest.clone()));
        // No body has two digests.
        if *known != digest {
            known.clear();
        }
        Ok(())
    }

    /// Adds bytes of the body.
    pub(super) fn update(&mut self, bytes: &[u8]) {
        for (hasher, _) in self.0.values_mut() {
            hasher.update(bytes);
        }
    }

    /// Checks that the body was what the client meant.
    pub(super) fn check(&self) -> Outcome<()> {
        let mut all = self.0.values();
        if all.all(|(hasher, expected)| hasher.digest() == *expected) {
            Ok(())
        } else {
            Err(Rejection(400, "the body does not match its digest"))
        }
    }
}

/// Field of a request, the field of its response, and its form.
const WANTING: [(&str, &str, Encoding); 3] = [
    ("want-digest", "digest", Encoding::Plain),
    (
        "want-content-digest",
        CONTENT_DIGEST,
        Encoding::ByteSequence,
    ),
    ("want-repr-digest", "repr-digest", Encoding::ByteSequence),
];

/// The digest of what the response sends, which is a part of the file if a range was requested.
const CONTENT_DIGEST: &str = "content-digest";

/// Digests to add to a response.
pub(super) struct WantedDigests(Vec<Wanted>);

struct Wanted {
    field: &'static str,
    name: String,
    algorithm: Algorithm,
    encoding: Encoding,
    hasher: Box<dyn Hasher>,
}

impl WantedDigests {
    /// Reads the header fields of a request whose response has this status. Of each, the algorithm with the highest
    /// preference is taken. Unknown ones are ignored.
    pub(super) fn of(headers: &HeaderMap, status: StatusCode) -> Self {
        let wanted = |(request, field, encoding): (&str, &'static str, Encoding)| {
            let text = headers.get(request)?.to_str().ok()?;
            let (name, algorithm) = preferred(text, encoding)?;
            let has_it = match status.as_u16() {
                200 => true,
                206 => field != CONTENT_DIGEST,
                _ => false,
            };
            has_it.then(|| Wanted {
                field,
                name: name.to_owned(),
                algorithm,
                encoding,
                hasher: algorithm.hasher(),
            })
        };
        Self(WANTING.into_iter().filter_map(wanted).collect())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Reads the file, and adds its digests to a response. A file that can't be read, or changes meanwhile, gets none.
    /// Stops if the client closes its connection meanwhile.
    pub(super) async fn add(mut self, response: &mut HttpResponse, file: Arc<File>, meta: Meta) {
        let (mut at, mut read) = (0, STEP);
        while read > 0 {
            let from = file.clone();
            let step = blocking(move || {
                let mut bytes = vec![0; STEP];
                let read = from.read_at(&mut bytes, at)?;
                let digests = self.0.iter_mut();
                digests.for_each(|wanted| wanted.hasher.update(&bytes[..read]));
                Ok((self, read))
            });
            match step.await {
                Ok(step) => (self, read) = step,
                Err(_) => return,
            }
            at += read as u64;
        }
        let now = blocking(move || Meta::of(&*file)).await;
        if now.is_ok_and(|now| now.etag() == meta.etag()) {
            for wanted in self.0 {
                let digest = wanted
                    .encoding
                    .encode(wanted.algorithm, &wanted.hasher.digest());
                let text = format!("{}={digest}", wanted.name);
                insert(response, HeaderName::from_static(wanted.field), text);
            }
        }
    }
}

/// Returns the known algorithm of the highest preference, the first of several.
fn preferred(text: &str, encoding: Encoding) -> Option<(&str, Algorithm)> {
    let mut best = (0.0, None);
    for item in text.split(',').map(str::trim) {
        let (name, preference) = match encoding {
            // RFC 3230: `MD5;q=0.3`. RFC 9530: `sha-256=3`.
            Encoding::Plain => item.split_once(";q=").unwrap_or((item, "1")),
            _ => item.split_once('=').unwrap_or((item, "0")),
        };
        let (name, preference) = (name.trim(), preference.trim().parse().unwrap_or(0.0));
        if let Some(algorithm) = Algorithm::named(name).filter(|_| preference > best.0) {
            best = (preference, Some((name, algorithm)));
        }
    }
    best.1
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
        let mut expected = ExpectedDigests::of(&headers).ok()?;
        expected.update(b"hel");
        expected.update(b"lo");
        Some(expected.check().is_ok())
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
    fn repeated_digests_have_one_hasher() {
        let mut headers = HeaderMap::new();
        let digests = ["adler=1"; 1000].join(",");
        headers.insert("digest", digests.parse().unwrap());
        assert_eq!(ExpectedDigests::of(&headers).unwrap().0.len(), 1);
    }

    #[test]
    fn prefers_what_the_client_prefers_and_the_site_knows() {
        let name = |text, encoding| preferred(text, encoding).map(|(name, _)| name);
        let plain = |text| name(text, Encoding::Plain);
        assert_eq!(plain("SHA-256"), Some("SHA-256"));
        assert_eq!(plain("md5;q=0.3, adler32;q=0.8, crc64"), Some("adler32"));
        assert_eq!(plain("md5, sha"), Some("md5"));
        assert_eq!(plain("md5;q=0, unixsum"), None);
        let sequence = |text| name(text, Encoding::ByteSequence);
        assert_eq!(sequence("sha-256=1, sha-512=3"), Some("sha-512"));
        for none in ["", "sha-256", "sha-256=0", "sha-256=no", "x=1"] {
            assert_eq!(sequence(none), None, "{none}");
        }
    }
}
