// SPDX-License-Identifier: MIT OR Apache-2.0
//! Fields of a request that frame its body (RFC 9112 §6), as real programs send them: those of CONNECT, which has no
//! body, and Content-Length given more than once. No I/O.

/// Returns the head with its framing fields put right; `None` if it is right as it is.
///
/// CONNECT loses them: the bytes behind its head belong to the tunnel (RFC 9110 §9.3.6). In other requests a list of
/// identical lengths becomes one (RFC 9110 §8.6). Lengths that differ stay, and are refused by the parser.
#[must_use]
pub fn normalize_framing(head: &[u8]) -> Option<Vec<u8>> {
    let is_connect = head.starts_with(b"CONNECT ");
    let lines = || head.split_inclusive(|byte| *byte == b'\n');
    if lines().all(|line| normalize_line(line, is_connect).is_none()) {
        return None;
    }
    let normalized = |line: &[u8]| normalize_line(line, is_connect).unwrap_or(line.to_vec());
    Some(lines().flat_map(normalized).collect())
}

/// Returns the new form of a line; `None` if it stays. A line that is left out has no bytes.
fn normalize_line(line: &[u8], is_connect: bool) -> Option<Vec<u8>> {
    let colon = line.iter().position(|byte| *byte == b':')?;
    let (name, value) = (&line[..colon], &line[colon + 1..]);
    let is_length = name.eq_ignore_ascii_case(b"content-length");
    if is_connect {
        let is_framing = is_length || name.eq_ignore_ascii_case(b"transfer-encoding");
        return is_framing.then(Vec::new);
    }
    let length = is_length.then(|| single_length(value)).flatten()?;
    Some([name, b": ", length, b"\r\n"].concat())
}

/// Returns the length that a list of several identical ones stands for.
fn single_length(list: &[u8]) -> Option<&[u8]> {
    let mut lengths = list.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
    let first = lengths.next()?;
    let others: Vec<_> = lengths.collect();
    (!others.is_empty() && others.iter().all(|other| *other == first)).then_some(first)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn normalized(head: &str) -> String {
        let head = head.replace('\n', "\r\n");
        let normalized = normalize_framing(head.as_bytes()).unwrap_or(head.into_bytes());
        String::from_utf8(normalized).unwrap().replace('\r', "")
    }

    #[test]
    fn connect_has_no_body() {
        for field in [
            "Content-Length: 5",
            "content-length: 0",
            "Transfer-Encoding: chunked",
            "Content-Length: 1\nTransfer-Encoding: gzip, chunked",
        ] {
            let head = format!("CONNECT h:1 HTTP/1.1\nHost: h\n{field}\nX: y\n\n");
            let want = "CONNECT h:1 HTTP/1.1\nHost: h\nX: y\n\n";
            assert_eq!(normalized(&head), want);
        }
    }

    #[test]
    fn identical_lengths_are_one() {
        for list in ["3, 3", "3,3", " 3 ,\t3,3 "] {
            let head = format!("POST / HTTP/1.1\ncontent-length:{list}\nX: y\n\n");
            let want = "POST / HTTP/1.1\ncontent-length: 3\nX: y\n\n";
            assert_eq!(normalized(&head), want, "{list}");
        }
    }

    #[test]
    fn all_else_stays() {
        for fields in [
            "Content-Length: 3",
            "Content-Length: 3, 4",
            "Content-Length: 3, 03",
            "Content-Length : 3, 3",
            "X-Content-Length: 3, 3",
            "Transfer-Encoding: chunked",
            "Accept: a, a",
        ] {
            let head = format!("POST /connect: HTTP/1.1\n{fields}\n\n");
            assert_eq!(normalized(&head), head);
        }
    }

    proptest! {
        #[test]
        fn no_input_panics(head in proptest::collection::vec(any::<u8>(), 0..100)) {
            if let Some(normalized) = normalize_framing(&head) {
                prop_assert_eq!(normalize_framing(&normalized), None);
            }
        }
    }
}
