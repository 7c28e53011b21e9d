// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of a site and its clients: copies, browsers, WebDAV, other sites.

mod corpus;
mod site_audit;
mod site_changes;
mod site_connections;
mod site_copies;
mod site_hang;
mod site_http;
mod site_http_bounds;
mod site_locks;
mod site_mirror;
mod site_namespaces;
mod site_process;
mod site_properties;
mod site_service;
mod site_suites;
mod site_uploads;
mod site_webdav;
