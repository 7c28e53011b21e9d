// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tokens that a site has given out: of each a hash, whose it is and what it is for. The file is read for every
//! client anew, so that a token counts from when it was made until it was removed.

use super::state::{Lock, State};
use crate::protocol::token::Secret;
use anyhow::{Context as _, Result};
use jiff::Timestamp;
use longhaul_command::exit::Refusal;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

const FILE: &str = "tokens.toml";

/// Some ten thousand tokens.
const FILE_LEN_MAX: u64 = 4 << 20;

/// By whose they are.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Tokens(pub(crate) BTreeMap<String, Grant>);

/// What a token is for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Grant {
    /// SHA-256 of the secret, base64url.
    hash: String,
    pub(crate) made: Timestamp,
    /// None is all.
    #[serde(default)]
    pub(crate) exports: Vec<String>,
    #[serde(default)]
    pub(crate) read_only: bool,
}

impl Grant {
    pub(crate) fn new(secret: &Secret, exports: &[String], read_only: bool) -> Self {
        Self {
            hash: secret.hash(),
            made: Timestamp::now(),
            exports: exports.to_vec(),
            read_only,
        }
    }

    /// Whether it is for this export.
    pub(crate) fn is_for(&self, export: &str) -> bool {
        self.exports.is_empty() || self.exports.iter().any(|name| name == export)
    }
}

impl Tokens {
    pub(crate) fn read(state: &State) -> Result<Self> {
        let path = state.path(FILE);
        let text = state.read(FILE, FILE_LEN_MAX);
        let text = text.with_context(|| format!("cannot read {}", path.display()))?;
        let parsed = toml::from_str(&text.unwrap_or_default());
        parsed.map_err(|error| Refusal::usage(format!("{}: {error}", path.display())))
    }

    pub(crate) fn write(&self, state: &State, held: &Lock) -> Result<()> {
        state.write(FILE, &toml::to_string(self)?, held)
    }

    /// Whose secret it is, and what it is for.
    pub(crate) fn find(&self, secret: &Secret) -> Option<(&str, &Grant)> {
        let hash = secret.hash();
        let found = self.0.iter().find(|(_, grant)| grant.hash == hash);
        found.map(|(name, grant)| (name.as_str(), grant))
    }
}
