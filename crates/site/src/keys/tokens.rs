// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tokens that a site has given out: of each a hash, whose it is and what it is for. The file is read for every
//! client anew, so that a token counts from when it was made until it was removed.

use super::{
    identity::Identity,
    state::{Lock, State},
};
use anyhow::{Context as _, Result};
use jiff::Timestamp;
use longhaul_command::exit::Refusal;
use longhaul_command::say;
use longhaul_transfer::protocol::token::{Secret, Token};
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

pub(crate) fn make(state: &State, name: &str, exports: &[String], read_only: bool) -> Result<()> {
    let plain = |c: char| c.is_alphanumeric() || "-._@".contains(c);
    if name.is_empty() || name.len() > 64 || !name.chars().all(plain) {
        return Err(Refusal::usage(format!(
            "{name:?} is no name for a token: want up to 64 letters, digits, '-', '_', '.' and '@'"
        )));
    }
    let site = Identity::of(state)?.fingerprint;
    let held = state.lock()?;
    let mut tokens = Tokens::read(state)?;
    if tokens.0.contains_key(name) {
        return Err(Refusal::usage(format!(
            "there is a token of {name}: remove it first, or take another name"
        )));
    }
    let secret = Secret::random()?;
    let grant = Grant::new(&secret, exports, read_only);
    tokens.0.insert(name.to_owned(), grant);
    tokens.write(state, &held)?;
    say!("{}", Token { site, secret }.text());
    Ok(())
}

pub(crate) fn list(state: &State) -> Result<()> {
    for (name, grant) in Tokens::read(state)?.0 {
        let exports = match grant.exports.is_empty() {
            true => "all exports".to_owned(),
            false => grant.exports.join(", "),
        };
        let rights = if grant.read_only {
            "read"
        } else {
            "read and write"
        };
        say!("{name}: {rights} {exports}, since {:.0}", grant.made);
    }
    Ok(())
}

pub(crate) fn remove(state: &State, name: &str) -> Result<()> {
    let held = state.lock()?;
    let mut tokens = Tokens::read(state)?;
    if tokens.0.remove(name).is_none() {
        return Err(Refusal::usage(format!("there is no token of {name}")));
    }
    tokens.write(state, &held)
}
