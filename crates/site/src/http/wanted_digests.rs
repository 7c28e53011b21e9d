// SPDX-License-Identifier: MIT OR Apache-2.0
//! Digests of a file that a GET or a HEAD asks for: `Want-Digest` (RFC 3230), `Want-Content-Digest` and
//! `Want-Repr-Digest` (RFC 9530 §4).

use super::{
    export::{
        digest::{Encoding, Hasher},
        download::{Download, READ_LEN},
        meta::{blocking, from_io_error},
    },
    response::HttpResponse,
};
use dav_server::fs::{DavMetaData as _, FsResult};
use hyper::{
    HeaderMap, StatusCode,
    header::{self, HeaderName, HeaderValue},
};
use std::{os::unix::fs::FileExt as _, sync::Arc};

/// Field of a request, the field of its response, and its form.
const FIELDS: [(&str, &str, Encoding); 3] = [
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

/// Bytes that are read at once.
const STEP: u64 = 8 << 20;

/// Digests to add to a response.
#[derive(Debug, Clone)]
pub(super) struct WantedDigests(Vec<Wanted>);

#[derive(Debug, Clone)]
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
            Some(Wanted {
                field,
                algorithm: algorithm.to_owned(),
                hasher,
                encoding,
            })
        };
        Self(FIELDS.into_iter().filter_map(wanted).collect())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Reads the file, and adds its digests to a successful response. A file that can't be read, or changes meanwhile,
    /// gets none.
    pub(super) async fn add(mut self, response: &mut HttpResponse, file: Download) {
        match response.status() {
            StatusCode::OK => {}
            StatusCode::PARTIAL_CONTENT => self.0.retain(|wanted| wanted.field != CONTENT_DIGEST),
            _ => return,
        }
        let tag = file.meta().etag().map(|tag| format!("\"{tag}\""));
        let sent = response.headers().get(header::ETAG);
        let is_other = sent.is_some_and(|sent| tag.is_none_or(|tag| tag != *sent));
        let digests = if is_other {
            return;
        } else {
            self.read(file).await
        };
        let Ok(Some(digests)) = digests else {
            return;
        };
        for Wanted {
            field,
            algorithm,
            hasher,
            encoding,
        } in digests.0
        {
            let text = format!("{algorithm}={}", encoding.encode(hasher));
            // The algorithm was named in a header field.
            if let Ok(value) = HeaderValue::try_from(text) {
                let field = HeaderName::from_static(field);
                response.headers_mut().insert(field, value);
            }
        }
    }

    /// Reads the file; `None` if it changes. Stops if the client closes its connection meanwhile.
    async fn read(mut self, file: Download) -> FsResult<Option<Self>> {
        let (file, mut at, mut is_end) = (Arc::new(file), 0, false);
        while !is_end {
            let from = file.clone();
            (self, is_end) = blocking(move || self.read_at(&from, at)).await?;
            at += STEP;
        }
        let now = blocking(move || Ok((file.meta().etag(), file.current_meta()?.etag()))).await?;
        Ok((now.0 == now.1).then_some(self))
    }

    /// Reads a step. Returns whether the file ends within it.
    fn read_at(mut self, file: &Download, at: u64) -> FsResult<(Self, bool)> {
        let (mut buffer, mut read) = (vec![0; READ_LEN], 0);
        while read < STEP {
            let space = buffer.len().min((STEP - read) as usize);
            let count = file.file().read_at(&mut buffer[..space], at + read);
            let count = count.map_err(from_io_error)?;
            if count == 0 {
                return Ok((self, true));
            }
            let digests = self.0.iter_mut();
            digests.for_each(|wanted| wanted.hasher.update(&buffer[..count]));
            read += count as u64;
        }
        Ok((self, false))
    }
}

/// Returns the known algorithm of the highest preference, the first of several.
fn preferred(text: &str, encoding: Encoding) -> Option<(&str, Hasher)> {
    let mut best: Option<(f64, &str, Hasher)> = None;
    for item in text.split(',').map(str::trim) {
        let (algorithm, preference) = match encoding {
            // RFC 3230: `MD5;q=0.3`.
            Encoding::Plain => item.split_once(";q=").unwrap_or((item, "1")),
            // RFC 9530: `sha-256=3`.
            Encoding::ByteSequence => item.split_once('=').unwrap_or((item, "0")),
        };
        let preference = preference.trim().parse().unwrap_or(0.0);
        let is_better = best
            .as_ref()
            .map_or(preference > 0.0, |best| preference > best.0);
        if let Some(hasher) = Hasher::of(algorithm.trim()).filter(|_| is_better) {
            best = Some((preference, algorithm.trim(), hasher));
        }
    }
    best.map(|(_, algorithm, hasher)| (algorithm, hasher))
}

#[cfg(test)]
mod tests {
    use super::*;

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
