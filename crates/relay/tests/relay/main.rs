// SPDX-License-Identifier: MIT OR Apache-2.0
//! The binary and its commands of this crate, with real sockets, files and processes.

mod relay_admin;
mod relay_check_config;
mod relay_conformance;
mod relay_disagreement;
mod relay_ends;
mod relay_faults;
mod relay_ftp;
mod relay_heads;
mod relay_http;
mod relay_icmp;
mod relay_initial_window;
mod relay_kill;
mod relay_local;
mod relay_log_rotation;
mod relay_matrix;
mod relay_names;
mod relay_namespaces;
mod relay_passwords;
mod relay_path_mtu;
mod relay_patience;
mod relay_peers;
mod relay_policy;
mod relay_profiles;
mod relay_proxy_protocol;
mod relay_refusals;
mod relay_reload;
mod relay_restored;
mod relay_service;
mod relay_service_manager;
mod relay_socks5;
mod relay_striping;
mod relay_tls;
mod relay_transparent;
mod relay_udt;
mod relay_vanished;
