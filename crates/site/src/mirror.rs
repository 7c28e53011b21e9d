// SPDX-License-Identifier: MIT OR Apache-2.0
//! Mirrors: exports copied to another site by `longhaul copy`, as a user would run it. A mirror therefore resumes
//! after any failure of either side, and sends nothing when nothing has changed.
//!
//! Changes made through this site are copied at once. Changes made by others, on the file system or over NFS, are
//! found by regular scans. Kernel watches (inotify(7)) need one for each directory, are lost with the process and
//! overflow, so that scans would be needed anyway.

use super::{
    config::{Export, MirrorConfig, own_program},
    export_identity, export_mounts,
    listener::accept::ShutdownSignal,
    record::Record,
    record_writer::RecordWriter,
};
use anyhow::{Context as _, Result, bail};
use longhaul_store::root::Root;
use serde::Deserialize;
use std::{
    collections::BTreeMap, os::fd::AsRawFd as _, path::PathBuf, process::Stdio, sync::Arc,
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncReadExt},
    sync::Notify,
    time::{Instant, sleep},
};

/// Delay between two copies, so that changes in quick succession are copied together.
const DEBOUNCE: Duration = Duration::from_millis(500);

/// Factor between the time of a scan and the pause after it: scans take at most one part in this many of the time.
const SCAN_DUTY_CYCLE: u32 = 10;

/// Longest output of a copy that is kept, in bytes.
const OUTPUT_LEN_MAX: u64 = 64 << 10;

/// Summary that a copy prints (docs/copy.md, `--json`).
#[derive(Debug, Deserialize)]
struct CopyReport {
    copied: u64,
    removed: u64,
    failed: u64,
    sent_bytes: u64,
    seconds: f64,
}

/// Copies the export until the site stops.
pub(super) async fn mirror(
    mirror_config: MirrorConfig,
    changes: Arc<Notify>,
    records: RecordWriter,
    mut shutdown: ShutdownSignal,
) {
    let mut is_synced = false;
    loop {
        let begin = Instant::now();
        let result = tokio::select! {
            result = run_copy(&mirror_config) => result,
            () = shutdown.received() => return,
        };
        is_synced = report(&mirror_config, result, is_synced, records);
        let interval = mirror_config
            .interval
            .max(begin.elapsed() * SCAN_DUTY_CYCLE);
        let changed = async {
            sleep(DEBOUNCE).await;
            changes.notified().await;
        };
        tokio::select! {
            () = changed => {}
            () = sleep(interval) => {}
            () = shutdown.received() => return,
        }
    }
}

/// Records the result of a copy, if it is new. Returns whether the target is in sync.
fn report(
    mirror_config: &MirrorConfig,
    report: Result<CopyReport>,
    is_synced: bool,
    records: RecordWriter,
) -> bool {
    let (export, target) = (
        mirror_config.export.clone(),
        mirror_config.target.display().to_string(),
    );
    let reason = match report {
        Ok(report) if report.failed == 0 => {
            let entries = report.copied + report.removed;
            if entries > 0 || !is_synced {
                records.write(&Record::Synced {
                    export,
                    target,
                    entries,
                    bytes: report.sent_bytes,
                    seconds: report.seconds,
                });
            }
            return true;
        }
        Ok(report) => format!("{} could not be copied", report.failed),
        Err(error) => format!("{error:#}"),
    };
    records.write(&Record::Lagging {
        export,
        target,
        reason,
    });
    false
}

/// Runs one copy. It is killed when the future is dropped.
async fn run_copy(mirror_config: &MirrorConfig) -> Result<CopyReport> {
    // A user who may write to the parent directory may have put a symbolic link in its place.
    let display = || mirror_config.directory.display().to_string();
    let root = Root::open_without_links(&mirror_config.directory).with_context(display)?;
    if let Some(deletion) = &mirror_config.deletion {
        let export = &mirror_config.export;
        export_identity::check(&deletion.state, export, &root)?;
        export_mounts::check(&deletion.state, export, &mirror_config.directory)?;
    }
    let directory = root.open_dir(None)?;
    let mut command = own_program();
    // The directory that was checked, whatever is mounted at its path by now.
    command.current_dir(format!("/proc/self/fd/{}", directory.as_raw_fd()));
    command.args(["copy", "--json", "--quiet", "--attended"]);
    if let Some(deletion) = &mirror_config.deletion {
        command.arg("--delete");
        if let Some(limit) = &deletion.max_delete {
            command.args(["--max-delete", limit]);
        }
        if let Some(time) = deletion.trash {
            command.args(["--trash", &time.exact()]);
        }
    }
    // The slash copies the contents, not the directory itself.
    command.arg("./").arg(&mirror_config.target);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command
        .kill_on_drop(true)
        .spawn()
        .context("cannot start a copy")?;
    // The copy ends when this pipe is closed.
    let _attending = child.stdin.take();
    let (out, errors) = (child.stdout.take(), child.stderr.take());
    let (output, problems) = tokio::try_join!(read_output(out), read_output(errors))?;
    child.wait().await?;
    match serde_json::from_slice(&output) {
        Ok(report) => Ok(report),
        // Its flags have other names here.
        Err(_) => bail!(
            "{}",
            last_line(&problems).replace("--max-delete", "--mirror-max-delete")
        ),
    }
}

async fn read_output(from: Option<impl AsyncRead + Unpin>) -> Result<Vec<u8>> {
    let mut from = from.context("no pipe")?;
    let mut output = Vec::new();
    (&mut from)
        .take(OUTPUT_LEN_MAX)
        .read_to_end(&mut output)
        .await?;
    tokio::io::copy(&mut from, &mut tokio::io::sink()).await?;
    Ok(output)
}

fn last_line(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    let last = text.lines().last().unwrap_or("the copy printed nothing");
    last.trim_start_matches("longhaul: ").to_owned()
}

/// Notifies mirrors of changes, by export. A notification without a waiting task is kept for the next one; several
/// are merged.
#[derive(Debug)]
pub(super) struct ChangeNotifier(BTreeMap<String, (PathBuf, Arc<Notify>)>);

impl ChangeNotifier {
    pub(super) fn new(exports: &BTreeMap<String, Export>) -> Self {
        let notify = |(name, export): (&String, &Export)| {
            (name.clone(), (export.directory.clone(), Arc::default()))
        };
        Self(exports.iter().map(notify).collect())
    }

    /// Notifies that something may have changed in an export, and in the exports that contain it or that it contains.
    pub(super) fn notify(&self, export: &str) {
        let Some((place, _)) = self.0.get(export) else {
            return;
        };
        for (directory, notify) in self.0.values() {
            if directory.starts_with(place) || place.starts_with(directory) {
                notify.notify_one();
            }
        }
    }

    /// Returns the notifications of one export, for one task.
    pub(super) fn subscribe(&self, export: &str) -> Arc<Notify> {
        let notify = self.0.get(export).map(|(_, notify)| notify.clone());
        notify.unwrap_or_default()
    }
}
