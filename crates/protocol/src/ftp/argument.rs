// SPDX-License-Identifier: MIT OR Apache-2.0
//! Arguments of FTP commands.

/// Argument of a command: a name, user or password of any bytes but those that end a command.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Argument(Vec<u8>);

/// Error for bytes that would end a command and begin another one: CR, LF or NUL (RFC 959 §5.3.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a line end or NUL can't be part of an FTP command")]
pub struct ControlCharacter;

impl Argument {
    /// Checks the bytes.
    ///
    /// # Errors
    ///
    /// Refuses CR, LF and NUL.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Result<Self, ControlCharacter> {
        let bytes = bytes.into();
        if bytes.iter().any(|byte| b"\r\n\0".contains(byte)) {
            Err(ControlCharacter)
        } else {
            Ok(Self(bytes))
        }
    }

    /// Returns the bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Encodes the command `verb` with this argument.
    #[must_use]
    pub fn encode_command(&self, verb: &'static str) -> Vec<u8> {
        if self.0.is_empty() {
            [verb.as_bytes(), b"\r\n"].concat()
        } else {
            [verb.as_bytes(), b" ", &self.0, b"\r\n"].concat()
        }
    }
}

impl From<u64> for Argument {
    fn from(number: u64) -> Self {
        Self(number.to_string().into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encodes_any_bytes_but_the_end_of_a_command() {
        let name = Argument::new(b" \x93\xfa\x96{\xff.txt ").unwrap();
        assert_eq!(
            name.encode_command("RETR"),
            b"RETR  \x93\xfa\x96{\xff.txt \r\n"
        );
        assert_eq!(Argument::default().encode_command("PASV"), b"PASV\r\n");
        assert_eq!(Argument::from(70).encode_command("REST"), b"REST 70\r\n");
        for bad in ["a\r\nDELE b", "a\nb", "a\rb", "a\0"] {
            assert_eq!(Argument::new(bad), Err(ControlCharacter), "{bad:?}");
        }
    }
}
