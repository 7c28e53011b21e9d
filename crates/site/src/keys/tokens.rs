// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tokens that a site has issued: for each its hash, name and exports. The file is read anew for every client, so
//! that a token is valid from its creation until its removal.

use super::{
    identity::Identity,
    state::{StateDir, StateLock},
};
use anyhow::{Context as _, Result};
use jiff::Timestamp;
use longhaul_command::{errln, exit::Refusal, outln};
use longhaul_copy::protocol::token::{Secret, Token};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, path::Path};

const FILE: &str = "tokens.toml";

/// Longest file, in bytes: enough for some ten thousand tokens.
const FILE_LEN_MAX: u64 = 4 << 20;

/// Tokens by name.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Tokens(pub(crate) BTreeMap<String, Grant>);

/// Rights of a token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Grant {
    /// SHA-256 of the secret, base64url.
    hash: String,
    pub(crate) made: Timestamp,
    /// Exports that it covers; empty for all. The field is required: a file without it was truncated, or written by
    /// another program.
    pub(crate) exports: Vec<String>,
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

    /// Returns whether the token covers an export.
    pub(crate) fn covers(&self, export: &str) -> bool {
        self.exports.is_empty() || self.exports.iter().any(|name| name == export)
    }
}

impl Tokens {
    pub(crate) fn read(state: &StateDir) -> Result<Self> {
        let path = state.path(FILE);
        let text = state.read(FILE, FILE_LEN_MAX + 1);
        let text = text.with_context(|| format!("cannot read {}", path.display()))?;
        let text = text.unwrap_or_default();
        check_len(&text, &path)?;
        let parsed = toml::from_str(&text);
        parsed.map_err(|error| Refusal::usage(format!("{}: {error}", path.display())))
    }

    /// Reads the file on another thread: a slow disk delays no other client.
    pub(crate) async fn read_async(state: &StateDir) -> Result<Self> {
        let state = state.clone();
        tokio::task::spawn_blocking(move || Self::read(&state)).await?
    }

    pub(crate) fn write(&self, state: &StateDir, lock: &StateLock) -> Result<()> {
        let text = toml::to_string(self)?;
        check_len(&text, &state.path(FILE))?;
        state.write(FILE, &text, lock)
    }

    /// Returns the name and the rights of the token with this secret.
    pub(crate) fn find(&self, secret: &Secret) -> Option<(&str, &Grant)> {
        let hash = secret.hash();
        let found = self.0.iter().find(|(_, grant)| grant.hash == hash);
        found.map(|(name, grant)| (name.as_str(), grant))
    }
}

/// Exports of the site at its last start, one name a line. Commands for tokens know them only from here.
const EXPORTS_FILE: &str = "exports";

const EXPORTS_LEN_MAX: u64 = 1 << 20;

/// Stores the names of the exports for [`create`].
pub(crate) fn store_exports<'n>(
    state: &StateDir,
    names: impl Iterator<Item = &'n str>,
) -> Result<()> {
    let text: String = names.map(|name| format!("{name}\n")).collect();
    let lock = state.lock()?;
    if state.read(EXPORTS_FILE, EXPORTS_LEN_MAX)?.as_ref() == Some(&text) {
        return Ok(());
    }
    state.write(EXPORTS_FILE, &text, &lock)
}

/// Warns of exports that the site did not have at its last start. It may have them at the next one.
fn warn_of_unknown_exports(state: &StateDir, exports: &[String]) -> Result<()> {
    let Some(text) = state.read(EXPORTS_FILE, EXPORTS_LEN_MAX)? else {
        return Ok(());
    };
    let known: Vec<&str> = text.lines().collect();
    for export in exports
        .iter()
        .filter(|name| !known.contains(&name.as_str()))
    {
        errln!(
            "longhaul: warning: --export {export}: the site of {state} has no such export; it has {}",
            known.join(", ")
        );
    }
    Ok(())
}

/// Checks the length of the file. A truncated file could give a token more rights than it has.
fn check_len(text: &str, path: &Path) -> Result<()> {
    if text.len() as u64 > FILE_LEN_MAX {
        Err(Refusal::usage(format!(
            "{}: it would have more than {} MiB of tokens: remove some (longhaul site token remove NAME)",
            path.display(),
            FILE_LEN_MAX >> 20
        )))
    } else {
        Ok(())
    }
}

