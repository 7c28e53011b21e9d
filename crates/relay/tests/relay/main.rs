// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of `longhaul relay` as a process, with real sockets, files and processes.

mod relay_access_log;
mod relay_admin;
mod relay_authentication;
mod relay_check_config;
mod relay_conformance;
mod relay_conntrack;
mod relay_dead_connections;
mod relay_dscp;
mod relay_dual_stack;
mod relay_ends;
mod relay_environment;
mod relay_error_reports;
#[cfg(feature = "ftp")]
mod relay_ftp;
#[cfg(feature = "ftp")]
mod relay_ftp_fallbacks;
mod relay_http;
mod relay_http_expect;
mod relay_http_framing;
mod relay_http_heads;
mod relay_http_idle;
mod relay_http_messages;
mod relay_http_truncation;
mod relay_icmp;
#[cfg(feature = "bpf")]
mod relay_initial_window;
mod relay_interception_input;
mod relay_interception_repair;
mod relay_kill;
mod relay_local;
mod relay_log_rotation;
mod relay_matrix;
mod relay_misconfiguration;
mod relay_name_resolution;
mod relay_namespaces;
mod relay_password_delays;
mod relay_path_mtu;
mod relay_peers;
mod relay_policy;
mod relay_profiles;
mod relay_proxy_protocol;
mod relay_refusals;
mod relay_reload;
mod relay_reply_delay;
mod relay_scanner;
mod relay_service;
mod relay_service_manager;
mod relay_socks4;
mod relay_socks5;
mod relay_striping;
mod relay_striping_http;
mod relay_tls;
mod relay_transparent;
mod relay_udt;
