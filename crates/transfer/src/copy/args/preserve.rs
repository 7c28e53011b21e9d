// SPDX-License-Identifier: MIT OR Apache-2.0
//! Flags that say what a copy takes over besides data and names.

use longhaul_store::tree::{chmod::Chmod, preserve::Preserve};

/// What a copy takes over besides data and names.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct PreserveArgs {
    /// Leave owner and group as the target makes them
    #[arg(long)]
    no_owner: bool,

    /// Leave character and block devices out
    #[arg(long)]
    no_devices: bool,

    /// Leave fifos out
    #[arg(long)]
    no_special: bool,

    /// Leave set-id bits, capabilities and trusted.* attributes out
    #[arg(long)]
    no_privileges: bool,

    /// All four of these: for a source that is not trusted [default for a source at longhaul://SITE]
    #[arg(long)]
    safe: bool,

    /// Take everything from a source at longhaul://SITE, too
    #[arg(long, conflicts_with = "safe")]
    trust_source: bool,

    /// Change permissions at the target, as chmod does: D755,F644 or u=rwX,go=rX
    #[arg(long, value_name = "CHANGES")]
    chmod: Option<Chmod>,
}

impl PreserveArgs {
    /// `from_site`: a site sends it.
    pub(crate) fn preserve(&self, from_site: bool) -> Preserve {
        let safe = self.safe || from_site && !self.trust_source;
        Preserve {
            owner: !(safe || self.no_owner),
            devices: !(safe || self.no_devices),
            special: !(safe || self.no_special),
            privileges: !(safe || self.no_privileges),
            chmod: self.chmod.clone().unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{Args as _, FromArgMatches as _};

    fn preserve(arguments: &[&str], of_site: bool) -> Preserve {
        let command = PreserveArgs::augment_args(clap::Command::new("copy").no_binary_name(true));
        let matches = command.try_get_matches_from(arguments).unwrap();
        PreserveArgs::from_arg_matches(&matches)
            .unwrap()
            .preserve(of_site)
    }

    #[test]
    fn sites_are_not_trusted_unless_told() {
        assert_eq!(preserve(&[], false), Preserve::default());
        assert_eq!(preserve(&[], true), Preserve::safe());
        assert_eq!(preserve(&["--safe"], false), Preserve::safe());
        assert_eq!(preserve(&["--trust-source"], true), Preserve::default());
    }

    #[test]
    fn each_part_can_be_left_out() {
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
