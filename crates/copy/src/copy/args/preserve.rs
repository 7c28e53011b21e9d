// SPDX-License-Identifier: MIT OR Apache-2.0
//! Flags for the metadata and special files that a copy preserves.

use longhaul_store::tree::{chmod::Chmod, preserve::Preserve};

/// Flags for the metadata and special files that a copy preserves.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct PreserveArgs {
    /// Do not copy owner and group
    #[arg(long)]
    no_owner: bool,

    /// Leave out character and block devices
    #[arg(long)]
    no_devices: bool,

    /// Leave out FIFOs
    #[arg(long)]
    no_special: bool,

    /// Leave out setuid and setgid bits, capabilities and trusted.* attributes
    #[arg(long)]
    no_privileges: bool,

    /// Keep the ACLs that the target has, and those that new entries inherit there
    #[arg(long)]
    no_acls: bool,

    /// Use --no-owner, --no-devices, --no-special and --no-privileges, for a source that is not trusted [default for a source at
    /// longhaul://SITE]
    #[arg(long)]
    safe: bool,

    /// Copy all metadata and special files, also from a source at longhaul://SITE
    #[arg(long, conflicts_with = "safe")]
    trust_source: bool,

    /// Change permissions at the target, as chmod does: D755,F644 or u=rwX,go=rX
    #[arg(long, value_name = "CHANGES")]
    chmod: Option<Chmod>,
}

impl PreserveArgs {
    /// Returns the choice. `from_site` is set if a source is at a site.
    pub(crate) fn preserve(&self, from_site: bool) -> Preserve {
        let safe = self.safe || from_site && !self.trust_source;
        Preserve {
            owner: !(safe || self.no_owner),
            devices: !(safe || self.no_devices),
            special: !(safe || self.no_special),
            privileges: !(safe || self.no_privileges),
            acls: !self.no_acls,
            chmod: self.chmod.clone().unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{Args as _, FromArgMatches as _};

    fn preserve(arguments: &[&str], from_site: bool) -> Preserve {
        let command = PreserveArgs::augment_args(clap::Command::new("copy").no_binary_name(true));
        let matches = command.try_get_matches_from(arguments).unwrap();
        PreserveArgs::from_arg_matches(&matches)
            .unwrap()
            .preserve(from_site)
    }

    #[test]
    fn sites_are_not_trusted_by_default() {
        assert_eq!(preserve(&[], false), Preserve::default());
        assert_eq!(preserve(&[], true), Preserve::untrusted());
        assert_eq!(preserve(&["--safe"], false), Preserve::untrusted());
        assert_eq!(preserve(&["--trust-source"], true), Preserve::default());
    }

    #[test]
    fn flags_leave_out_single_parts() {
        let without_owner = Preserve {
            owner: false,
            ..Preserve::default()
        };
        assert_eq!(preserve(&["--no-owner"], false), without_owner);
        assert_eq!(
            preserve(&["--no-owner", "--trust-source"], true),
            without_owner
        );
        let changed = preserve(&["--chmod", "go-w", "--no-devices"], false);
        assert!(!changed.devices && changed.special);
        assert_eq!(changed.chmod.apply(0o666, false), 0o644);
    }
}
