// SPDX-License-Identifier: MIT OR Apache-2.0
//! FTP directory listings as plain HTML pages.

use crate::client_protocols::ftp::{
    client::Client,
    error::{FtpError, Step},
};
use longhaul_protocol::ftp::{Argument, ListLine};
use maud::{DOCTYPE, Markup, html};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};
use std::borrow::Cow;
use tokio::io::AsyncReadExt as _;

/// Maximum bytes of a listing that are read. The page says so if the listing is longer.
const LEN_MAX: usize = 1 << 20;

/// Bytes of one read.
const READ_LEN: usize = 16 * 1024;

/// Listing of a directory, as the server sent it.
pub(super) struct Listing {
    bytes: Vec<u8>,
    /// Whether the server had more.
    is_cut: bool,
}

/// Reads the listing of the working directory.
pub(super) async fn read(client: &mut Client<'_>) -> Result<Listing, FtpError> {
    let whole = Argument::default();
    let (data, _) = client.start_transfer(Step::Read, "LIST", &whole, 0).await?;
    let mut data = data.take(LEN_MAX as u64);
    let (mut bytes, mut piece) = (Vec::new(), vec![0; READ_LEN]);
    loop {
        let read = client.control.during(Step::Read, data.read(&mut piece));
        match read.await? {
            0 => break,
            len => bytes.extend(&piece[..len]),
        }
    }
    let is_cut = bytes.len() == LEN_MAX;
    if !is_cut {
        client.control.confirm(Step::Read).await?;
    }
    Ok(Listing { bytes, is_cut })
}

/// Returns the HTML page of a directory. Names in other character sets than UTF-8 are shown with replacement
/// characters; their links have the bytes of the server.
pub(super) fn page(path: &[u8], listing: &Listing) -> Markup {
    let title = format!("Index of /{}", text(path).trim_start_matches('/'));
    html! {
        (DOCTYPE)
        html {
            head { meta charset="utf-8"; title { (title) } }
            body {
                h1 { (title) }
                pre {
                    @if !path.is_empty() { a href="../" { "../" } "\n" }
                    @for line in lines(&listing.bytes) { (row(line)) "\n" }
                    @if listing.is_cut { "(the listing is longer than this page may be)\n" }
                }
            }
        }
    }
}

fn lines(listing: &[u8]) -> impl Iterator<Item = &[u8]> {
    let lines = listing.strip_suffix(b"\n").unwrap_or(listing);
    let lines = lines.split(|byte| *byte == b'\n');
    lines.map(|line| line.strip_suffix(b"\r").unwrap_or(line))
}

/// Formats one line of the listing. The name becomes a link if the line's format is known.
fn row(line: &[u8]) -> Markup {
    let Some(entry) = ListLine::parse(line) else {
        return html! { (text(line)) };
    };
    let slash = if entry.is_directory { "/" } else { "" };
    html! {
        (text(entry.before))
        a href={ (link(entry.name)) (slash) } { (text(entry.name)) (slash) }
        (text(entry.after))
    }
}

fn text(bytes: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}

/// Characters to encode: all but the unreserved ones (RFC 3986 §2.3).
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// Relative link to `name`. It begins with `./` because a name with a colon would be parsed as a
/// scheme (RFC 3986 §4.2).
fn link(name: &[u8]) -> String {
    format!("./{}", percent_encode(name, RESERVED))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page_of(listing: &[u8], is_cut: bool) -> String {
        let bytes = listing.to_vec();
        page(b"pub/", &Listing { bytes, is_cut }).into_string()
    }

    #[test]
    fn links_names_and_escapes_markup() {
        let page = page_of(
            b"drwxr-xr-x 2 o g 4096 Nov 21 08:00 sub dir\r\n\
              -rw-r--r-- 1 o g 12 Nov 21 08:00 a<b&c:d\n\
              lrwxrwxrwx 1 o g 12 Nov 21 08:00 to -> <there>\n\
              <script>total 3",
            false,
        );
        for part in [
            "<a href=\"../\">",
            "<a href=\"./sub%20dir/\">sub dir/</a>\n",
            "<a href=\"./a%3Cb%26c%3Ad\">a&lt;b&amp;c:d</a>\n",
            "<a href=\"./to\">to</a> -&gt; &lt;there&gt;\n",
            "&lt;script&gt;total 3\n",
        ] {
            assert!(page.contains(part), "{part} in {page}");
        }
        assert!(!page.contains("longer"), "{page}");
        assert!(page_of(b"total 3", true).contains("longer than this page may be"));
    }

    #[test]
    fn links_hold_the_bytes_of_names() {
        let page = page_of(
            b"-rw-r--r-- 1 o g 1 Nov 21 08:00 \x93\xfa\x96{.txt\n\
              -rw-r--r-- 1 o g 1 Nov 21 08:00  lead.txt",
            false,
        );
        assert!(page.contains("href=\"./%93%FA%96%7B.txt\""), "{page}");
        assert!(page.contains("href=\"./%20lead.txt\""), "{page}");
    }
}
