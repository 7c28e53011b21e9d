// SPDX-License-Identifier: MIT OR Apache-2.0
//! Users of a listener that requires a password: a text file that only its owner can read, with one
//! `USER:PASSWORD` a line.
//!
//! SOCKS5 and Basic send passwords in clear text. A slow hash in the file would protect passwords
//! only where the file's permissions already do, and would take its time on every request.

use longhaul_command::exit::Refusal;
use longhaul_linux::private_file;
use sha2::{Digest, Sha256};
use std::{collections::HashMap, fmt, path::Path};

type Hash = [u8; 32];

/// Users and hashes of their passwords, so that passwords are not kept in memory and all
/// comparisons take the same time.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Users(HashMap<Vec<u8>, Hash>);

impl fmt::Debug for Users {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} users", self.0.len())
    }
}

/// Longest user name and password in bytes (RFC 1929 §2: the length is one byte).
const LEN_MAX: usize = 255;
/// Most bytes read of a file.
const FILE_LEN_MAX: u64 = 1 << 20;

impl Users {
    /// Reads a file; refuses one that others can read.
    pub(crate) fn read(path: &Path) -> anyhow::Result<Self> {
        let refused =
            |problem| Refusal::option("users", format!("users {}: {problem}", path.display()));
        let text = private_file::read(path, FILE_LEN_MAX);
        let text = text.map_err(|error| refused(error.to_string()))?;
        Self::parse(&text).map_err(refused)
    }

    fn parse(text: &str) -> Result<Self, String> {
        let mut users = HashMap::new();
        for (number, line) in text.lines().enumerate() {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let location = format!("line {}", number + 1);
            let fits = |field: &&str| (1..=LEN_MAX).contains(&field.len());
            let fields = line.split_once(':');
            let (user, password) = fields
                .filter(|(user, password)| fits(user) && fits(password))
                .ok_or_else(|| {
                    format!("{location}: expected USER:PASSWORD, 1 to {LEN_MAX} bytes each")
                })?;
            let hash = Sha256::digest(password).into();
            if users.insert(user.as_bytes().to_vec(), hash).is_some() {
                return Err(format!("{location}: {user} appears twice"));
            }
        }
        if users.is_empty() {
            Err("it has no users".to_owned())
        } else {
            Ok(Self(users))
        }
    }

    /// Whether `user` exists and has this password. Takes the same time for an unknown user and for
    /// any wrong password.
    pub(crate) fn verify(&self, user: &[u8], password: &[u8]) -> bool {
        let given: Hash = Sha256::digest(password).into();
        let found = self.0.get(user);
        let expected = found.unwrap_or(&[0; 32]);
        let difference = given
            .iter()
            .zip(expected)
            .fold(0, |sum, (a, b)| sum | (a ^ b));
        found.is_some() && difference == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, os::unix::fs::PermissionsExt as _};

    #[test]
    fn accepts_only_users_of_the_file() {
        let users = Users::parse("# who\nme:secret\n\nyou:a:b\n").unwrap();
        assert!(users.verify(b"me", b"secret"));
        assert!(users.verify(b"you", b"a:b"));
        for (user, password) in [("me", "a:b"), ("me", ""), ("", ""), ("they", "secret")] {
            assert!(
                !users.verify(user.as_bytes(), password.as_bytes()),
                "{user}"
            );
        }
    }

    #[test]
    fn rejects_malformed_file() {
        let long = format!("{}:p", "u".repeat(256));
        for (text, word) in [
            ("", "no users"),
            ("me", "line 1"),
            ("a:b\nme:", "line 2"),
            (":p", "line 1"),
            ("me:a\nme:b", "twice"),
            (&long, "255"),
        ] {
            let problem = Users::parse(text).unwrap_err();
            assert!(problem.contains(word), "{text}: {problem}");
        }
    }

    #[test]
    fn rejects_file_readable_by_others() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(&file, "me:secret\n").unwrap();
        let mode = |bits| fs::set_permissions(&file, fs::Permissions::from_mode(bits)).unwrap();
        mode(0o640);
        let problem = Users::read(file.path()).unwrap_err().to_string();
        assert!(problem.contains("chmod 600"), "{problem}");
        mode(0o600);
        assert!(Users::read(file.path()).unwrap().verify(b"me", b"secret"));
    }
}
