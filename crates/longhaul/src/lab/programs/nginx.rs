// SPDX-License-Identifier: MIT OR Apache-2.0
//! nginx, serving files from memory.

use super::daemon::Daemon;
use anyhow::{Context, Result};
use host::netns::Netns;
use std::{fs, path::Path, process::Command};

/// Where it listens.
pub(crate) const PORT: u16 = 80;

/// Starts nginx on every address of `netns`, serving `files`; ready on return.
pub(crate) async fn start(netns: &Netns, files: &Path, directory: &Path) -> Result<Daemon> {
    let host = netns.name().unwrap_or("host");
    let configuration = directory.join(format!("nginx-{host}.conf"));
    let scratch = Path::new("/run").join(format!("nginx-{host}"));
    fs::create_dir_all(&scratch).with_context(|| format!("cannot create {}", scratch.display()))?;
    fs::write(&configuration, text(files, &scratch))?;
    let mut command = Command::new("nginx");
    command
        .arg("-c")
        .arg(fs::canonicalize(&configuration)?)
        .arg("-e")
        .arg("stderr");
    let mut daemon = Daemon::start(&format!("nginx-{host}"), command, netns, directory)?;
    daemon.listening(netns, PORT).await?;
    Ok(daemon)
}

/// One worker, no access log: what an operator would set to serve one big file fast. `user root`
/// because no other user exists in a user namespace; `tcp_nopush` fills segments under sendfile.
fn text(files: &Path, scratch: &Path) -> String {
    let (files, scratch) = (files.display(), scratch.display());
    format!(
        "daemon off;\n\
         user root;\n\
         worker_processes 1;\n\
         pid \"{scratch}/pid\";\n\
         error_log stderr;\n\
         events {{ worker_connections 256; }}\n\
         http {{\n\
           access_log off;\n\
           sendfile on;\n\
           sendfile_max_chunk 2m;\n\
           tcp_nopush on;\n\
           client_body_temp_path \"{scratch}/body\";\n\
           proxy_temp_path \"{scratch}/proxy\";\n\
           fastcgi_temp_path \"{scratch}/fastcgi\";\n\
           uwsgi_temp_path \"{scratch}/uwsgi\";\n\
           scgi_temp_path \"{scratch}/scgi\";\n\
           server {{ listen {PORT}; root \"{files}\"; }}\n\
         }}\n"
    )
}
