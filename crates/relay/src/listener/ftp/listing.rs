// SPDX-License-Identifier: MIT OR Apache-2.0
//! A directory as a page of plain HTML.

use crate::listener::ftp::refusal::in_time;
use maud::{DOCTYPE, Markup, html};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use std::time::Duration;
use suppaftp::{FtpError, Status, list::ListParser, tokio::AsyncFtpStream};
use tokio::io::AsyncReadExt as _;

/// Bytes that are read of a listing; the page says so if there is more.
const LEN_MAX: u64 = 1 << 20;

/// The server's lines for the working directory. It has `limit` for its answers and for the next
/// byte, not for all of them.
pub(super) async fn read(
    ftp: &mut AsyncFtpStream,
    limit: Duration,
) -> Result<Vec<String>, FtpError> {
    let opened = [Status::AboutToSend, Status::AlreadyOpen];
    let (_, mut stream) = in_time(limit, ftp.custom_data_command("LIST", &opened)).await?;
    let mut bytes = Vec::new();
    let mut listing = (&mut stream).take(LEN_MAX);
    loop {
        let read = listing.read_buf(&mut bytes);
        let read = async { read.await.map_err(FtpError::ConnectionError) };
        if in_time(limit, read).await? == 0 {
            break;
        }
    }
    let text = String::from_utf8_lossy(&bytes);
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    match (bytes.len() as u64) < LEN_MAX {
        true => in_time(limit, stream.finish()).await?,
        false => lines.push("(more than this page takes)".to_owned()),
    }
    Ok(lines)
}

/// One line of the page.
pub(super) fn page(path: &str, lines: &[String]) -> Markup {
    let title = format!("Index of /{}", path.trim_start_matches('/'));
    html! {
        (DOCTYPE)
        html {
            head { meta charset="utf-8"; title { (title) } }
            body {
                h1 { (title) }
                pre {
                    @if !path.is_empty() { a href="../" { "../" } "\n" }
                    @for line in lines { (row(line)) "\n" }
                }
            }
        }
    }
}

/// The line as the server wrote it, its name a link if the form is known.
fn row(line: &str) -> Markup {
    let parsed = ListParser::parse_posix(line).or_else(|_| ListParser::parse_dos(line));
    let Ok(entry) = parsed else {
        return html! { (line) };
    };
    let name = entry.name();
    let slash = if entry.is_directory() { "/" } else { "" };
    let before = line.rfind(name).map_or("", |at| &line[..at]);
    html! { (before) a href={ (link(name)) (slash) } { (name) (slash) } }
}

/// RFC 3986 §2.3: everything but unreserved characters is encoded.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// `./` because a name with a colon would be taken for a scheme (RFC 3986 §4.2).
fn link(name: &str) -> String {
    format!("./{}", utf8_percent_encode(name, RESERVED))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_links_and_nothing_is_markup() {
        let lines = [
            "drwxr-xr-x 2 o g 4096 Nov 21 08:00 sub dir".to_owned(),
            "-rw-r--r-- 1 o g 12 Nov 21 08:00 a<b&c:d".to_owned(),
            "<script>total 3".to_owned(),
        ];
        let page = page("pub/", &lines).into_string();
        assert!(
            page.contains("<a href=\"./sub%20dir/\">sub dir/</a>"),
            "{page}"
        );
        assert!(
            page.contains("<a href=\"./a%3Cb%26c%3Ad\">a&lt;b&amp;c:d</a>"),
            "{page}"
        );
        assert!(page.contains("&lt;script&gt;total 3"), "{page}");
        assert!(page.contains("<a href=\"../\">"), "{page}");
    }
}
