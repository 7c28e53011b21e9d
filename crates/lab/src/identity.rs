// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which lab a result or an unfinished run is of: only the same one goes on, or stands for another.

use super::book::Book;
use anyhow::Result;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// What a lab is.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Identity {
    pub(super) scenario: String,
    /// SHA-256 of all cells with everything that the command line chose, in their order.
    pub(crate) digest: String,
    pub(super) seed: u64,
    pub(crate) longhaul: String,
    /// Kernel and CPUs: medians over two machines say nothing.
    pub(super) machine: String,
}

impl Identity {
    /// Of a lab on a machine with this kernel and so many CPUs.
    pub(crate) fn of(book: &Book, kernel: &str, cpus: usize) -> Result<Self> {
        Ok(Self {
            scenario: book.name.clone(),
            digest: digest(book)?,
            seed: book.base.seed,
            longhaul: longhaul_command::version().to_owned(),
            machine: format!("Linux {kernel}, {cpus} CPUs"),
        })
    }

    /// In what `other` differs, in words.
    pub(super) fn difference(&self, other: &Self) -> Option<String> {
        let parts = [
            ("scenario", &self.scenario, &other.scenario),
            ("version", &self.longhaul, &other.longhaul),
            ("machine", &self.machine, &other.machine),
            ("seed", &self.seed.to_string(), &other.seed.to_string()),
        ]
        .map(|(what, ours, theirs)| {
            (ours != theirs).then(|| format!("its {what} is {theirs}, not {ours}"))
        });
        let digest = (self.digest != other.digest).then(|| {
            "its scenario, or what the command line chose of it, reads differently".to_owned()
        });
        parts.into_iter().flatten().next().or(digest)
    }
}

/// SHA-256 of all that decides what is run: cells, order, repetitions.
pub(crate) fn digest(book: &Book) -> Result<String> {
    let base = &book.base;
    let mut digest = Sha256::new();
    digest.update(serde_json::to_vec(&(
        base.repetitions,
        base.warmup,
        base.order,
        book.quick,
    ))?);
    for cell in &book.cells {
        digest.update(serde_json::to_vec(&(
            &cell.vary,
            &cell.scenario,
            &cell.short,
        ))?);
    }
    Ok(digest
        .finalize()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect())
}
