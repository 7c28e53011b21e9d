// SPDX-License-Identifier: MIT OR Apache-2.0
//! TUN devices with vnet_hdr.
