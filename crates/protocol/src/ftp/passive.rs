// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ports of data connections that servers announce. Addresses are not read: a client connects to the host of the
//! control connection, because the server could name any host (RFC 2577 §3).

use crate::ftp::Reply;

impl Reply {
    /// Returns the port in a reply to EPSV, `229 … (|||PORT|)` (RFC 2428 §3); `None` for any other reply.
    #[must_use]
    pub fn extended_passive_port(&self) -> Option<u16> {
        if self.code != 229 {
            return None;
        }
        let open = self.text.iter().position(|byte| *byte == b'(')?;
        let (delimiter, rest) = self.text[open + 1..].split_first()?;
        let mut fields = rest.split(|byte| byte == delimiter);
        let (_protocol, _address) = (fields.next()?, fields.next()?);
        let port = number(fields.next()?)?;
        // The last delimiter ends the port.
        fields.next().and_then(|_| nonzero(port))
    }

    /// Returns the port in a reply to PASV, `227 … h1,h2,h3,h4,p1,p2`; `None` for any other reply. The numbers may stand
    /// anywhere, with or without parentheses (RFC 1123 §4.1.2.6).
    #[must_use]
    pub fn passive_port(&self) -> Option<u16> {
        if self.code != 227 {
            return None;
        }
        let is_separator = |byte: &u8| !(byte.is_ascii_digit() || b", ".contains(byte));
        self.text.split(is_separator).find_map(six_numbers_port)
    }
}

/// Returns the port of six numbers with commas between them, behind any words.
fn six_numbers_port(text: &[u8]) -> Option<u16> {
    let mut numbers = text.trim_ascii().split(|byte| *byte == b',');
    let numbers: Vec<_> = numbers.by_ref().take(7).map(<[u8]>::trim_ascii).collect();
    let [_, _, _, _, high, low] = numbers[..] else {
        return None;
    };
    let byte = |text| u8::try_from(number(text)?).ok();
    nonzero(u16::from_be_bytes([byte(high)?, byte(low)?]))
}

fn number(text: &[u8]) -> Option<u16> {
    let is_number = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    let digits = is_number.then(|| std::str::from_utf8(text).ok())??;
    digits.parse().ok()
}

fn nonzero(port: u16) -> Option<u16> {
    (port > 0).then_some(port)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(code: u16, text: &str) -> Reply {
        let text = text.as_bytes().to_vec();
        Reply { code, text }
    }

    #[test]
    fn reads_the_port_of_epsv() {
        for (text, port) in [
            ("Entering Extended Passive Mode (|||6446|)", Some(6446)),
            ("(!!!1!)", Some(1)),
            ("ok\nEntering (|1|192.0.2.1|65535|)", Some(65535)),
            ("(|||6446)", None),
            ("(|||65536|)", None),
            ("(|||0|)", None),
            ("(|||+1|)", None),
            ("(||||)", None),
            ("(|6446|)", None),
            ("Entering Extended Passive Mode", None),
            ("(", None),
            ("", None),
        ] {
            assert_eq!(reply(229, text).extended_passive_port(), port, "{text}");
        }
        assert_eq!(reply(200, "(|||6446|)").extended_passive_port(), None);
    }

    #[test]
    fn reads_the_port_of_pasv() {
        for (text, port) in [
            ("Entering Passive Mode (192,0,2,1,4,1)", Some(1025)),
            ("Entering Passive Mode. 192,0,2,1,4,1", Some(1025)),
            ("=192,0,2,1,255,255.", Some(65535)),
            ("( 192, 0, 2, 1, 4, 1 )", Some(1025)),
            ("Mode 2 (0,0,0,0,4,1).", Some(1025)),
            ("(192,0,2,1,4)", None),
            ("(192,0,2,1,4,1,1)", None),
            ("(192,0,2,1,256,1)", None),
            ("(192,0,2,1,0,0)", None),
            ("", None),
        ] {
            assert_eq!(reply(227, text).passive_port(), port, "{text}");
        }
        assert_eq!(reply(200, "(192,0,2,1,4,1)").passive_port(), None);
    }
}
