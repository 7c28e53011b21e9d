// SPDX-License-Identifier: MIT OR Apache-2.0
//! FTP directory listings as plain HTML pages.

use crate::client_protocols::ftp::gateway_error::with_limit;
use maud::{DOCTYPE, Markup, html};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use std::time::Duration;
use suppaftp::{FtpError, Status, list::ListParser, tokio::AsyncFtpStream};
use tokio::io::AsyncReadExt as _;

/// Maximum bytes of a listing that are read. The page says so if the listing is longer.
const LEN_MAX: u64 = 1 << 20;

/// Reads the listing of the working directory. The server may take `limit` for each reply, and as
/// long for each further piece of the listing.
pub(super) async fn read(
    ftp: &mut AsyncFtpStream,
    limit: Duration,
) -> Result<Vec<String>, FtpError> {
    let opened = [Status::AboutToSend, Status::AlreadyOpen];
    let (_, mut stream) = with_limit(limit, ftp.custom_data_command("LIST", &opened)).await?;
    let mut bytes = Vec::new();
    let mut listing = (&mut stream).take(LEN_MAX);
    loop {
        let read = listing.read_buf(&mut bytes);
        let read = async { read.await.map_err(FtpError::ConnectionError) };
        if with_limit(limit, read).await? == 0 {
            break;
        }
    }
    let text = String::from_utf8_lossy(&bytes);
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    match (bytes.len() as u64) < LEN_MAX {
        true => with_limit(limit, stream.finish()).await?,
        false => lines.push("(the listing is longer than this page may be)".to_owned()),
    }
    Ok(lines)
}

/// Returns the HTML page of a directory.
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

/// Formats one line of the listing. The name becomes a link if the line's format is known.
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

/// Characters to encode: all but the unreserved ones (RFC 3986 §2.3).
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// Relative link to `name`. It begins with `./` because a name with a colon would be parsed as a
/// scheme (RFC 3986 §4.2).
fn link(name: &str) -> String {
    format!("./{}", utf8_percent_encode(name, RESERVED))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_names_and_escapes_markup() {
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
