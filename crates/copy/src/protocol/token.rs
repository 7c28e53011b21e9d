// SPDX-License-Identifier: MIT OR Apache-2.0
//! Token with which a client authenticates at a site and identifies the site.
//!
//! The text form is `lhs1.FINGERPRINT.SECRET`. The fingerprint is that of the site's key, so that the client shows the
//! secret to no other site. The site stores a hash of the secret. Both are 32 bytes in base64url without padding
//! (RFC 4648 §5).

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD as BASE64};
use longhaul_linux::random::random_bytes;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::{fmt, str::FromStr};

const PREFIX: &str = "lhs1";

/// SHA-256 hash of a site's public key (SubjectPublicKeyInfo), as in `curl --pinnedpubkey`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fingerprint(pub(crate) [u8; 32]);

impl Fingerprint {
    /// Computes the fingerprint of a public key, a DER SubjectPublicKeyInfo.
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

/// Secret of the client: 256 bits of the system's randomness. It cannot be guessed, so a plain hash protects it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Secret([u8; 32]);

impl Secret {
    /// Creates a new secret.
    ///
    /// # Errors
    ///
    /// Fails if the system provides no randomness.
    pub fn random() -> std::io::Result<Self> {
        random_bytes().map(Self)
    }

    /// Returns the hash that the site stores. Hashes need no comparison in constant time: its duration reveals nothing of a
    /// secret.
    pub fn hash(&self) -> String {
        BASE64.encode(Sha256::digest(self.0))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// Fingerprint of a site's key and a secret for that site.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    /// Fingerprint of the site's key.
    pub site: Fingerprint,
    /// Secret that authenticates the client.
    pub secret: Secret,
}

impl Token {
    /// Returns the text form. Anyone who has this text has the token.
    pub fn text(&self) -> String {
        format!("{PREFIX}.{}.{}", self.site, BASE64.encode(self.secret.0))
    }
}

impl FromStr for Token {
    type Err = &'static str;

    /// Parses the text form. The error never contains the text, because errors are shown.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bytes = |text: &str| BASE64.decode(text).ok()?.try_into().ok();
        let parts: Vec<&str> = text.split('.').collect();
        let read = match parts[..] {
            [PREFIX, site, secret] => bytes(site).zip(bytes(secret)),
            _ => None,
        };
        let (site, secret) =
            read.ok_or("not a token: want the output of `longhaul site token new`")?;
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
    fn tokens_round_trip_and_debug_output_hides_the_secret() {
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
    fn rejects_invalid_tokens_without_repeating_them() {
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
            let error = bad.parse::<Token>().unwrap_err();
            assert!(bad.len() < 6 || !error.contains(bad));
        }
    }
}
