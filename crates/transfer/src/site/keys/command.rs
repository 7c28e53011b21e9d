// SPDX-License-Identifier: MIT OR Apache-2.0
//! `longhaul site token`: what the running site reads when the next client comes.

use super::{
    identity::Identity,
    state::State,
    tokens::{Grant, Tokens},
};
use crate::protocol::token::{Secret, Token};
use anyhow::Result;
use longhaul_command::exit::Refusal;
use longhaul_command::say;
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
