// SPDX-License-Identifier: MIT OR Apache-2.0
//! Replacement of a loaded congestion control.
#![expect(
    unsafe_code,
    reason = "libbpf-rs has no BPF_LINK_UPDATE for struct_ops"
)]

use super::{
    loaded::{LINK, Loaded, OWN_PARAMETERS, Request},
    prepare::{operations, prepare},
    register::{draft, pin_maps_and_facts},
};
use crate::{
    Error, feature_probe,
    pins::{self, Draft, Pins},
};
use libbpf_rs::{Link, Object, libbpf_sys};
use std::{
    fs, io,
    os::fd::{AsFd, AsRawFd},
    path::Path,
    ptr,
};

/// Updates the existing link with new programs, so that the name stays registered. Returns whether open
/// connections can still be watched.
pub(super) fn replace(pins: &Pins, old: &Loaded, request: Request<'_>) -> Result<bool, Error> {
    let algorithm = old.algorithm;
    if !old.directory.join(LINK).exists() {
        return Err(Error::Kernel(format!(
            "this kernel cannot replace a congestion control in its place (Linux 6.4): longhaul cc \
             unload {}, then load it anew",
            algorithm.name()
        )));
    }
    let same_layout = old.has_same_layout();
    let draft = build_replacement(pins, old, same_layout, request)?;
    // After a kill from here on, `gc` completes the replacement.
    let exchanged = pins::exchange(&draft.path, &old.directory);
    exchanged.map_err(|source| old.error(source))?;
    Ok(same_layout)
}

/// Returns the draft directory of the replacement, which is active in place of `old`.
fn build_replacement(
    pins: &Pins,
    old: &Loaded,
    same_connections: bool,
    request: Request<'_>,
) -> Result<Draft, Error> {
    let draft = draft(pins, old.algorithm)?;
    feature_probe::capture_warnings(|| {
        let connections = same_connections.then_some(old);
        let object = prepare(old.algorithm, request, connections)?.load();
        let mut object =
            object.map_err(|error| feature_probe::refused("load its programs", &error))?;
        pin_maps_and_facts(old.algorithm, &mut object, &draft)?;
        let copied = copy_pins(old, &draft, same_connections);
        copied.map_err(|source| old.error(source))?;
        update(&open_link(&old.directory)?, &mut object)
    })?;
    Ok(draft)
}

/// Pins the link in both directories, so that either is complete. Copies metadata of callers. Copies the pin of the
/// socket option if that writes to the same map.
fn copy_pins(old: &Loaded, draft: &Draft, same_connections: bool) -> io::Result<()> {
    let pin_in_draft = |pin| fs::hard_link(old.directory.join(pin), draft.path.join(pin));
    pin_in_draft(LINK)?;
    if same_connections && old.has_socket_option() {
        pin_in_draft(OWN_PARAMETERS)?;
    }
    for entry in fs::read_dir(&old.directory)? {
        let name = entry?.file_name();
        let Some(name) = name.to_str() else { continue };
        if let (Some(value), None) = (old.metadata(name), pins::metadata(&draft.path, name)) {
            pins::set_metadata(&draft.path, name, &value)?;
        }
    }
    Ok(())
}

pub(super) fn open_link(directory: &Path) -> Result<Link, Error> {
    let link = Link::open(directory.join(LINK));
    link.map_err(|error| feature_probe::failed("open its link", &error))
}

/// Updates the link (BPF_LINK_UPDATE, Linux 6.4).
fn update(link: &Link, object: &mut Object) -> Result<(), Error> {
    let mut operations = operations(object);
    // libbpf fills the map in before it registers, which fails because the name is registered.
    match operations.attach_struct_ops() {
        Err(error) if error.kind() == libbpf_rs::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(feature_probe::failed("fill in its operations", &error)),
        Ok(_) => {
            return Err(Error::NotLoaded("it was unloaded meanwhile; it".to_owned()));
        }
    }
    let (link, map) = (link.as_fd().as_raw_fd(), operations.as_fd().as_raw_fd());
    // SAFETY: two open descriptors, and no options.
    match unsafe { libbpf_sys::bpf_link_update(link, map, ptr::null()) } {
        0 => Ok(()),
        error => Err(feature_probe::failed(
            "replace it",
            &libbpf_rs::Error::from_raw_os_error(-error),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{load, loaded, test_guard::test_guard, unload, withdraw::gc};
    use super::*;
    use crate::choice;

    #[test]
    fn interrupted_replacement_is_completed_or_removed() {
        let Some((_turn, directory)) = test_guard() else {
            return;
        };
        let pins = Pins::at(directory.path());
        let scalable = crate::math::algorithm("scalable").unwrap();
        load(&pins, scalable, (&[7, 1]).into(), false).unwrap();
        let old = loaded(&pins, scalable).unwrap().unwrap();
        old.set_metadata("name", "value").unwrap();

        // A kill between the link's update and the exchange.
        let lock = pins.lock().unwrap();
        std::mem::forget(build_replacement(&pins, &old, true, (&[8, 1]).into()).unwrap());
        assert_eq!(old.parameters().unwrap(), [7, 1]);
        assert!(gc(&pins, scalable).unwrap());
        assert_eq!(old.parameters().unwrap(), [8, 1]);
        assert_eq!(old.metadata("name").as_deref(), Some("value"));
        // A kill right before the update.
        let draft = draft(&pins, scalable).unwrap();
        let mut object = prepare(scalable, (&[9, 1]).into(), Some(&old))
            .unwrap()
            .load()
            .unwrap();
        pin_maps_and_facts(scalable, &mut object, &draft).unwrap();
        copy_pins(&old, &draft, true).unwrap();
        std::mem::forget(draft);
        assert!(gc(&pins, scalable).unwrap());
        assert_eq!(old.parameters().unwrap(), [8, 1]);
        drop(lock);
        assert!(choice::is_registered("lh_scalable"));
        unload(&pins, scalable).unwrap();
        assert!(!pins.is_mounted());
    }
}
