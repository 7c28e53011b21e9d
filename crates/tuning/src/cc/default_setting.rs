// SPDX-License-Identifier: MIT OR Apache-2.0
//! Default congestion control, for sockets that don't choose one: a setting of each network namespace.
//!
//! `load --default` first records the old value and the namespace beside the pins, so that
//! `unload` can restore it whatever happens in between.

use anyhow::{Context, Result, bail};
use longhaul_congestion::{Error, loader::Loaded};
use longhaul_linux::{netns, netns::Netns, sysctl};
use std::{fs, os::unix::fs::MetadataExt};

const SETTING: &str = "net.ipv4.tcp_congestion_control";
/// Name of the record beside the pins. It holds `INODE:NAME`: the namespace's inode and its earlier default.
const PREVIOUS_DEFAULT: &str = "default-before";

/// Returns the default of the current network namespace.
pub(super) fn current() -> Result<String> {
    Ok(sysctl::read_here(SETTING)?)
}

/// Makes `loaded` the default of this namespace. Returns the previous default.
pub(super) fn set(loaded: &Loaded) -> Result<String> {
    let (name, before) = (loaded.algorithm().system_name(), current()?);
    if before != name {
        let record = format!("{}:{before}", namespace_inode()?);
        loaded
            .set_metadata(PREVIOUS_DEFAULT, &record)
            .map_err(Error::refusal)?;
        sysctl::write_here(SETTING, &name)?;
    }
    Ok(before)
}

/// Restores the default that [`set`] replaced. Returns the name of the restored default, or `None` if [`set`] changed
/// nothing. Refuses if another program made `loaded` the default, or if `loaded` is the default of another namespace
/// that still exists.
pub(super) fn restore(loaded: &Loaded) -> Result<Option<String>> {
    let name = loaded.algorithm().system_name();
    let record = loaded.metadata(PREVIOUS_DEFAULT);
    let recorded = record.as_deref().and_then(|record| record.split_once(':'));
    let is_default = current()? == name;
    match recorded {
        Some((inode, before)) if inode == namespace_inode()?.to_string() && is_default => {
            sysctl::write_here(SETTING, before)?;
            Ok(Some(before.to_owned()))
        }
        _ if is_default => bail!(
            "{name} is the default of this namespace, set by another program: first choose another \
             default (sysctl -w {SETTING}=reno)"
        ),
        Some((inode, _)) => check_other_namespaces(&name, inode).map(|()| None),
        None => Ok(None),
    }
}

fn check_other_namespaces(name: &str, inode: &str) -> Result<()> {
    let names = namespaces_with_default(name)?;
    match names.iter().find(|(_, found)| found.to_string() == inode) {
        Some((netns, _)) => bail!(
            "{name} is the default of network namespace {netns}: unload it there (ip netns exec \
             {netns} …)"
        ),
        None => Ok(()),
    }
}

/// Returns the named network namespaces whose default is `name`, with their inodes.
pub(super) fn namespaces_with_default(name: &str) -> Result<Vec<(String, u64)>> {
    let entries = fs::read_dir(netns::DIRECTORY);
    let names = entries.into_iter().flatten().filter_map(|entry| {
        let entry = entry.ok()?;
        Some((
            entry.file_name().into_string().ok()?,
            entry.metadata().ok()?.ino(),
        ))
    });
    let has_default = |netns: &str| {
        let found = Netns::named(netns).and_then(|netns| sysctl::read(&netns, SETTING));
        found.is_ok_and(|found| found == name)
    };
    Ok(names.filter(|(netns, _)| has_default(netns)).collect())
}

/// Returns the inode of the current network namespace.
fn namespace_inode() -> Result<u64> {
    let found = fs::metadata("/proc/thread-self/ns/net");
    Ok(found
        .context("cannot identify this network namespace")?
        .ino())
}
