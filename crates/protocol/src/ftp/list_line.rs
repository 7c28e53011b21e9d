// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lines of LIST. No RFC defines their format; most servers write that of `ls -l`, or that of the DOS command `dir`.

/// Entry that a line describes, as parts of the line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListLine<'a> {
    /// Text before the name.
    pub before: &'a [u8],
    /// Name, with the blanks that it begins or ends with.
    pub name: &'a [u8],
    /// Text behind the name: the target of a symbolic link.
    pub after: &'a [u8],
    /// Whether the entry is a directory.
    pub is_directory: bool,
}

impl<'a> ListLine<'a> {
    /// Parses a line without its end; `None` if the format is unknown.
    #[must_use]
    pub fn parse(line: &'a [u8]) -> Option<Self> {
        Self::parse_unix(line).or_else(|| Self::parse_dos(line))
    }

    /// `drwxr-xr-x 2 owner group 4096 Nov 21 08:00 name`; the group may be missing.
    fn parse_unix(line: &'a [u8]) -> Option<Self> {
        let kind = line.first().filter(|kind| b"-dlbcps".contains(kind))?;
        let is_permission = |byte: &u8| b"rwxsStTlL-".contains(byte);
        line.get(1..10)
            .filter(|mode| mode.iter().all(is_permission))?;
        let name_at = words(line)
            .windows(3)
            .find_map(|last| is_unix_date(last).then_some(last[2].1))?;
        let mut entry = Self::split(line, name_at + 1, *kind == b'd')?;
        if *kind == b'l' {
            entry.cut_target();
        }
        Some(entry)
    }

    /// `11-21-26  08:00AM  <DIR>  name`, or a size instead of `<DIR>`.
    fn parse_dos(line: &'a [u8]) -> Option<Self> {
        let words = words(line);
        let [(date, _), (time, _), (size, end), ..] = words[..] else {
            return None;
        };
        let is_directory = size.eq_ignore_ascii_case(b"<DIR>");
        let is_size = size
            .iter()
            .all(|byte| byte.is_ascii_digit() || *byte == b',');
        if !(is_dos_date(date) && is_dos_time(time) && (is_directory || is_size)) {
            return None;
        }
        let blanks = line[end..].iter().take_while(|byte| **byte == b' ').count();
        // One blank is behind a size; `<DIR>` is filled up with ten. Further ones belong to the name.
        let column = if is_directory { 10 } else { 1 };
        Self::split(line, end + blanks.min(column), is_directory)
    }

    fn split(line: &'a [u8], name_at: usize, is_directory: bool) -> Option<Self> {
        let (before, name) = line.split_at_checked(name_at)?;
        let (after, is_named) = (&line[line.len()..], !name.is_empty());
        is_named.then_some(Self {
            before,
            name,
            after,
            is_directory,
        })
    }

    fn cut_target(&mut self) {
        let arrow = self.name.windows(4).position(|part| part == b" -> ");
        if let Some(at) = arrow.filter(|at| *at > 0) {
            (self.name, self.after) = self.name.split_at(at);
        }
    }
}

/// Words of a line, each with the offset of its end; at most those before a name.
fn words(line: &[u8]) -> Vec<(&[u8], usize)> {
    const COUNT_MAX: usize = 10;
    let mut at = 0;
    let mut words = Vec::new();
    for word in line.split(|byte| *byte == b' ') {
        at += word.len();
        if !word.is_empty() {
            words.push((word, at));
        }
        if words.len() == COUNT_MAX {
            break;
        }
        at += 1;
    }
    words
}

/// Whether three words are a date: `Nov 21 08:00`, `21 Nov 2026`, or `4096 2026-11-21 08:00` with the size before.
fn is_unix_date(words: &[(&[u8], usize)]) -> bool {
    let [first, second, third] = [0, 1, 2].map(|at| words[at].0);
    let is_number = |word: &[u8]| word.iter().all(u8::is_ascii_digit);
    let is_day = |word: &[u8]| word.len() <= 2 && is_number(word);
    // Months are words of the server's language, whatever its bytes.
    let is_month = |word: &[u8]| !word.iter().any(u8::is_ascii_digit);
    let is_year = third.len() == 4 && is_number(third);
    let is_time = third.contains(&b':')
        && third
            .iter()
            .all(|byte| byte.is_ascii_digit() || *byte == b':');
    let is_iso = second.len() == 10 && second.split(|byte| *byte == b'-').all(is_number);
    let is_day_and_month =
        (is_month(first) && is_day(second)) || (is_day(first) && is_month(second));
    (is_day_and_month && (is_year || is_time)) || (is_iso && is_time)
}

