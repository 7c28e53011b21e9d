// SPDX-License-Identifier: MIT OR Apache-2.0
//! Replies of FTP servers (RFC 959 §4.2), on one line or on several.

/// Maximum length of a reply in bytes. Greetings are the longest.
pub const REPLY_LEN_MAX: usize = 64 * 1024;

/// Reply of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// Code, from 100 to 599; any code, since servers use more than RFC 959 names.
    pub code: u16,
    /// Text of all lines, without codes; LF between lines.
    pub text: Vec<u8>,
}

/// Error for bytes that are no reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ReplyError {
    /// The first line does not begin with a code.
    #[error("a reply does not begin with a code")]
    NoCode,
    /// The reply is longer than [`REPLY_LEN_MAX`].
    #[error("a reply is longer than {REPLY_LEN_MAX} bytes")]
    TooLong,
}

impl Reply {
    /// Parses the reply at the beginning of `input`. Returns the reply and its length; `None` if bytes are missing.
    ///
    /// # Errors
    ///
    /// Refuses a line without a code, and a reply that is too long.
    pub fn parse(input: &[u8]) -> Result<Option<(Self, usize)>, ReplyError> {
        let bounded = &input[..input.len().min(REPLY_LEN_MAX)];
        match Self::parse_lines(bounded)? {
            None if input.len() >= REPLY_LEN_MAX => Err(ReplyError::TooLong),
            parsed => Ok(parsed),
        }
    }

    fn parse_lines(input: &[u8]) -> Result<Option<(Self, usize)>, ReplyError> {
        let Some((first, mut len)) = line(input) else {
            return Ok(None);
        };
        let (code, rest) = code(first).ok_or(ReplyError::NoCode)?;
        let mut reply = Self {
            code,
            text: rest.get(1..).unwrap_or_default().to_vec(),
        };
        let mut is_last = !rest.starts_with(b"-");
        while !is_last {
            let Some((next, next_len)) = line(&input[len..]) else {
                return Ok(None);
            };
            len += next_len;
            is_last = reply.add_line(next);
        }
        Ok(Some((reply, len)))
    }

    /// Adds a further line. Returns whether it is the last one: the first line's code without a hyphen.
    fn add_line(&mut self, line: &[u8]) -> bool {
        let rest = line.strip_prefix(self.code.to_string().as_bytes());
        let is_last = rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b" "));
        let text = rest.filter(|rest| is_last || rest.starts_with(b"-"));
        self.text.push(b'\n');
        self.text
            .extend(text.map_or(line, |rest| rest.get(1..).unwrap_or_default()));
        is_last
    }

    /// Returns the code and the text on one line, shortened to some 500 characters, for error messages.
    #[must_use]
    pub fn summary(&self) -> String {
        let text = String::from_utf8_lossy(&self.text);
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let shown: String = words
            .chars()
            .filter(|c| !c.is_control())
            .take(500)
            .collect();
        format!("{} {shown}", self.code).trim_end().to_owned()
    }

    /// Whether the server has done what the command said.
    #[must_use]
    pub fn is_success(&self) -> bool {
        self.code / 100 == 2
    }

    /// Whether the server has begun, and another reply follows.
    #[must_use]
    pub fn is_preliminary(&self) -> bool {
        self.code / 100 == 1
    }

    /// Whether the server waits for a further command.
    #[must_use]
    pub fn is_intermediate(&self) -> bool {
        self.code / 100 == 3
    }
}

/// Returns the first line without its end, and its length with it. Servers end lines by CR LF, some by LF.
fn line(input: &[u8]) -> Option<(&[u8], usize)> {
    let at = input.iter().position(|byte| *byte == b'\n')?;
    let line = &input[..at];
    Some((line.strip_suffix(b"\r").unwrap_or(line), at + 1))
}

/// Splits a line into its code and the rest: nothing, or what begins with a space or a hyphen.
fn code(line: &[u8]) -> Option<(u16, &[u8])> {
    let (digits, rest) = line.split_at_checked(3)?;
    let code: u16 = std::str::from_utf8(digits).ok()?.parse().ok()?;
    let is_separated = matches!(rest.first(), None | Some(b' ' | b'-'));
    let is_code = digits[0].is_ascii_digit() && (100..600).contains(&code);
    (is_separated && is_code).then_some((code, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(input: &str) -> (u16, String, usize) {
        let (reply, len) = Reply::parse(input.as_bytes()).unwrap().unwrap();
        (reply.code, String::from_utf8(reply.text).unwrap(), len)
    }

    #[test]
    fn parses_any_code_on_one_line() {
        assert_eq!(reply("522 no\r\nrest"), (522, "no".into(), 8));
        assert_eq!(reply("226\n"), (226, String::new(), 4));
        assert_eq!(reply("199 \r\n"), (199, String::new(), 6));
    }

    #[test]
    fn parses_lines_up_to_the_one_with_the_code_and_a_space() {
        let text =
            "230-Hi\r\n 230 not yet\r\n231 nor this\r\n2300\r\n230-still\r\n\r\n230 In\r\n220 x";
        let joined = "Hi\n 230 not yet\n231 nor this\n2300\nstill\n\nIn";
        assert_eq!(reply(text), (230, joined.into(), text.len() - 5));
        assert_eq!(reply("211-a\n211\n"), (211, "a\n".into(), 10));
        for end in [5, 8, 20, text.len() - 7] {
            assert_eq!(Reply::parse(&text.as_bytes()[..end]), Ok(None), "{end}");
        }
    }

    #[test]
    fn refuses_what_is_no_reply() {
        for bad in [
            "HTTP/1.1 200\r\n",
            "\r\n",
            "22\r\n",
            "600 x\n",
            "+22 x\n",
            "2200 x\n",
        ] {
            assert_eq!(
                Reply::parse(bad.as_bytes()),
                Err(ReplyError::NoCode),
                "{bad}"
            );
        }
        let long = [b"220-".as_slice(), &[b'x'; REPLY_LEN_MAX]].concat();
        assert_eq!(Reply::parse(&long), Err(ReplyError::TooLong));
        let lines = b"220-x\r\n".repeat(REPLY_LEN_MAX / 7 + 1);
        assert_eq!(Reply::parse(&lines), Err(ReplyError::TooLong));
    }

    #[test]
    fn summary_is_one_short_line() {
        let reply = Reply {
            code: 550,
            text: [b"no\n\x1b \xff ".as_slice(), &[b'x'; 9000]].concat(),
        };
        let summary = reply.summary();
        assert!(summary.starts_with("550 no "), "{summary}");
        assert!(summary.len() < 1000 && !summary.contains(char::is_control));
    }
}
