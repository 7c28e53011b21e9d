// SPDX-License-Identifier: MIT OR Apache-2.0
//! Changes of permissions in the syntax of chmod(1) and rsync's `--chmod`.

use serde::{Deserialize, Serialize};
use std::str::FromStr;

const SET_USER_ID: u32 = 0o4000;
const SET_GROUP_ID: u32 = 0o2000;
const STICKY: u32 = 0o1000;
const EXECUTE: u32 = 0o111;
const ALL: u32 = 0o7777;
const CHANGES_MAX: usize = 64;

/// Changes of permissions, applied in order.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Chmod(pub Vec<Change>);

/// Change of permissions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// Entries that the change applies to.
    pub applies_to: AppliesTo,
    /// Operation with `bits`.
    pub action: Action,
    /// All bits of the given classes: `u` is 0o4700, and so on.
    pub who: u32,
    /// Bits among those of `who` that are added or removed.
    pub bits: u32,
    /// `X`: also adds execute permission, for directories and for files that are executable by any
    /// class.
    pub execute_if_any: bool,
}

/// Entries that a change applies to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum AppliesTo {
    /// Directories and all other entries.
    Everything,
    /// Directories.
    Directories,
    /// All entries other than directories.
    Files,
}

/// Operation of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Action {
    /// Adds the bits.
    Add,
    /// Removes the bits.
    Remove,
    /// Adds the bits, and removes all other bits of the given classes.
    Set,
}

impl Chmod {
    /// Returns the mode after all changes. `directory` is whether the entry is a directory.
    #[must_use]
    pub fn apply(&self, mode: u32, directory: bool) -> u32 {
        self.0
            .iter()
            .fold(mode, |mode, change| change.apply(mode, directory))
    }
}

impl Change {
    fn apply(self, mode: u32, directory: bool) -> u32 {
        match self.applies_to {
            AppliesTo::Directories if !directory => return mode,
            AppliesTo::Files if directory => return mode,
            _ => {}
        }
        let executes = self.execute_if_any && (directory || mode & EXECUTE != 0);
        let execute = if executes { EXECUTE & self.who } else { 0 };
        let bits = self.bits | execute;
        match self.action {
            Action::Add => mode | bits,
            Action::Remove => mode & !bits,
            Action::Set => mode & !self.who | bits,
        }
    }
}

impl FromStr for Chmod {
    type Err = String;

    /// Parses changes separated by commas: octal digits, or `[ugoa][+-=][rwxXst]`. A `D` in front
    /// restricts a change to directories, an `F` to all other entries.
    fn from_str(text: &str) -> Result<Self, String> {
        let parts: Vec<&str> = text.split(',').collect();
        if parts.len() > CHANGES_MAX {
            return Err(format!("expected at most {CHANGES_MAX} changes"));
        }
        let change = |part: &&str| {
            parse_change(part).ok_or_else(|| {
                format!("{part:?}: expected octal digits or changes like u=rwX, go-w; D in front for directories, F for files")
            })
        };
        parts.iter().map(change).collect::<Result<_, _>>().map(Self)
    }
}

fn parse_change(part: &str) -> Option<Change> {
    let (applies_to, rest) = match part.as_bytes().first()? {
        b'D' => (AppliesTo::Directories, &part[1..]),
        b'F' => (AppliesTo::Files, &part[1..]),
        _ => (AppliesTo::Everything, part),
    };
    let change = octal(rest).or_else(|| symbolic(rest))?;
    Some(Change {
        applies_to,
        ..change
    })
}

fn octal(text: &str) -> Option<Change> {
    let digits = text.bytes().all(|byte| matches!(byte, b'0'..=b'7'));
    let bits = u32::from_str_radix(text, 8)
        .ok()
        .filter(|bits| digits && *bits <= ALL)?;
    Some(Change {
        applies_to: AppliesTo::Everything,
        action: Action::Set,
        who: ALL,
        bits,
        execute_if_any: false,
    })
}

fn symbolic(text: &str) -> Option<Change> {
    let at = text.find(['+', '-', '='])?;
    let (who, rest) = text.split_at(at);
    let action = match rest.as_bytes()[0] {
        b'+' => Action::Add,
        b'-' => Action::Remove,
        _ => Action::Set,
    };
    let who = match who {
        "" => ALL,
        _ => who
            .chars()
            .map(class_bits)
            .try_fold(0, |sum, bits| Some(sum | bits?))?,
    };
    let names = &rest[1..];
    let bits = names
        .chars()
        .map(permission_bits)
        .try_fold(0, |sum, bits| Some(sum | bits?))?;
    Some(Change {
        applies_to: AppliesTo::Everything,
        action,
        who,
        bits: bits & who,
        execute_if_any: names.contains('X'),
    })
}

fn class_bits(name: char) -> Option<u32> {
    match name {
        'u' => Some(SET_USER_ID | 0o700),
        'g' => Some(SET_GROUP_ID | 0o070),
        'o' => Some(0o007),
        'a' => Some(ALL),
        _ => None,
    }
}

fn permission_bits(name: char) -> Option<u32> {
    match name {
        'r' => Some(0o444),
        'w' => Some(0o222),
        'x' => Some(EXECUTE),
        'X' => Some(0),
        's' => Some(SET_USER_ID | SET_GROUP_ID),
        't' => Some(STICKY),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_modes_as_chmod_does() {
        for (text, directory, before, after) in [
            ("644", false, 0o4755, 0o644),
            ("D755,F644", false, 0o600, 0o644),
            ("D755,F644", true, 0o700, 0o755),
            ("go-w", false, 0o666, 0o644),
            ("u=rwX,go=rX", false, 0o777, 0o755),
            ("u=rwX,go=rX", false, 0o666, 0o644),
            ("u=rwX,go=rX", true, 0o600, 0o755),
            ("a+x", false, 0o644, 0o755),
            ("+r", false, 0o200, 0o644),
            ("u-s,g-s", false, 0o6755, 0o755),
            ("a-s", false, 0o6755, 0o755),
            ("Dg+s", true, 0o755, 0o2755),
            ("Dg+s", false, 0o755, 0o755),
            ("o=", false, 0o777, 0o770),
            ("u=rw", false, 0o4755, 0o655),
            ("a+t", true, 0o777, 0o1777),
        ] {
            let chmod: Chmod = text.parse().unwrap();
            let found = chmod.apply(before, directory);
            assert_eq!(found, after, "{text} of {before:o} is {found:o}");
        }
    }

    #[test]
    fn rejects_invalid_changes() {
        for text in [
            "", "8", "17777", "u", "x+r", "u+q", "u=rw,", "rw", "D", "-7",
        ] {
            assert!(text.parse::<Chmod>().is_err(), "{text}");
        }
        assert!(["a+r"; 65].join(",").parse::<Chmod>().is_err());
    }
}
