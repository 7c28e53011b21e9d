// SPDX-License-Identifier: MIT OR Apache-2.0
//! Trees at either end: [`scan`] finds what there is to copy, with a [`filter`] and to [`preserve`] what was asked for;
//! [`place`] makes at the destination what needs no data, and [`delete`] removes what is too much there. [`origin`] says
//! whose copy a directory is, and [`spread`] over which hosts a tree went.

pub mod chmod;
pub mod delete;
pub mod filter;
pub mod origin;
pub mod place;
pub mod preserve;
pub mod scan;
pub mod spread;