/// `MM-DD-YY` or `MM-DD-YYYY`, also with slashes or periods.
fn is_dos_date(word: &[u8]) -> bool {
    let is_separated = word.split(|byte| b"-/.".contains(byte)).count() == 3;
    is_separated
        && word
            .iter()
            .all(|byte| byte.is_ascii_digit() || b"-/.".contains(byte))
}

/// `08:00AM` or `20:00`.
fn is_dos_time(word: &[u8]) -> bool {
    let is_half =
        |word: &[u8]| word.eq_ignore_ascii_case(b"AM") || word.eq_ignore_ascii_case(b"PM");
    let (time, half) = word.split_at(word.len().min(5));
    let is_digit = |at: usize| time.get(at).is_some_and(u8::is_ascii_digit);
    time.get(2) == Some(&b':')
        && [0, 1, 3, 4].into_iter().all(is_digit)
        && (half.is_empty() || is_half(half))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn assert_entry(line: &[u8], name: &[u8], is_directory: bool) {
        let entry = ListLine::parse(line).unwrap();
        let shown = String::from_utf8_lossy(line);
        assert_eq!(
            (entry.name, entry.is_directory),
            (name, is_directory),
            "{shown}"
        );
        assert_eq!([entry.before, entry.name, entry.after].concat(), line);
    }

    #[test]
    fn finds_names_in_lines_of_ls() {
        for (line, name, is_directory) in [
            (
                &b"drwxr-xr-x 2 o g 4096 Nov 21 08:00 sub dir"[..],
                &b"sub dir"[..],
                true,
            ),
            (
                b"-rw-r--r--   1 ftp      ftp          12 Nov 21  2024  lead",
                b" lead",
                false,
            ),
            (b"-rw-r--r-- 1 o g 12 Nov  1 8:00 trail ", b"trail ", false),
            (
                b"-rw-r--r--. 1 o g 12 Nov 21 08:00 \x93\xfa\x96{.txt",
                b"\x93\xfa\x96{.txt",
                false,
            ),
            (
                b"-rw-r--r--+ 1 owner 12 Nov 21 08:00 no group",
                b"no group",
                false,
            ),
            (b"-rw-r--r-- 1 o g 12 2026-11-21 08:00 iso", b"iso", false),
            (
                b"-rw-r--r-- 1 o g 12 21 nov. 2026 day first",
                b"day first",
                false,
            ),
            (
                b"-rwsr-sr-t 1 o g 12 m\xe4r 21 08:00:11 local",
                b"local",
                false,
            ),
            (
                b"brw-rw---- 1 root disk 8, 0 Nov 21 08:00 sda",
                b"sda",
                false,
            ),
            (
                b"-rw-r--r-- 1 o g 12 Nov 21 08:00 Nov 22 09:00 x",
                b"Nov 22 09:00 x",
                false,
            ),
            (b"lrwxrwxrwx 1 o g 3 Nov 21 08:00 a -> b -> c", b"a", false),
            (b"-rw-r--r-- 1 o g 3 Nov 21 08:00 a -> b", b"a -> b", false),
        ] {
            assert_entry(line, name, is_directory);
        }
    }

    #[test]
    fn finds_names_in_lines_of_dir() {
        for (line, name, is_directory) in [
            (
                &b"11-21-26  08:00AM       <DIR>          sub dir"[..],
                &b"sub dir"[..],
                true,
            ),
            (
                b"11-21-26  08:00AM       <DIR>           lead",
                b" lead",
                true,
            ),
            (
                b"11-21-2026  08:00PM                   12 a b",
                b"a b",
                false,
            ),
            (
                b"11-21-26  20:00            1,234,567  lead",
                b" lead",
                false,
            ),
        ] {
            assert_entry(line, name, is_directory);
        }
    }

    #[test]
    fn leaves_other_lines_alone() {
        for line in [
            &b"total 3"[..],
            b"",
            b"-rw-r--r-- 1 o g 12 Nov 21 08:00",
            b"-rw-r--r-- 1 o g 12 Nov 21 08:00 ",
            b"11-21-26  08:00AM       <DIR>",
            b"<script>11 22 33</script>",
            b"drwxr-xr-x",
        ] {
            assert_eq!(
                ListLine::parse(line),
                None,
                "{}",
                String::from_utf8_lossy(line)
            );
        }
    }
}
