// SPDX-License-Identifier: MIT OR Apache-2.0
//! The programs that a scenario runs, one module each.

pub(crate) mod command;
pub(crate) mod curl;
pub(crate) mod daemon;
mod dante;
pub(crate) mod ftp;
mod haproxy;
pub(crate) mod iperf3;
pub(crate) mod longhaul;
pub(crate) mod nginx;
pub(crate) mod probe;
pub(crate) mod relay;
mod squid;
pub(crate) mod udt;
pub(crate) mod ways;

use crate::scenario::{Program, RelayProgram};
use anyhow::{Context, Result, bail};
use longhaul_linux::{netns::Netns, process};
use std::{
    collections::BTreeMap,
    path::Path,
    process::{Command, Output},
};

/// A program that the lab needs: its name, the flag that makes it print its version, and Debian's
/// package.
type Needed = (&'static str, &'static str, &'static str);

/// The version that the program prints, or what is missing and how to get it.
fn version((program, flag, package): Needed) -> Result<String> {
    let output = Command::new(program)
        .arg(flag)
        .stdin(std::process::Stdio::null())
        .output();
    let output = output.map_err(|error| {
        longhaul_command::exit::Refusal::unsupported(format!(
            "cannot run {program} ({error}); install it, for example: apt-get install {package}"
        ))
    })?;
    // nginx prints its version on stderr.
    let text = [output.stdout, output.stderr].concat();
    Ok(number(&String::from_utf8_lossy(&text)))
}

/// The first word that begins with a digit, which may stand behind a `v`.
fn number(text: &str) -> String {
    let digit = |word: &&str| word.starts_with(|c: char| c.is_ascii_digit());
    let words = text.split([' ', '/', '\n']);
    let bare = words.map(|word| word.strip_prefix('v').filter(digit).unwrap_or(word));
    let number = bare.into_iter().find(digit).unwrap_or(text);
    number.trim_end_matches(['.', ',']).to_owned()
}

/// The versions of the programs that flows and relays need.
pub(crate) fn versions(
    flows: impl IntoIterator<Item = Program>,
    relays: impl IntoIterator<Item = RelayProgram>,
) -> Result<BTreeMap<String, String>> {
    let of_flow = |program| -> &[Needed] {
        match program {
            Program::Curl => &[("curl", "--version", "curl"), ("nginx", "-v", "nginx")],
            Program::Iperf3 => &[("iperf3", "--version", "iperf3")],
            Program::Ftp => &[("curl", "--version", "curl"), ("vsftpd", "-v", "vsftpd")],
            // This very binary, whose version the result holds anyway.
            Program::Probe | Program::Udt => &[],
            // Looked for where its words are known.
            Program::Command => &[],
        }
    };
    let of_relay = |program| -> &[Needed] {
        match program {
            RelayProgram::Longhaul => &[],
            RelayProgram::Haproxy => &[("haproxy", "-v", "haproxy")],
            RelayProgram::Dante => &[("danted", "-v", "dante-server")],
            RelayProgram::Squid => &[("squid", "-v", "squid")],
        }
    };
    let flows = flows.into_iter().flat_map(of_flow);
    let all = flows.chain(relays.into_iter().flat_map(of_relay));
    all.map(|needed| Ok((needed.0.to_owned(), version(*needed)?)))
        .collect()
}

/// Runs a client to its end inside `netns`; it ends with the future that waits for it.
async fn finish(mut command: Command, program: &str, netns: &Netns) -> Result<Output> {
    process::inside(&mut command, netns);
    let child = tokio::process::Command::from(command)
        .kill_on_drop(true)
        .spawn()
        .with_context(|| format!("cannot start {program}"))?;
    let ended = child.wait_with_output().await;
    ended.with_context(|| format!("cannot wait for {program}"))
}

/// The JSON that a program wrote, kept beside the other raw records.
fn keep_json(path: &Path, text: &[u8], program: &str) -> Result<serde_json::Value> {
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
    fn versions_are_found_in_what_programs_print() {
        assert_eq!(number("curl 8.5.0 (x86_64)"), "8.5.0");
        assert_eq!(number("nginx version: nginx/1.22.1\n"), "1.22.1");
        assert_eq!(number("Dante v1.4.3.\nCopyright"), "1.4.3");
        assert_eq!(
            number("HAProxy version 2.6.12-1+deb12u4 2026/10/17"),
            "2.6.12-1+deb12u4"
        );
    }
}
