// SPDX-License-Identifier: MIT OR Apache-2.0
//! Preparation of a congestion control's object for loading.

use super::loaded::{ACKS, Loaded, Request};
use crate::{
    Error, feature_probe,
    math::{Algorithm, words},
    object, socket_parameters,
};
use libbpf_rs::{MapCore, MapMut, MapType, Object, ObjectBuilder, OpenObject};
use std::os::fd::AsFd;

/// Returns the object with its parameters set, and with the map of connections of `old`.
pub(crate) fn prepare(
    algorithm: Algorithm,
    request: Request<'_>,
    old: Option<&Loaded>,
) -> Result<OpenObject, Error> {
    let bytes = object::of(algorithm).ok_or_else(|| Error::Failed {
        step: "find its program",
        reason: format!("{} has none in this build", algorithm.name()),
    })?;
    let object = ObjectBuilder::default().open_memory(bytes);
    let mut object = object.map_err(|error| feature_probe::failed("open its program", &error))?;
    set_parameters(algorithm, request.parameters, &mut object)?;
    if !request.count_acks {
        disable_ack_counts(&mut object);
    }
    if let Some(old) = old {
        socket_parameters::share_connections(old.connections()?.as_fd(), &mut object)?;
    }
    Ok(object)
}

/// Sets the parameters. `params` is the only variable of an object; it is recognized by the defaults in it.
fn set_parameters(
    algorithm: Algorithm,
    parameters: &[u32],
    object: &mut OpenObject,
) -> Result<(), Error> {
    let defaults = crate::math::parameters::defaults(algorithm);
    if defaults.is_empty() {
        return Ok(());
    }
    let mut maps = object.maps_mut();
    let variables = maps.find(|map| is_variables(map.name()));
    let mut variables = variables.ok_or_else(no_parameters)?;
    let bytes = variables.initial_value_mut().ok_or_else(no_parameters)?;
    if !words(bytes).take(defaults.len()).eq(defaults) {
        return Err(no_parameters());
    }
    let values = parameters.iter().flat_map(|value| value.to_ne_bytes());
    bytes
        .iter_mut()
        .zip(values)
        .for_each(|(to, from)| *to = from);
    Ok(())
}

/// Whether the map contains the variables, which are in `.bss` if all are zero.
pub(super) fn is_variables(map: &std::ffi::OsStr) -> bool {
    let name = map.to_string_lossy();
    name.ends_with(".data") || name.ends_with(".bss")
}

fn no_parameters() -> Error {
    Error::Failed {
        step: "set its parameters",
        reason: "its program does not begin its variables with them".to_owned(),
    }
}

/// Offset of `in_ack_event` in `struct tcp_congestion_ops` of kernel.h.
const IN_ACK_EVENT: std::ops::Range<usize> = 32..40;

/// Removes the operation that counts ACKs, its program and the map of counts.
fn disable_ack_counts(object: &mut OpenObject) {
    for mut map in object.maps_mut() {
        if map.name() == ACKS {
            map.set_autocreate(false).expect("it is not loaded yet");
        } else if map.map_type() == MapType::StructOps {
            let operations = map.initial_value_mut().expect("congestion_ops.h has it");
            operations[IN_ACK_EVENT].fill(0);
        }
    }
}

/// Offset of `name` in `struct tcp_congestion_ops` of kernel.h.
const NAME: std::ops::Range<usize> = 80..96;

/// Sets another name, which is shorter than the field.
pub(super) fn rename(object: &mut OpenObject, name: &str) -> Result<(), Error> {
    let mut maps = object.maps_mut();
    let map = maps.find(|map| map.map_type() == MapType::StructOps);
    let mut map = map.expect("congestion_ops.h has it");
    let field = map
        .initial_value_mut()
        .and_then(|value| value.get_mut(NAME));
    let field = field.filter(|field| field.starts_with(b"lh_") && name.len() < field.len());
    let field = field.ok_or_else(|| Error::Failed {
        step: "name it",
        reason: format!("its operations have no room for {name:?}"),
    })?;
    field.fill(0);
    field[..name.len()].copy_from_slice(name.as_bytes());
    Ok(())
}

pub(super) fn operations(object: &mut Object) -> MapMut<'_> {
    let map = object
        .maps_mut()
        .find(|map| map.map_type() == MapType::StructOps);
    map.expect("congestion_ops.h has it")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::algorithms;

    #[test]
    fn prepares_the_object_of_every_algorithm() {
        for algorithm in algorithms() {
            let values = crate::math::parameters::defaults(algorithm);
            assert!(
                prepare(algorithm, (&values).into(), None).is_ok(),
                "{algorithm:?}"
            );
            assert!(
                algorithm.parameters().count() <= socket_parameters::MAX,
                "lh_connection has room for seven"
            );
        }
    }
}
