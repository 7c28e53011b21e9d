// SPDX-License-Identifier: MIT OR Apache-2.0
//! nginx and vsftpd, which serve files from memory. vsftpd also receives them. vsftpd runs as the lab's own user, because a
//! user namespace has no other user.

use super::daemon::Daemon;
use crate::network::{
    SenderOptions,
    sockets::{FTP, web_port},
};
use anyhow::{Context, Result};
use longhaul_linux::{netns::Netns, programs, socket};
use rustix::io::{FdFlags, fcntl_setfd};
use std::{
    fs,
    net::{Ipv4Addr, TcpListener},
    os::fd::AsRawFd,
    path::Path,
};

/// Starts nginx on every address of `netns`, serving `files` on one port for each set of sender
/// options; ready on return.
pub(crate) async fn start_nginx(
    netns: &Netns,
    files: &Path,
    option_sets: &[SenderOptions],
    directory: &Path,
) -> Result<Daemon> {
    let host = netns.name().unwrap_or("host");
    let configuration = directory.join(format!("nginx-{host}.conf"));
    let scratch = Path::new("/run").join(format!("nginx-{host}"));
    fs::create_dir_all(&scratch).with_context(|| format!("cannot create {}", scratch.display()))?;
    fs::write(
        &configuration,
        nginx_config(files, &scratch, option_sets.len()),
    )?;
    let sockets = netns.run(|| listeners(option_sets))?;
    let mut command = programs::command("nginx");
    command
        .arg("-c")
        .arg(fs::canonicalize(&configuration)?)
        .arg("-e")
        .arg("stderr")
        .env("NGINX", inherited_sockets(&sockets)?);
    let mut daemon = Daemon::start(&format!("nginx-{host}"), command, netns, directory)?;
    drop(sockets);
    for number in 0..option_sets.len() {
        daemon.wait_until_listening(netns, web_port(number)).await?;
    }
    Ok(daemon)
}

/// Creates listening sockets with the sender options, which their connections inherit. nginx has no
/// settings for them.
fn listeners(option_sets: &[SenderOptions]) -> std::io::Result<Vec<TcpListener>> {
    let special = option_sets.iter().enumerate();
    let special =
        special.filter(|(_, sender_options)| **sender_options != SenderOptions::default());
    let listen = |(number, sender_options): (usize, &SenderOptions)| {
        let address = (Ipv4Addr::UNSPECIFIED, web_port(number)).into();
        socket::listen(address, 1, &sender_options.options())
    };
    let sockets: Result<Vec<_>, _> = special.map(listen).collect();
    Ok(sockets?.into_iter().flatten().collect())
}

/// Passes listening sockets to nginx. It takes over the descriptors in this variable, as when its
/// program is replaced while it runs ("Upgrading Executable on the Fly" of its manual). They stay
/// open across exec.
fn inherited_sockets(sockets: &[TcpListener]) -> std::io::Result<String> {
    let mut numbers = String::new();
    for socket in sockets {
        fcntl_setfd(socket, FdFlags::empty())?;
        numbers.push_str(&format!("{};", socket.as_raw_fd()));
    }
    Ok(numbers)
}

/// Writes the configuration: one worker and no access log, as an operator would serve one big file.
/// `user root` because a user namespace has no other user; `tcp_nopush` fills segments under
/// sendfile.
fn nginx_config(files: &Path, scratch: &Path, ports: usize) -> String {
    let (files, scratch) = (files.display(), scratch.display());
    let ports: String = (0..ports)
        .map(|number| format!("listen {}; ", web_port(number)))
        .collect();
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
           server {{ {ports}root \"{files}\"; }}\n\
         }}\n"
    )
}

/// Starts vsftpd on every address of `netns`, serving `files`; ready on return.
pub(crate) async fn start_vsftpd(netns: &Netns, files: &Path, directory: &Path) -> Result<Daemon> {
    let host = netns.name().unwrap_or("host");
    let configuration = directory.join(format!("vsftpd-{host}.conf"));
    let scratch = Path::new("/run").join(format!("vsftpd-{host}"));
    fs::create_dir_all(&scratch).with_context(|| format!("cannot create {}", scratch.display()))?;
    fs::write(&configuration, vsftpd_config(files, &scratch))?;
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
fn vsftpd_config(files: &Path, scratch: &Path) -> String {
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
