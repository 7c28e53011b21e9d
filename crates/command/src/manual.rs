// SPDX-License-Identifier: MIT OR Apache-2.0
//! Paths of the manual's pages. Help texts and errors use them to name a page that the user can open.

use std::{
    env,
    path::{Path, PathBuf},
};

/// Returns the path of a page: `page("relay")` is `/usr/share/doc/longhaul/relay.md` for a program in `/usr/bin`, and
/// `docs/relay.md` for a program that is not installed.
#[must_use]
pub fn page(name: &str) -> String {
    page_in(&directory(), name)
}

/// Returns the path of a page in a directory.
#[must_use]
pub fn page_in(directory: &Path, name: &str) -> String {
    let path = directory.join(name).with_extension("md");
    path.display().to_string()
}

/// Returns the directory of the pages.
#[must_use]
pub fn directory() -> PathBuf {
    let installed = env::current_exe()
        .ok()
        .and_then(|program| installed_beside(&program));
    installed.unwrap_or_else(|| PathBuf::from("docs"))
}

/// Returns the directory of the pages that `make install` or a package installed together with this program.
fn installed_beside(program: &Path) -> Option<PathBuf> {
    let prefix = program.parent()?.parent()?;
    let directory = prefix.join("share/doc/longhaul");
    directory.is_dir().then_some(directory)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn finds_the_pages_of_the_same_prefix() {
        let prefix = tempfile::tempdir().unwrap();
        let program = prefix.path().join("bin/longhaul");
        assert_eq!(installed_beside(&program), None);
        let pages = prefix.path().join("share/doc/longhaul");
        fs::create_dir_all(&pages).unwrap();
        assert_eq!(installed_beside(&program), Some(pages));
    }

    #[test]
    fn names_a_page_of_the_source_tree_for_a_program_that_is_not_installed() {
        assert_eq!(page("relay"), "docs/relay.md");
    }
}
