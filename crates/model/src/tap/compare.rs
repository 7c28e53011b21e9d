// SPDX-License-Identifier: MIT OR Apache-2.0
//! Two directions side by side (`longhaul tap diff`).
