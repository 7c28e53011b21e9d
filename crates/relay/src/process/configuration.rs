// SPDX-License-Identifier: MIT OR Apache-2.0
//! The configuration of a relay: read, checked, and tried out on this system, before anything is opened.

use crate::{
    args::Args,
    config::{
        Config,
        file::{self, File},
        settings::Settings,
    },
    leg::profile,
};

/// The configuration that the file, if one is named, and the flags come to.
pub(crate) fn configuration(args: &Args) -> anyhow::Result<Config> {
    read(args).map(|(config, ..)| config)
}

/// The same, with what it was made of.
pub(crate) fn read(args: &Args) -> anyhow::Result<(Config, Settings, Option<File>)> {
    let (config, settings, file) = args.read()?;
    profile::try_out(&config.profiles).map_err(|error| file::locate(error, file.as_ref()))?;
    Ok((config, settings, file))
}

#[cfg(test)]
mod tests {
    #[test]
    fn what_this_system_lacks_is_refused() {
        let flags = ["--socks5", "127.0.0.1:0", "--cc-far", "no-such"].map(str::to_owned);
        let refusal = crate::check(&flags).unwrap_err().to_string();
        assert!(refusal.contains("there are: "), "{refusal}");
    }
}