pub(crate) fn create(
    state: &StateDir,
    name: &str,
    exports: &[String],
    read_only: bool,
) -> Result<()> {
    let plain = |c: char| c.is_alphanumeric() || "-._@".contains(c);
    if name.is_empty() || name.len() > 64 || !name.chars().all(plain) {
        return Err(Refusal::usage(format!(
            "{name:?} is not a name for a token: want up to 64 letters, digits, '-', '_', '.' and '@'"
        )));
    }
    let site = Identity::load_or_create(state)?.fingerprint;
    let lock = state.lock()?;
    let mut tokens = Tokens::read(state)?;
    if tokens.0.contains_key(name) {
        return Err(Refusal::usage(format!(
            "there is a token of {name}: remove it first, or take another name"
        )));
    }
    warn_of_unknown_exports(state, exports)?;
    let secret = Secret::random()?;
    let grant = Grant::new(&secret, exports, read_only);
    tokens.0.insert(name.to_owned(), grant);
    tokens.write(state, &lock)?;
    outln!("{}", Token { site, secret }.text());
    Ok(())
}

pub(crate) fn list(state: &StateDir) -> Result<()> {
    let tokens = Tokens::read(state)?.0;
    if tokens.is_empty() {
        errln!("no tokens in {state}; --state names another directory");
    }
    for (name, grant) in tokens {
        let exports = if grant.exports.is_empty() {
            "all exports".to_owned()
        } else {
            grant.exports.join(", ")
        };
        let rights = if grant.read_only {
            "read"
        } else {
            "read and write"
        };
        outln!("{name}: {rights} {exports}, since {:.0}", grant.made);
    }
    Ok(())
}

pub(crate) fn remove(state: &StateDir, name: &str) -> Result<()> {
    let lock = state.lock()?;
    let mut tokens = Tokens::read(state)?;
    if tokens.0.remove(name).is_none() {
        return Err(Refusal::usage(format!(
            "there is no token of {name} in {state}; --state names another directory"
        )));
    }
    tokens.write(state, &lock)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_tokens(text: &str) -> Result<Tokens> {
        let folder = tempfile::tempdir().unwrap();
        let state = StateDir::find(Some(folder.path())).unwrap();
        std::fs::write(state.path(FILE), text).unwrap();
        Tokens::read(&state)
    }

    #[test]
    fn rejects_tokens_without_exports() {
        let secret = Secret::random().unwrap();
        let token = |exports: &[String], read_only| {
            let grant = Grant::new(&secret, exports, read_only);
            toml::to_string(&Tokens(BTreeMap::from([("me".to_owned(), grant)]))).unwrap()
        };
        let limited = token(&["data".to_owned()], true);
        for text in [&limited, &token(&[], false)] {
            assert!(read_tokens(text).unwrap().find(&secret).is_some());
        }
        // A truncated file ends like this.
        for last in ["made", "exports"] {
            let lines = limited.lines().take_while(|line| !line.starts_with(last));
            let whole = limited.lines().find(|line| line.starts_with(last)).unwrap();
            let cut: Vec<_> = lines.chain([whole]).collect();
            assert!(read_tokens(&cut.join("\n")).is_err(), "{last}");
        }
    }

    #[test]
    fn stores_exports_once() {
        let folder = tempfile::tempdir().unwrap();
        let state = StateDir::find(Some(&folder.path().join("state"))).unwrap();
        store_exports(&state, ["data", "logs"].into_iter()).unwrap();
        let modified = || state.path(EXPORTS_FILE).metadata().unwrap().modified();
        let before = modified().unwrap();
        store_exports(&state, ["data", "logs"].into_iter()).unwrap();
        assert_eq!(modified().unwrap(), before);
        let text = state.read(EXPORTS_FILE, EXPORTS_LEN_MAX).unwrap();
        assert_eq!(text.as_deref(), Some("data\nlogs\n"));
    }

    #[test]
    fn refuses_a_file_that_is_too_long() {
        let long = |len: u64| "#".repeat(usize::try_from(len).unwrap());
        assert!(read_tokens(&long(FILE_LEN_MAX)).is_ok());
        let error = read_tokens(&long(FILE_LEN_MAX + 1))
            .unwrap_err()
            .to_string();
        assert!(error.contains("4 MiB"), "{error}");
    }
}
