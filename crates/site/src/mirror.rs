// SPDX-License-Identifier: MIT OR Apache-2.0
//! What lands in an export is copied on to another site, by `longhaul copy` as anybody would call it: so it goes on after
//! whatever befalls either side, and does nothing where nothing is new.
//!
//! What comes through this site is copied on at once. What others put there, by the file system or NFS, is found by looking
//! through all of it from time to time: watches of the kernel (inotify(7)) take one a directory, are lost with the process
//! and overflow, so that one has to look anyway.

use super::{
    config::{Export, Mirrored, SELF},
    lines::Records,
    listener::accept::Stopped,
    record::Record,
};
use anyhow::{Context as _, Result, bail};
use longhaul_store::root::Root;
use serde::Deserialize;
use std::{
    collections::BTreeMap, ffi::OsString, path::PathBuf, process::Stdio, sync::Arc, time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncReadExt},
    process::Command,
    sync::Notify,
    time::{Instant, sleep},
};

/// Between two copies: what comes in quick succession goes together.
const GATHERING: Duration = Duration::from_millis(500);

/// Looking through an export takes at most so much of the time: one part in this many.
const LOOKING_SHARE: u32 = 10;

/// What a copy prints, at most: the rest is thrown away.
const SAID_MAX: u64 = 64 << 10;

/// What a copy says of itself (docs/copy.md, `--json`).
#[derive(Debug, Deserialize)]
struct Copied {
    made: u64,
    removed: u64,
    failed: u64,
    sent_bytes: u64,
    seconds: f64,
}

/// Copies until the site ends.
pub(super) async fn mirror(
    mirrored: Mirrored,
    arrivals: Arc<Notify>,
    records: Records,
    mut stopped: Stopped,
) {
    let mut known = false;
    loop {
        let begin = Instant::now();
        let copied = tokio::select! {
            copied = copy(&mirrored) => copied,
            () = stopped.reached() => return,
        };
        known = say(&mirrored, copied, known, records);
        let pause = mirrored.every.max(begin.elapsed() * LOOKING_SHARE);
        let news = async {
            sleep(GATHERING).await;
            arrivals.notified().await;
        };
        tokio::select! {
            () = news => {}
            () = sleep(pause) => {}
            () = stopped.reached() => return,
        }
    }
}

/// Says what is worth it; whether all is known to be there.
fn say(mirrored: &Mirrored, copied: Result<Copied>, known: bool, records: Records) -> bool {
    let (export, to) = (mirrored.export.clone(), mirrored.to.display().to_string());
    let why = match copied {
        Ok(copied) if copied.failed == 0 => {
            let entries = copied.made + copied.removed;
            if entries > 0 || !known {
                records.write(&Record::Arrived {
                    export,
                    to,
                    entries,
                    bytes: copied.sent_bytes,
                    seconds: copied.seconds,
                });
            }
            return true;
        }
        Ok(copied) => format!("{} could not be copied", copied.failed),
        Err(error) => format!("{error:#}"),
    };
    records.write(&Record::Behind { export, to, why });
    false
}

/// One copy. Dropped, it ends.
async fn copy(mirrored: &Mirrored) -> Result<Copied> {
    // Who may write what it is in may have put a link in its place.
    let shown = || mirrored.directory.display().to_string();
    Root::open_without_links(&mirrored.directory).with_context(shown)?;
    // What is in it, not itself.
    let mut directory = OsString::from(&mirrored.directory);
    directory.push("/");
    let mut command = Command::new(SELF);
    command.args(["copy", "--json", "--quiet", "--attended"]);
    if mirrored.delete {
        command.arg("--delete");
    }
    command.arg(directory).arg(&mirrored.to);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command
        .kill_on_drop(true)
        .spawn()
        .context("no copy starts")?;
    // As long as this is open, the copy has somebody who attends to it.
    let _attending = child.stdin.take();
    let (out, errors) = (child.stdout.take(), child.stderr.take());
    let (said, problems) = tokio::try_join!(all(out), all(errors))?;
    child.wait().await?;
    match serde_json::from_slice(&said) {
        Ok(copied) => Ok(copied),
        Err(_) => bail!("{}", last_line(&problems)),
    }
}

async fn all(from: Option<impl AsyncRead + Unpin>) -> Result<Vec<u8>> {
    let mut from = from.context("no pipe")?;
    let mut said = Vec::new();
    (&mut from).take(SAID_MAX).read_to_end(&mut said).await?;
    tokio::io::copy(&mut from, &mut tokio::io::sink()).await?;
    Ok(said)
}

fn last_line(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    let last = text.lines().last().unwrap_or("the copy said nothing");
    last.trim_start_matches("longhaul: ").to_owned()
}

/// One bell an export. A ring that nobody waits for is heard by who waits next; several are one.
#[derive(Debug)]
pub(super) struct News(BTreeMap<String, (PathBuf, Arc<Notify>)>);

impl News {
    pub(super) fn of_exports(exports: &BTreeMap<String, Export>) -> Self {
        let bell = |(name, export): (&String, &Export)| {
            (name.clone(), (export.directory.clone(), Arc::default()))
        };
        Self(exports.iter().map(bell).collect())
    }

    /// By this site, something may have come: into each export that the place is in, and those in it.
    pub(super) fn came(&self, export: &str) {
        let Some((place, _)) = self.0.get(export) else {
            return;
        };
        for (directory, bell) in self.0.values() {
            if directory.starts_with(place) || place.starts_with(directory) {
                bell.notify_one();
            }
        }
    }

    /// For one listener.
    pub(super) fn of(&self, export: &str) -> Arc<Notify> {
        let bell = self.0.get(export).map(|(_, bell)| bell.clone());
        bell.unwrap_or_default()
    }
}
