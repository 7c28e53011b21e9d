// SPDX-License-Identifier: MIT OR Apache-2.0
//! Registration of a new congestion control. Its pins are published when they are complete.

use super::{
    loaded::{
        ACKS, LAYOUT, LINK, LOADED_BY, Loaded, MAP, OPERATIONS, PARAMETERS, Request, VERSION,
        layout_of,
    },
    prepare::{is_variables, operations, prepare},
};
use crate::{
    Error, choice, feature_probe,
    links::{self, Registration},
    math::Algorithm,
    pins::{self, Draft, Pins},
    socket_parameters::CONNECTIONS,
};
use libbpf_rs::{MapCore, Object};
use std::path::PathBuf;

pub(super) fn load_new(
    pins: &Pins,
    algorithm: Algorithm,
    request: Request<'_>,
) -> Result<Loaded, Error> {
    let name = algorithm.system_name();
    if choice::is_registered(&name) {
        return Err(Error::Taken(name, pins.directory()));
    }
    let directory = pins.directory_of(algorithm.name());
    let draft = draft(pins, algorithm)?;
    feature_probe::capture_warnings(|| register(algorithm, request, &draft, pins))?;
    let published = draft.publish(&directory);
    published.map_err(|source| pins.error(&directory, source))?;
    Ok(Loaded {
        algorithm,
        directory,
    })
}

pub(super) fn draft(pins: &Pins, algorithm: Algorithm) -> Result<Draft, Error> {
    let path = draft_path(pins, algorithm);
    Draft::new(path.clone()).map_err(|source| pins.error(&path, source))
}

pub(super) fn draft_path(pins: &Pins, algorithm: Algorithm) -> PathBuf {
    pins.directory_of(&format!("new-{}", algorithm.name()))
}

/// Registers a congestion control: with a link, or with its map alone. Linux before 6.4 has no struct_ops links.
fn register(
    algorithm: Algorithm,
    request: Request<'_>,
    draft: &Draft,
    pins: &Pins,
) -> Result<(), Error> {
    let (mut object, registration) = links::load(|| prepare(algorithm, request, None))?;
    if registration == Registration::Map {
        return register_by_map(algorithm, object, draft, pins);
    }
    pin_maps_and_facts(algorithm, &mut object, draft)?;
    let attached = operations(&mut object).attach_struct_ops();
    let mut link = attached.map_err(|error| registration_error(algorithm, pins, &error))?;
    let pinned = link.pin(draft.path.join(LINK));
    pinned.map_err(|error| feature_probe::failed("pin its link", &error))
}

fn register_by_map(
    algorithm: Algorithm,
    mut object: Object,
    draft: &Draft,
    pins: &Pins,
) -> Result<(), Error> {
    pin_maps_and_facts(algorithm, &mut object, draft)?;
    // The pin comes first: a registered map without a pin would stay registered and could not be found.
    let pinned = operations(&mut object).pin(draft.path.join(OPERATIONS));
    pinned.map_err(|error| feature_probe::failed("pin its map", &error))?;
    let attached = operations(&mut object).attach_struct_ops();
    let mut link = attached.map_err(|error| registration_error(algorithm, pins, &error))?;
    link.disconnect();
    Ok(())
}

fn registration_error(algorithm: Algorithm, pins: &Pins, error: &libbpf_rs::Error) -> Error {
    match error.kind() {
        libbpf_rs::ErrorKind::AlreadyExists => {
            Error::Taken(algorithm.system_name(), pins.directory())
        }
        _ => feature_probe::failed("register it", error),
    }
}

/// Pins the maps and stores the metadata. The caller adds the pin that keeps the congestion control registered.
pub(super) fn pin_maps_and_facts(
    algorithm: Algorithm,
    object: &mut Object,
    draft: &Draft,
) -> Result<(), Error> {
    let map = operations(object).info();
    let map = map.map_err(|error| feature_probe::failed("ask about its map", &error))?;
    for mut map in object.maps_mut() {
        let pin = match map.name() {
            name if name == CONNECTIONS => CONNECTIONS,
            name if name == ACKS && map.autocreate() => ACKS,
            name if is_variables(name) => PARAMETERS,
            _ => continue,
        };
        let pinned = map.pin(draft.path.join(pin));
        pinned.map_err(|error| feature_probe::failed("pin its maps", &error))?;
    }
    let metadata = [
        (LAYOUT, layout_of(algorithm)),
        (LOADED_BY, VERSION.to_owned()),
        (MAP, map.info.id.to_string()),
    ];
    for (name, value) in metadata {
        let stored = pins::set_metadata(&draft.path, name, &value);
        stored.map_err(|reason| Error::Pins {
            path: draft.path.join(name),
            reason,
        })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::{load, loaded, test_guard::test_guard, unload, withdraw::gc};
    use super::*;

    /// Kernels before Linux 6.4 have no links.
    #[test]
    fn map_keeps_a_congestion_control_registered_without_links() {
        let Some((_turn, directory)) = test_guard() else {
            return;
        };
        let pins = Pins::at(directory.path());
        let scalable = crate::math::algorithm("scalable").unwrap();
        let lock = pins.lock().unwrap();
        let interrupted = draft(&pins, scalable).unwrap();
        let register = |draft: &Draft| {
            let mut object = prepare(scalable, (&[7, 1]).into(), None).unwrap();
            links::unlink(&mut object).unwrap();
            register_by_map(scalable, object.load().unwrap(), draft, &pins).unwrap();
        };
        register(&interrupted);
        std::mem::forget(interrupted);
        assert!(choice::is_registered("lh_scalable"));
        assert!(gc(&pins, scalable).unwrap());
        assert!(!choice::is_registered("lh_scalable"));

        let complete = draft(&pins, scalable).unwrap();
        register(&complete);
        complete.publish(&pins.directory_of("scalable")).unwrap();
        let loaded = loaded(&pins, scalable).unwrap().unwrap();
        assert_eq!(loaded.parameters().unwrap(), [7, 1]);
        drop(lock);
        let replaced = load(&pins, scalable, (&[8, 1]).into(), true);
        assert!(
            replaced
                .unwrap_err()
                .to_string()
                .contains("unload scalable")
        );
        unload(&pins, scalable).unwrap();
        assert!(!choice::is_registered("lh_scalable"));
    }
}
