// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which lab a result or an unfinished run is of: only the same one goes on, or stands for another.

use crate::book::Book;
use anyhow::Result;
use longhaul_results::identity::Identity;
use sha2::{Digest, Sha256};

/// The identity of a lab on a machine with this kernel and so many CPUs.
pub(crate) fn identity(book: &Book, kernel: &str, cpus: usize) -> Result<Identity> {
    Ok(Identity {
        scenario: book.name.clone(),
        digest: digest(book)?,
        seed: book.base.seed,
        longhaul: longhaul_command::version().to_owned(),
        machine: format!("Linux {kernel}, {cpus} CPUs"),
    })
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
