// SPDX-License-Identifier: MIT OR Apache-2.0
//! Size and time of a file, as servers tell them (RFC 3659).

use crate::ftp::Reply;
use jiff::civil::DateTime;

impl Reply {
    /// Returns the size in a reply to SIZE (RFC 3659 §4), in bytes; `None` for any other reply.
    #[must_use]
    pub fn size(&self) -> Option<u64> {
        let digits = self.fact()?;
        let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
        digits.parse().ok().filter(|_| is_number)
    }

    /// Returns the time in a reply to MDTM (RFC 3659 §3), in UTC, without fractions of a second; `None` for any other
    /// reply.
    #[must_use]
    pub fn modification_time(&self) -> Option<DateTime> {
        let text = self.fact()?;
        let seconds = text.split_once('.').map_or(text, |(seconds, _)| seconds);
        let is_time = seconds.len() == 14 && seconds.bytes().all(|byte| byte.is_ascii_digit());
        let time = is_time.then(|| DateTime::strptime("%Y%m%d%H%M%S", seconds));
        time?.ok()
    }

    fn fact(&self) -> Option<&str> {
        let text = std::str::from_utf8(&self.text).ok()?;
        (self.code == 213).then(|| text.trim())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::civil::date;

    fn reply(code: u16, text: &str) -> Reply {
        let text = text.as_bytes().to_vec();
        Reply { code, text }
    }

    #[test]
    fn reads_sizes() {
        assert_eq!(reply(213, "5000000000").size(), Some(5_000_000_000));
        assert_eq!(reply(213, " 0 ").size(), Some(0));
        for bad in ["", "+1", "-1", "1 2", "99999999999999999999"] {
            assert_eq!(reply(213, bad).size(), None, "{bad}");
        }
        assert_eq!(reply(550, "7").size(), None);
    }

    #[test]
    fn reads_times() {
        let time = date(1998, 6, 15).at(10, 0, 45, 0);
        assert_eq!(reply(213, "19980615100045").modification_time(), Some(time));
        assert_eq!(
            reply(213, "19980615100045.014").modification_time(),
            Some(time)
        );
        // The last one is of servers that wrote the year 2000 as 19100.
        for bad in ["", "19981315100045", "1998061510004", "191000615100045"] {
            assert_eq!(reply(213, bad).modification_time(), None, "{bad}");
        }
    }
}
