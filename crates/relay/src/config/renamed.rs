// SPDX-License-Identifier: MIT OR Apache-2.0
//! Old names of keys and profiles in configuration files. They work for one version, with a warning.

use longhaul_command::deprecated::{self, RenamedKey};
use toml::de::{DeTable, DeValue};

/// Old names of the default profiles.
const RENAMED: [RenamedKey; 2] = [
    RenamedKey {
        table: "profile",
        old: "near",
        new: "downstream",
    },
    RenamedKey {
        table: "profile",
        old: "far",
        new: "upstream",
    },
];

/// Arrays of tables and tables whose key `profile` names a profile.
const USERS: [&str; 3] = ["listener", "peer", "route"];

/// Old name in a file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct OldName {
    /// Byte offset.
    pub(crate) at: usize,
    pub(crate) old: String,
    pub(crate) new: String,
}

/// Replaces the old names in a file and returns them. A profile `near` beside `downstream` is one of the user's own.
pub(crate) fn rename(file: &mut DeTable<'_>) -> Vec<OldName> {
    let keys = deprecated::rename_keys(file, &RENAMED).into_iter();
    let mut found: Vec<_> = keys
        .map(|key| OldName {
            at: key.offset,
            old: format!("{}.{}", key.rename.table, key.rename.old),
            new: format!("{}.{}", key.rename.table, key.rename.new),
        })
        .collect();
    let own = |name: &str| {
        let profiles = file
            .get("profile")
            .and_then(|table| table.get_ref().get(name));
        profiles.is_some()
    };
    let renamed: Vec<_> = RENAMED.into_iter().filter(|key| !own(key.old)).collect();
    for (_, users) in file
        .iter_mut()
        .filter(|(key, _)| USERS.contains(&key.get_ref().as_ref()))
    {
        match users.get_mut() {
            DeValue::Array(tables) => {
                for table in tables.iter_mut() {
                    found.extend(rename_reference(table.get_mut(), &renamed));
                }
            }
            DeValue::Table(tables) => {
                for (_, table) in tables.iter_mut() {
                    found.extend(rename_reference(table.get_mut(), &renamed));
                }
            }
            _ => {}
        }
    }
    found
}

/// Replaces the value of `profile` in a listener, peer or route.
fn rename_reference(table: &mut DeValue<'_>, renamed: &[RenamedKey]) -> Option<OldName> {
    let DeValue::Table(table) = table else {
        return None;
    };
    let value = table.get_mut("profile")?;
    let at = value.span().start;
    let DeValue::String(name) = value.get_mut() else {
        return None;
    };
    let renamed = renamed.iter().find(|key| key.old == *name)?;
    *name = renamed.new.into();
    Some(OldName {
        at,
        old: format!("profile {:?}", renamed.old),
        new: format!("profile {:?}", renamed.new),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> (Vec<(usize, String)>, String) {
        let mut file = DeTable::parse(text).unwrap().into_inner();
        let found = rename(&mut file);
        let found = found.into_iter().map(|name| (name.at, name.new)).collect();
        (found, format!("{file:?}"))
    }

    #[test]
    fn renames_default_profiles_and_their_uses() {
        let text = "[profile.near]\nmss = 1000\n[[listener]]\nprofile = 'near'\n[peer.far]\nprofile = 'far'\n";
        let (found, file) = names(text);
        let at = |part| text.find(part).unwrap();
        assert_eq!(
            found,
            [
                (at("near]"), "profile.downstream".to_owned()),
                (at("'near'"), "profile \"downstream\"".to_owned()),
                (at("'far'"), "profile \"upstream\"".to_owned()),
            ]
        );
        assert!(
            file.contains("downstream") && !file.contains("\"near\""),
            "{file}"
        );
    }

    #[test]
    fn leaves_users_own_profile_of_old_name() {
        let text = "[profile]\ndownstream = {}\nnear = {}\n[[listener]]\nprofile = 'near'\n";
        assert_eq!(names(text).0, []);
    }
}
