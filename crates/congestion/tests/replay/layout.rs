// SPDX-License-Identifier: MIT OR Apache-2.0
//! Offsets of the members of a congestion control's state, from its eBPF object's type information.

use libbpf_rs::btf::{
    Btf,
    types::{Composite, MemberAttr, Struct},
};
use std::collections::HashMap;

/// Offset and size in bytes, by name. The eBPF compiler and the host's C compiler use the same layout.
pub(crate) struct Layout(HashMap<String, (usize, usize)>);

impl Layout {
    /// Reads the layout of `struct NAME` in the object of the congestion control `object`.
    pub(crate) fn of(object: &str, name: &str) -> Self {
        let (_, elf) = longhaul_congestion::object::OBJECTS
            .iter()
            .find(|(other, _)| *other == object)
            .unwrap();
        let btf = Btf::from_raw(object, elf).unwrap().unwrap();
        let state: Struct<'_> = btf.type_by_name(name).unwrap();
        Self(
            Composite::from(state)
                .iter()
                .filter_map(|member| {
                    let MemberAttr::Normal { offset } = member.attr else {
                        return None;
                    };
                    let size = size_of(&btf, member.ty)?;
                    Some((
                        member.name?.to_str()?.to_owned(),
                        (offset as usize / 8, size),
                    ))
                })
                .collect(),
        )
    }

    /// Returns offset and size in bytes.
    pub(crate) fn range(&self, member: &str) -> (usize, usize) {
        *self
            .0
            .get(member)
            .unwrap_or_else(|| panic!("no member {member}"))
    }
}

/// Returns the number of `size` bytes at `offset` of the state.
pub(crate) fn get(state: &[u32], (offset, size): (usize, usize)) -> u64 {
    let word = |at: usize| u64::from(state[at]);
    match size {
        8 => word(offset / 4) | word(offset / 4 + 1) << 32,
        4 => word(offset / 4),
        _ => word(offset / 4) >> (8 * (offset % 4)) & 0xff,
    }
}

/// Sets the number of `size` bytes at `offset` of the state.
pub(crate) fn set(state: &mut [u32], (offset, size): (usize, usize), value: u64) {
    let at = offset / 4;
    match size {
        8 => (state[at], state[at + 1]) = (value as u32, (value >> 32) as u32),
        4 => state[at] = value as u32,
        _ => {
            let shift = 8 * (offset % 4);
            state[at] = state[at] & !(0xff << shift) | (value as u32 & 0xff) << shift;
        }
    }
}

/// Returns the size of an integer type, in bytes.
fn size_of(btf: &Btf<'_>, id: libbpf_rs::btf::TypeId) -> Option<usize> {
    let ty = btf
        .type_by_id::<libbpf_rs::btf::BtfType<'_>>(id)?
        .skip_mods_and_typedefs();
    let int = libbpf_rs::btf::types::Int::try_from(ty).ok()?;
    Some(int.bits as usize / 8)
}
