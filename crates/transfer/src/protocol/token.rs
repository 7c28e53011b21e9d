// SPDX-License-Identifier: MIT OR Apache-2.0
//! A token: what lets a client in, and by which it knows the site.
//!
//! `lhs1.FINGERPRINT.SECRET`: the fingerprint of the site's key, so that the client shows the secret to no other, and
//! the secret, of which the site keeps a hash. Both 32 bytes, base64url without padding (RFC 4648 §5).

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD as BASE64};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::{fmt, str::FromStr};

const PREFIX: &str = "lhs1";

/// The SHA-256 hash of a site's public key (SubjectPublicKeyInfo): what `curl --pinnedpubkey` calls sha256, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fingerprint(pub(crate) [u8; 32]);

impl Fingerprint {
    /// Of a public key, a DER SubjectPublicKeyInfo.
    #[must_use]
    pub fn of(key: &[u8]) -> Self {
        Self(Sha256::digest(key).into())
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&BASE64.encode(self.0))
    }
}

/// What only the client knows. 256 bits of the system's randomness: nobody guesses it, so a plain hash keeps it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Secret([u8; 32]);

impl Secret {
    /// A new one.
    ///
    /// # Errors
    ///
    /// Fails if the system gives no randomness.
    pub fn random() -> std::io::Result<Self> {
        let mut bytes = [0; 32];
        let mut filled = 0;
        while filled < bytes.len() {
            let flags = rustix::rand::GetRandomFlags::empty();
            filled += rustix::rand::getrandom(&mut bytes[filled..], flags)?;
        }
        Ok(Self(bytes))
    }

    /// What the site keeps. That two of them are compared in no constant time tells nobody anything of a secret.
    pub fn hash(&self) -> String {
        BASE64.encode(Sha256::digest(self.0))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// A site's key and a secret for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    /// Whose token it is.
    pub site: Fingerprint,
    /// Shows that the client may.
    pub secret: Secret,
}

impl Token {
    /// As it is handed on; whoever has this text has the token.
    pub fn text(&self) -> String {
        format!("{PREFIX}.{}.{}", self.site, BASE64.encode(self.secret.0))
    }
}

impl FromStr for Token {
    type Err = &'static str;

    /// Never says what it was: errors are shown.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bytes = |text: &str| BASE64.decode(text).ok()?.try_into().ok();
        let parts: Vec<&str> = text.split('.').collect();
        let read = match parts[..] {
            [PREFIX, site, secret] => bytes(site).zip(bytes(secret)),
            _ => None,
        };
        let (site, secret) = read.ok_or("no token: want what `longhaul site token new` printed")?;
        Ok(Self {
            site: Fingerprint(site),
            secret: Secret(secret),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_read_as_it_was_written_and_says_nothing_by_accident() {
        let token = Token {
            site: Fingerprint([7; 32]),
            secret: Secret::random().unwrap(),
        };
        let text = token.text();
        assert_eq!(text.parse(), Ok(token.clone()));
        let secret = text.rsplit('.').next().unwrap();
        assert!(!format!("{token:?}").contains(secret));
        assert_ne!(Secret::random().unwrap(), token.secret);
        assert!(!token.secret.hash().contains(secret));
    }

    #[test]
    fn what_is_no_token_is_refused_without_repeating_it() {
        let good = Token {
            site: Fingerprint([7; 32]),
            secret: Secret([8; 32]),
        };
        let text = good.text();
        for bad in [
            "",
            "lhs1",
            &text[1..],
            &text[..text.len() - 1],
            &format!("{text}.x"),
        ] {
            let said = bad.parse::<Token>().unwrap_err();
            assert!(bad.len() < 6 || !said.contains(bad));
        }
    }
}
