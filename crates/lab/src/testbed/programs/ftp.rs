// SPDX-License-Identifier: MIT OR Apache-2.0
//! vsftpd, serving and receiving files in memory. It runs as the lab's own user, because a user
//! namespace has no other user.

use super::daemon::Daemon;
use crate::network::ports::FTP;
use anyhow::{Context, Result};
use longhaul_linux::{netns::Netns, programs};
use std::{fs, path::Path};

/// Starts vsftpd on every address of `netns`, serving `files`; ready on return.
pub(crate) async fn start(netns: &Netns, files: &Path, directory: &Path) -> Result<Daemon> {
    let host = netns.name().unwrap_or("host");
    let configuration = directory.join(format!("vsftpd-{host}.conf"));
    let scratch = Path::new("/run").join(format!("vsftpd-{host}"));
    fs::create_dir_all(&scratch).with_context(|| format!("cannot create {}", scratch.display()))?;
    fs::write(&configuration, text(files, &scratch))?;
    let mut command = programs::command("vsftpd");
    command.arg(fs::canonicalize(&configuration)?);
    let mut daemon = Daemon::start(&format!("vsftpd-{host}"), command, netns, directory)?;
    daemon.wait_until_listening(netns, FTP).await?;
    Ok(daemon)
}

/// Writes the configuration. Any client may read and write, since all belong to the lab.
///
/// `pasv_promiscuous` and `port_promiscuous` allow a relay's control and data connections from
/// different addresses. `seccomp_sandbox` is off because it kills a session on kernels with system
/// calls that it does not know.
fn text(files: &Path, scratch: &Path) -> String {
    let (files, scratch) = (files.display(), scratch.display());
    format!(
        "listen=YES\n\
         listen_port={FTP}\n\
         background=NO\n\
         run_as_launching_user=YES\n\
         seccomp_sandbox=NO\n\
         secure_chroot_dir={scratch}\n\
         anonymous_enable=YES\n\
         ftp_username=root\n\
         no_anon_password=YES\n\
         anon_root={files}\n\
         anon_world_readable_only=NO\n\
         write_enable=YES\n\
         anon_upload_enable=YES\n\
         anon_other_write_enable=YES\n\
         connect_from_port_20=NO\n\
         pasv_promiscuous=YES\n\
         port_promiscuous=YES\n\
         use_sendfile=YES\n\
         xferlog_enable=NO\n"
    )
}
