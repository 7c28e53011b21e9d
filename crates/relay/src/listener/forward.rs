// SPDX-License-Identifier: MIT OR Apache-2.0
//! Clients that all go to one place.

use crate::{
    listener::{Asked, Language},
    route::request::Request,
};
use longhaul_protocol::destination::Destination;

pub(super) fn ask(destination: &Destination) -> Asked {
    Asked {
        request: Request::to(destination.clone(), Vec::new()).unanswered(),
        language: Language::Tcp,
    }
}
