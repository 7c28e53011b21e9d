// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs that a scenario runs.

pub(crate) mod command;
pub(crate) mod curl;
pub(crate) mod daemon;
pub(crate) mod file_servers;
pub(crate) mod iperf3;
pub(crate) mod probe;
pub(crate) mod proxies;
pub(crate) mod relay;
pub(crate) mod udt;

use crate::scenario::{Program, RelayProgram};
use anyhow::{Context, Result, bail};
use longhaul_command::exit::Refusal;
use longhaul_linux::{netns::Netns, process, programs};
use std::{
    collections::BTreeMap,
    io,
    path::Path,
    process::{Command, Output},
};

/// Required program: its name, the flag that prints its version, and Debian's package.
type Needed = (&'static str, &'static str, &'static str);

/// Returns the version that the program prints.
///
/// # Errors
/// The program cannot be run.
fn version((program, flag, _): Needed) -> io::Result<String> {
    let output = programs::command(program)
        .arg(flag)
        .stdin(std::process::Stdio::null())
        .output()?;
    // nginx prints its version on stderr.
    let text = [output.stdout, output.stderr].concat();
    Ok(version_number(&String::from_utf8_lossy(&text)))
}

/// Returns the first word that begins with a digit, or with a `v` and a digit.
fn version_number(text: &str) -> String {
    let digit = |word: &&str| word.starts_with(|c: char| c.is_ascii_digit());
    let words = text.split([' ', '/', '\n']);
    let bare = words.map(|word| word.strip_prefix('v').filter(digit).unwrap_or(word));
    let number = bare.into_iter().find(digit).unwrap_or(text);
    number.trim_end_matches(['.', ',']).to_owned()
}

/// The program that sets the rules of interception.
const NFT: Needed = ("nft", "--version", "nftables");

/// Programs that flows of this kind need.
fn needed_by_flow(program: Program) -> &'static [Needed] {
    match program {
        Program::Curl => &[("curl", "--version", "curl"), ("nginx", "-v", "nginx")],
        Program::Iperf3 => &[("iperf3", "--version", "iperf3")],
        Program::Ftp => &[("curl", "--version", "curl"), ("vsftpd", "-v", "vsftpd")],
        // Longhaul's own binary, whose version is in the result anyway.
        Program::Probe | Program::Udt => &[],
        // Checked where the command's words are known.
        Program::Command => &[],
    }
}

/// Programs that relays of this kind need.
fn needed_by_relay(program: RelayProgram) -> &'static [Needed] {
    match program {
        RelayProgram::Longhaul => &[],
        RelayProgram::Haproxy => &[("haproxy", "-v", "haproxy")],
        RelayProgram::Dante => &[("danted", "-v", "dante-server")],
        RelayProgram::Squid => &[("squid", "-v", "squid")],
    }
}

/// Versions of the programs that flows, relays and interception need.
///
/// # Errors
/// Programs are not installed; the message names all of them, and says how to install them.
pub(crate) fn versions(
    flows: impl IntoIterator<Item = Program>,
    relays: impl IntoIterator<Item = RelayProgram>,
    interception: bool,
) -> Result<BTreeMap<String, String>> {
    let flows = flows.into_iter().flat_map(needed_by_flow);
    let relays = relays.into_iter().flat_map(needed_by_relay);
    let nft = interception.then_some(&NFT);
    let mut versions = BTreeMap::new();
    let mut missing = Vec::new();
    for needed in flows.chain(relays).chain(nft) {
        match version(*needed) {
            Ok(version) => drop(versions.insert(needed.0.to_owned(), version)),
            Err(error) => missing.push((*needed, error)),
        }
    }
    if missing.is_empty() {
        Ok(versions)
    } else {
        Err(Refusal::unsupported(describe_missing(&missing)))
    }
}

fn describe_missing(missing: &[(Needed, io::Error)]) -> String {
    let programs: Vec<_> = missing
        .iter()
        .map(|((program, ..), error)| format!("{program} ({error})"))
        .collect();
    let packages: Vec<_> = missing.iter().map(|((.., package), _)| *package).collect();
    format!(
        "cannot run {}; install what is missing, for example: apt-get install {}",
        programs.join(", "),
        packages.join(" ")
    )
}

/// Runs a client to its end inside `netns`. It is killed if the future is dropped.
async fn run_to_end(mut command: Command, program: &str, netns: &Netns) -> Result<Output> {
    process::inside(&mut command, netns);
    let child = tokio::process::Command::from(command)
        .kill_on_drop(true)
        .spawn()
        .with_context(|| format!("cannot start {program}"))?;
    let ended = child.wait_with_output().await;
    ended.with_context(|| format!("cannot wait for {program}"))
}

/// Writes the JSON output of a program to its raw record, and parses it.
fn save_json(path: &Path, text: &[u8], program: &str) -> Result<serde_json::Value> {
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
    match serde_json::from_slice(text) {
        Ok(value) => Ok(value),
        Err(error) => bail!("{program} wrote no JSON ({error}); see {}", path.display()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_all_missing_programs_and_their_packages() {
        let missing = |program| ((program, "-v", "a-package"), io::ErrorKind::NotFound.into());
        assert_eq!(
            describe_missing(&[missing("nginx"), missing("curl")]),
            "cannot run nginx (entity not found), curl (entity not found); install what is missing, \
             for example: apt-get install a-package a-package"
        );
    }

    #[test]
    fn finds_versions_in_program_output() {
        assert_eq!(version_number("curl 8.5.0 (x86_64)"), "8.5.0");
        assert_eq!(version_number("nginx version: nginx/1.22.1\n"), "1.22.1");
        assert_eq!(version_number("Dante v1.4.3.\nCopyright"), "1.4.3");
        assert_eq!(
            version_number("HAProxy version 2.6.12-1+deb12u4 2026/10/17"),
            "2.6.12-1+deb12u4"
        );
    }
}
