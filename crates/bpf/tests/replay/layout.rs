// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where the members of a congestion control's state lie: its eBPF object's type information says.

use libbpf_rs::btf::{
    Btf,
    types::{Composite, MemberAttr, Struct},
};
use std::collections::HashMap;

/// Offset and size in bytes, by name. Both compilers lay a struct out alike.
pub(crate) struct Layout(HashMap<String, (usize, usize)>);

impl Layout {
    /// Of `struct NAME` in the object of the congestion control `object`.
    pub(crate) fn of(object: &str, name: &str) -> Self {
        let (_, elf) = bpf::object::OBJECTS
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

    fn place(&self, member: &str) -> (usize, usize) {
        *self
            .0
            .get(member)
            .unwrap_or_else(|| panic!("no member {member}"))
    }

    pub(crate) fn get(&self, state: &[u32], member: &str) -> u64 {
        let (offset, size) = self.place(member);
        let bytes: Vec<u8> = state.iter().flat_map(|word| word.to_le_bytes()).collect();
        let mut value = [0; 8];
        value[..size].copy_from_slice(&bytes[offset..offset + size]);
        u64::from_le_bytes(value)
    }

    pub(crate) fn set(&self, state: &mut [u32], member: &str, value: u64) {
        let (offset, size) = self.place(member);
        let mut bytes: Vec<u8> = state.iter().flat_map(|word| word.to_le_bytes()).collect();
        bytes[offset..offset + size].copy_from_slice(&value.to_le_bytes()[..size]);
        for (word, bytes) in state.iter_mut().zip(bytes.chunks_exact(4)) {
            *word = u32::from_le_bytes(bytes.try_into().unwrap());
        }
    }
}

/// Of an integer.
fn size_of(btf: &Btf<'_>, id: libbpf_rs::btf::TypeId) -> Option<usize> {
    let ty = btf
        .type_by_id::<libbpf_rs::btf::BtfType<'_>>(id)?
        .skip_mods_and_typedefs();
    let int = libbpf_rs::btf::types::Int::try_from(ty).ok()?;
    Some(int.bits as usize / 8)
}
