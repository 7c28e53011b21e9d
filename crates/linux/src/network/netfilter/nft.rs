// SPDX-License-Identifier: MIT OR Apache-2.0
//! Calls of the nft program.

use super::Family;
use crate::programs;
use std::{
    io::{self, Write},
    process::{Output, Stdio},
};

/// Failure of nft.
#[derive(Debug, thiserror::Error)]
pub enum NftError {
    /// The program can't be started. The message has the cause, which is therefore not a source.
    #[error(
        "cannot start nft: {0}; if it is missing, install its package, for example: apt-get install nftables"
    )]
    Start(io::Error),
    /// The program failed, with this message.
    #[error("nft: {0}")]
    Refused(String),
}

/// Loads a script, as one transaction.
pub fn load(script: &str) -> Result<(), NftError> {
    run(&["-f", "-"], script).map(drop)
}

/// Returns the names of the tables of a family.
pub fn tables(family: Family) -> Result<Vec<String>, NftError> {
    let listing = run(&["list", "tables", family.name()], "")?;
    let name = |line: &str| line.split_whitespace().nth(2).map(str::to_owned);
    Ok(listing.lines().filter_map(name).collect())
}

/// Returns the rules of all families as nft prints them, without the elements of sets.
pub(super) fn rules() -> Result<String, NftError> {
    run(&["-t", "list", "ruleset"], "")
}

/// Deletes a table; a missing one is no error.
pub fn delete_table(family: Family, table: &str) -> Result<(), NftError> {
    let family = family.name();
    // Adding the table first makes the deletion safe on kernels without `destroy` (before 6.3).
    load(&format!(
        "table {family} {table}\ndelete table {family} {table}\n"
    ))
}

fn run(args: &[&str], input: &str) -> Result<String, NftError> {
    let output = start(args, input).map_err(NftError::Start)?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() {
        Ok(text(&output.stdout))
    } else {
        let message = text(&output.stderr);
        let first = message.lines().next().unwrap_or("failed").to_owned();
        Err(NftError::Refused(first))
    }
}

fn start(args: &[&str], input: &str) -> io::Result<Output> {
    let mut child = programs::command("nft")
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        // A program that does not read reports the reason when it ends.
        let _ = stdin.write_all(input.as_bytes());
    }
    child.wait_with_output()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::error::Error as _;

    #[test]
    fn names_the_cause_and_the_package_once() {
        let error = NftError::Start(io::ErrorKind::NotFound.into());
        let expected = "cannot start nft: entity not found; if it is missing, install its package, for example: \
                        apt-get install nftables";
        assert_eq!(error.to_string(), expected);
        // A report of the whole chain would name the cause again.
        assert!(error.source().is_none());
    }
}
