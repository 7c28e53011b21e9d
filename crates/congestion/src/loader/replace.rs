// SPDX-License-Identifier: MIT OR Apache-2.0
//! A congestion control in the place of one that is at work.
#![expect(
    unsafe_code,
    reason = "libbpf-rs has no BPF_LINK_UPDATE for struct_ops"
)]

use super::{
    loaded::{LINK, Loaded, OWN_PARAMETERS, Request},
    prepare::{operations, prepare},
    register::{draft, write_down},
};
use crate::{
    Error, kernel,
    pins::{self, Draft, Pins},
};
use libbpf_rs::{Link, Object, libbpf_sys};
use std::{
    fs, io,
    os::fd::{AsFd, AsRawFd},
    path::Path,
    ptr,
};

/// Puts a new program behind the link that is there, so that the name is never missing. Whether open
/// connections can still be watched.
pub(super) fn take_over(pins: &Pins, old: &Loaded, request: Request<'_>) -> Result<bool, Error> {
    let algorithm = old.algorithm;
    if !old.directory.join(LINK).exists() {
        return Err(Error::Kernel(format!(
            "this kernel cannot replace a congestion control in its place (Linux 6.4): longhaul cc \
             unload {}, then load it anew",
            algorithm.name()
        )));
    }
    let keep = old.is_legible();
    let draft = successor(pins, old, keep, request)?;
    // From here on a kill is put right by `sweep`, forwards.
    let exchanged = pins::exchange(&draft.path, &old.directory);
    exchanged.map_err(|source| old.error(source))?;
    Ok(keep)
}

/// The directory of one that is at work already, in place of `old`.
fn successor(
    pins: &Pins,
    old: &Loaded,
    same_connections: bool,
    request: Request<'_>,
) -> Result<Draft, Error> {
    let draft = draft(pins, old.algorithm)?;
    kernel::quietly(|| {
        let connections = same_connections.then_some(old);
        let object = prepare(old.algorithm, request, connections)?.load();
        let mut object = object.map_err(|error| kernel::refused("load its programs", &error))?;
        write_down(old.algorithm, &mut object, &draft)?;
        let carried = carry_over(old, &draft, same_connections);
        carried.map_err(|source| old.error(source))?;
        update(&open_link(&old.directory)?, &mut object)
    })?;
    Ok(draft)
}

/// One link under two names, so that either directory is complete. Facts of callers stay, and the
/// socket option where it writes to the same map.
fn carry_over(old: &Loaded, draft: &Draft, same_connections: bool) -> io::Result<()> {
    let twice = |pin| fs::hard_link(old.directory.join(pin), draft.path.join(pin));
    twice(LINK)?;
    if same_connections && old.serves() {
        twice(OWN_PARAMETERS)?;
    }
    for entry in fs::read_dir(&old.directory)? {
        let name = entry?.file_name();
        let Some(fact) = name.to_str() else { continue };
        if let (Some(word), None) = (old.noted(fact), pins::noted(&draft.path, fact)) {
            pins::note(&draft.path, fact, &word)?;
        }
    }
    Ok(())
}

pub(super) fn open_link(directory: &Path) -> Result<Link, Error> {
    let link = Link::open(directory.join(LINK));
    link.map_err(|error| kernel::failed("open its link", &error))
}

/// BPF_LINK_UPDATE, from Linux 6.4 on.
fn update(link: &Link, object: &mut Object) -> Result<(), Error> {
    let mut operations = operations(object);
    // libbpf fills the map in on the way to a registration, which the name, being ours, prevents.
    match operations.attach_struct_ops() {
        Err(error) if error.kind() == libbpf_rs::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(kernel::failed("fill in its operations", &error)),
        Ok(_) => {
            return Err(Error::NotLoaded("it went away meanwhile; it".to_owned()));
        }
    }
    let (link, map) = (link.as_fd().as_raw_fd(), operations.as_fd().as_raw_fd());
    // SAFETY: two open descriptors, and no options.
    match unsafe { libbpf_sys::bpf_link_update(link, map, ptr::null()) } {
        0 => Ok(()),
        error => Err(kernel::failed(
            "replace it",
            &libbpf_rs::Error::from_raw_os_error(-error),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{load, loaded, place::place, unload, withdraw::sweep};
    use super::*;

    #[test]
    fn a_replacement_that_was_cut_short_is_finished_or_forgotten() {
        let Some((_turn, directory)) = place() else {
            return;
        };
        let pins = Pins::at(directory.path());
        let scalable = crate::math::algorithm("scalable").unwrap();
        load(&pins, scalable, (&[7, 1]).into(), false).unwrap();
        let old = loaded(&pins, scalable).unwrap().unwrap();
        old.note("fact", "word").unwrap();

        // Killed between the link's update and the exchange.
        let lock = pins.lock().unwrap();
        std::mem::forget(successor(&pins, &old, true, (&[8, 1]).into()).unwrap());
        assert_eq!(old.parameters().unwrap(), [7, 1]);
        assert!(sweep(&pins, scalable).unwrap());
        assert_eq!(old.parameters().unwrap(), [8, 1]);
        assert_eq!(old.noted("fact").as_deref(), Some("word"));
        // And right before the update.
        let draft = draft(&pins, scalable).unwrap();
        let mut object = prepare(scalable, (&[9, 1]).into(), Some(&old))
            .unwrap()
            .load()
            .unwrap();
        write_down(scalable, &mut object, &draft).unwrap();
        carry_over(&old, &draft, true).unwrap();
        std::mem::forget(draft);
        assert!(sweep(&pins, scalable).unwrap());
        assert_eq!(old.parameters().unwrap(), [8, 1]);
        drop(lock);
        assert!(kernel::is_registered("lh_scalable"));
        unload(&pins, scalable).unwrap();
        assert!(!pins.is_mounted());
    }
}
