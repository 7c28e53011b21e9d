// SPDX-License-Identifier: MIT OR Apache-2.0
//! Digests of contents: those that a PUT announces, and those that a GET or a HEAD asks for. The header fields are
//! those of RFC 1864, RFC 3230, RFC 9530 and ownCloud.

use super::{
    export::meta::Meta,
    response::{HttpResponse, Outcome, Rejection, bad_request, blocking, insert},
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use hyper::{HeaderMap, StatusCode, header::HeaderName};
use std::{fs::File, mem::discriminant, os::unix::fs::FileExt as _, sync::Arc};

/// Bytes that are read at once, and those between two looks at whether the client is still there.
const READ_LEN: usize = 128 << 10;
const STEP: u64 = 8 << 20;

/// Digest that is being computed.
#[derive(Debug, Clone)]
enum Hasher {
    Adler32(adler2::Adler32),
    Md5(md5::Md5),
    Sha1(sha1::Sha1),
    Sha256(sha2::Sha256),
    Sha512(sha2::Sha512),
}

impl Hasher {
    fn of(algorithm: &str) -> Option<Self> {
        Some(match algorithm.to_ascii_lowercase().as_str() {
            "adler" | "adler32" => Self::Adler32(adler2::Adler32::default()),
            "md5" => Self::Md5(md5::Md5::default()),
            "sha" | "sha1" | "sha-1" => Self::Sha1(sha1::Sha1::default()),
            "sha256" | "sha-256" => Self::Sha256(sha2::Sha256::default()),
            "sha512" | "sha-512" => Self::Sha512(sha2::Sha512::default()),
            _ => return None,
        })
    }

    fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Adler32(hasher) => hasher.write_slice(bytes),
            Self::Md5(hasher) => md5::Digest::update(hasher, bytes),
            Self::Sha1(hasher) => sha1::Digest::update(hasher, bytes),
            Self::Sha256(hasher) => sha2::Digest::update(hasher, bytes),
            Self::Sha512(hasher) => sha2::Digest::update(hasher, bytes),
        }
    }

    fn finish(self) -> Vec<u8> {
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
enum Encoding {
    /// Base64; Adler-32 in hexadecimal (RFC 3230).
    Plain,
    /// Byte sequence of a structured field (RFC 9530).
    ByteSequence,
    /// Hexadecimal (ownCloud).
    Hexadecimal,
}

impl Encoding {
    fn encode(self, hasher: Hasher) -> String {
        let is_adler = matches!(hasher, Hasher::Adler32(_));
        let digest = hasher.finish();
        match self {
            Self::Plain if !is_adler => STANDARD.encode(digest),
            Self::ByteSequence => format!(":{}:", STANDARD.encode(digest)),
            _ => digest.iter().map(|byte| format!("{byte:02x}")).collect(),
        }
    }

    fn decode(self, hasher: &Hasher, text: &str) -> Option<Vec<u8>> {
        match (self, hasher) {
            (Self::Plain, Hasher::Adler32(_)) => hexadecimal(&format!("{text:0>8}")),
            (Self::Plain, _) => STANDARD.decode(text).ok(),
            (Self::ByteSequence, _) => {
                let inside = text.strip_prefix(':')?.strip_suffix(':')?;
                STANDARD.decode(inside).ok()
            }
            (Self::Hexadecimal, _) => hexadecimal(text),
        }
    }
}

fn hexadecimal(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes().chunks(2);
    let byte = |pair: &[u8]| u8::from_str_radix(str::from_utf8(pair).ok()?, 16).ok();
    text.len()
        .is_multiple_of(2)
        .then(|| digits.map(byte).collect())?
}

/// Fields with digests of a PUT's body, which is the whole representation: the separators of digests and of names, and
/// the encoding.
const ANNOUNCING: [(&str, char, char, Encoding); 4] = [
    ("content-digest", ',', '=', Encoding::ByteSequence),
    ("repr-digest", ',', '=', Encoding::ByteSequence),
    ("digest", ',', '=', Encoding::Plain),
    ("oc-checksum", ' ', ':', Encoding::Hexadecimal),
];

const INVALID: Rejection = bad_request("a digest of the body is invalid");

/// Digests that the body of a PUT must have.
#[derive(Debug, Default)]
pub(super) struct ExpectedDigests(Vec<(Hasher, Vec<u8>)>);

impl ExpectedDigests {
    /// Reads the header fields. Digests by unknown algorithms are ignored.
    pub(super) fn of(headers: &HeaderMap) -> Outcome<Self> {
        let mut expected = Self::default();
        for value in headers.get_all("content-md5") {
            let text = format!("md5={}", value.to_str().map_err(|_| INVALID)?.trim());
            expected.add(&text, ',', '=', Encoding::Plain)?;
        }
        for (name, between, after_name, encoding) in ANNOUNCING {
            for value in headers.get_all(name) {
                let text = value.to_str().map_err(|_| INVALID)?;
                expected.add(text, between, after_name, encoding)?;
            }
        }
        Ok(expected)
    }

    fn add(
        &mut self,
        text: &str,
        between: char,
        after_name: char,
        encoding: Encoding,
    ) -> Outcome<()> {
        let items = text.split(between).map(str::trim);
        for item in items.filter(|item| !item.is_empty()) {
            let (algorithm, value) = item.split_once(after_name).ok_or(INVALID)?;
            if let Some(hasher) = Hasher::of(algorithm) {
                let digest = encoding.decode(&hasher, value);
                let is_whole = |digest: &Vec<u8>| digest.len() == hasher.clone().finish().len();
                let digest = digest.filter(is_whole).ok_or(INVALID)?;
                self.expect(hasher, digest);
            }
        }
        Ok(())
    }

    /// Adds a digest. Each algorithm has one hasher, however many digests the client sends.
    fn expect(&mut self, hasher: Hasher, digest: Vec<u8>) {
        let algorithm = discriminant(&hasher);
        let mut all = self.0.iter_mut();
        match all.find(|(other, _)| discriminant(other) == algorithm) {
            // No body has two digests.
            Some((_, known)) if *known != digest => known.clear(),
            Some(_) => {}
            None => self.0.push((hasher, digest)),
        }
    }

    /// Adds bytes of the body.
    pub(super) fn update(&mut self, bytes: &[u8]) {
        self.0
            .iter_mut()
            .for_each(|(hasher, _)| hasher.update(bytes));
    }

    /// Checks that the body was what the client meant.
    pub(super) fn check(self) -> Outcome<()> {
        let mut all = self.0.into_iter();
        if all.all(|(hasher, expected)| hasher.finish() == expected) {
            Ok(())
        } else {
            Err(bad_request("the body does not match its digest"))
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
#[derive(Debug)]
pub(super) struct WantedDigests(Vec<Wanted>);

#[derive(Debug)]
struct Wanted {
    field: &'static str,
    algorithm: String,
    hasher: Hasher,
    encoding: Encoding,
}

impl WantedDigests {
    /// Reads the header fields. Of each, the algorithm with the highest preference is taken. Unknown ones are ignored.
    pub(super) fn of(headers: &HeaderMap) -> Self {
        let wanted = |(request, field, encoding): (&str, &'static str, Encoding)| {
            let text = headers.get(request)?.to_str().ok()?;
            let (algorithm, hasher) = preferred(text, encoding)?;
            let algorithm = algorithm.to_owned();
            Some(Wanted {
                field,
                algorithm,
                hasher,
                encoding,
            })
        };
        Self(WANTING.into_iter().filter_map(wanted).collect())
    }

    /// Drops the digests that a response with this status does not have.
    pub(super) fn of_status(mut self, status: StatusCode) -> Self {
        self.0.retain(|wanted| match status {
            StatusCode::OK => true,
            StatusCode::PARTIAL_CONTENT => wanted.field != CONTENT_DIGEST,
            _ => false,
        });
        self
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Reads the file, and adds its digests to a response. A file that can't be read, or changes meanwhile, gets none.
    /// Stops if the client closes its connection meanwhile.
    pub(super) async fn add(mut self, response: &mut HttpResponse, file: Arc<File>, meta: Meta) {
        let (mut at, mut is_end) = (0, false);
        while !is_end {
            let from = file.clone();
            let read = blocking(move || {
                let is_end = self.read_step(&from, at)?;
                Ok((self, is_end))
            });
            match read.await {
                Ok(read) => (self, is_end) = read,
                Err(_) => return,
            }
            at += STEP;
        }
        let now = blocking(move || Meta::of(&*file)).await;
        if now.is_ok_and(|now| now.etag() == meta.etag()) {
            for wanted in self.0 {
                let digest = wanted.encoding.encode(wanted.hasher);
                let text = format!("{}={digest}", wanted.algorithm);
                insert(response, HeaderName::from_static(wanted.field), text);
            }
        }
    }

    /// Reads a step. Returns whether the file ends within it.
    fn read_step(&mut self, file: &File, at: u64) -> Outcome<bool> {
        let (mut buffer, mut read) = (vec![0; READ_LEN], 0);
        while read < STEP {
            let count = file.read_at(&mut buffer, at + read)?;
            if count == 0 {
                return Ok(true);
            }
            let count = count.min((STEP - read) as usize);
            let digests = self.0.iter_mut();
            digests.for_each(|wanted| wanted.hasher.update(&buffer[..count]));
            read += count as u64;
        }
        Ok(false)
    }
}

/// Returns the known algorithm of the highest preference, the first of several.
fn preferred(text: &str, encoding: Encoding) -> Option<(&str, Hasher)> {
    let mut best: Option<(f64, &str, Hasher)> = None;
    for item in text.split(',').map(str::trim) {
        let (algorithm, preference) = match encoding {
            // RFC 3230: `MD5;q=0.3`. RFC 9530: `sha-256=3`.
            Encoding::Plain => item.split_once(";q=").unwrap_or((item, "1")),
            _ => item.split_once('=').unwrap_or((item, "0")),
        };
        let preference = preference.trim().parse().unwrap_or(0.0);
        let least = best.as_ref().map_or(0.0, |best| best.0);
        if let Some(hasher) = Hasher::of(algorithm.trim()).filter(|_| preference > least) {
            best = Some((preference, algorithm.trim(), hasher));
        }
    }
    best.map(|(_, algorithm, hasher)| (algorithm, hasher))
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
        assert_eq!(sequence("sha-512=0, sha-256=1, x=9"), Some("sha-256"));
        for none in ["", "sha-256", "sha-256=0", "sha-256=no", "x=1"] {
            assert_eq!(sequence(none), None, "{none}");
        }
    }
}
