// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who may use a listener that asks for user and password: a text file that only its owner can
//! read, one `USER:PASSWORD` a line.
//!
//! SOCKS5 and Basic send passwords in the clear, so that a slow hash in the file would protect them
//! only where the file's own permissions already do, and would cost its time on every request.

use longhaul_command::exit::Refusal;
use longhaul_linux::private_file;
use sha2::{Digest, Sha256};
use std::{collections::HashMap, fmt, path::Path};

type Hash = [u8; 32];

/// Users and their passwords' hashes, so that passwords are not kept and all are compared alike.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Users(HashMap<Vec<u8>, Hash>);

impl fmt::Debug for Users {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} users", self.0.len())
    }
}

/// RFC 1929 §2: a byte counts the length.
const LEN_MAX: usize = 255;
/// Bytes read of a file.
const FILE_LEN_MAX: u64 = 1 << 20;

impl Users {
    /// Reads a file; one that others can read is refused.
    pub(crate) fn read(path: &Path) -> anyhow::Result<Self> {
        let refused = |problem| Refusal::usage(format!("users {}: {problem}", path.display()));
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
            let place = format!("line {}", number + 1);
            let fits = |field: &&str| (1..=LEN_MAX).contains(&field.len());
            let fields = line.split_once(':');
            let (user, password) = fields
                .filter(|(user, password)| fits(user) && fits(password))
                .ok_or_else(|| format!("{place}: want USER:PASSWORD, 1 to {LEN_MAX} bytes each"))?;
            let hash = Sha256::digest(password).into();
            if users.insert(user.as_bytes().to_vec(), hash).is_some() {
                return Err(format!("{place}: {user} is there twice"));
            }
        }
        match users.is_empty() {
            true => Err("it names nobody".to_owned()),
            false => Ok(Self(users)),
        }
    }

    /// Whether `user` is one of them, with this password. Takes the same time for a wrong password,
    /// wherever it differs, and for a name that nobody has.
    pub(crate) fn know(&self, user: &[u8], password: &[u8]) -> bool {
        let given: Hash = Sha256::digest(password).into();
        let known = self.0.get(user);
        let wanted = known.unwrap_or(&[0; 32]);
        let difference = given
            .iter()
            .zip(wanted)
            .fold(0, |sum, (a, b)| sum | (a ^ b));
        known.is_some() && difference == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, os::unix::fs::PermissionsExt as _};

    #[test]
    fn knows_those_in_the_file_and_nobody_else() {
        let users = Users::parse("# who\nme:secret\n\nyou:a:b\n").unwrap();
        assert!(users.know(b"me", b"secret"));
        assert!(users.know(b"you", b"a:b"));
        for (user, password) in [("me", "a:b"), ("me", ""), ("", ""), ("they", "secret")] {
            assert!(!users.know(user.as_bytes(), password.as_bytes()), "{user}");
        }
    }

    #[test]
    fn refuses_what_is_no_list_of_users() {
        let long = format!("{}:p", "u".repeat(256));
        for (text, word) in [
            ("", "nobody"),
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
    fn a_file_that_others_can_read_is_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(&file, "me:secret\n").unwrap();
        let mode = |bits| fs::set_permissions(&file, fs::Permissions::from_mode(bits)).unwrap();
        mode(0o640);
        let problem = Users::read(file.path()).unwrap_err().to_string();
        assert!(problem.contains("chmod 600"), "{problem}");
        mode(0o600);
        assert!(Users::read(file.path()).unwrap().know(b"me", b"secret"));
    }
}
