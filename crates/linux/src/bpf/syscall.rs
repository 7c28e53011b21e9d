// SPDX-License-Identifier: MIT OR Apache-2.0
//! bpf(2): the commands that a program for a cgroup's sockets needs. Each has the first members of
//! its part of `union bpf_attr` (include/uapi/linux/bpf.h); the kernel takes the others as zero.

use super::instruction::Instruction;
use std::{
    io,
    os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd},
};

/// `enum bpf_cmd`
#[derive(Debug, Clone, Copy)]
#[repr(i32)]
enum Command {
    MapCreate = 0,
    MapUpdateElem = 2,
    ProgLoad = 5,
    ProgQuery = 16,
    BtfLoad = 18,
    LinkCreate = 28,
}

/// `enum bpf_attach_type`: BPF_CGROUP_SOCK_OPS
const CGROUP_SOCK_OPS: u32 = 3;
/// `enum bpf_prog_type`: BPF_PROG_TYPE_SOCK_OPS
const SOCK_OPS: u32 = 13;
/// `enum bpf_map_type`: BPF_MAP_TYPE_SK_STORAGE
const SK_STORAGE: u32 = 24;
/// The only way to make such a map.
const NO_PREALLOC: u32 = 1 << 0;
/// What a listener has, sockets that it accepts have too.
const CLONE: u32 = 1 << 9;

/// Length of names, the final zero included.
const NAME_BYTES: usize = 16;

/// An attribute that the kernel only reads, or that is safe to be written to.
///
/// # Safety
/// `repr(C)`, without padding, and every address in it is of memory that lives through the call and
/// is as long as the attribute says.
unsafe trait Attribute {}

/// # Safety
/// As [`Attribute`] says, and the command is the one that the attribute belongs to.
unsafe fn bpf<A: Attribute>(command: Command, attribute: &mut A) -> io::Result<i32> {
    let bytes = size_of::<A>();
    // SAFETY: pointer and length are those of `attribute`; its contents are the caller's promise.
    let outcome =
        unsafe { libc::syscall(libc::SYS_bpf, command as i32, &raw mut *attribute, bytes) };
    match outcome {
        0.. => Ok(outcome as i32),
        _ => Err(io::Error::last_os_error()),
    }
}

/// # Safety
/// As for [`bpf`], of a command that returns a new descriptor.
unsafe fn open<A: Attribute>(command: Command, mut attribute: A) -> io::Result<OwnedFd> {
    // SAFETY: the caller's promise; the descriptor is new, so nobody else owns it. (The kernel sets
    // close-on-exec on all descriptors that bpf(2) returns.)
    unsafe { Ok(OwnedFd::from_raw_fd(bpf(command, &mut attribute)?)) }
}

#[repr(C)]
struct BtfLoad {
    btf: u64,
    log_buf: u64,
    btf_size: u32,
    log_size: u32,
    log_level: u32,
    padding: u32,
}

// SAFETY: `int_type` fills it in.
unsafe impl Attribute for BtfLoad {}

/// Type information with one type, number 1: a signed 32-bit integer. Socket storage wants its key
/// and value described (net/core/bpf_sk_storage.c).
fn int_type() -> io::Result<OwnedFd> {
    const HEADER_BYTES: u32 = 24;
    const TYPE_BYTES: u32 = 16;
    const STRINGS: &[u8] = b"\0int\0";
    const KIND_INT: u32 = 1 << 24;
    const SIGNED_32_BITS: u32 = 1 << 24 | 32;
    let words = [
        // Magic 0xeb9f, version 1, no flags, in one little- or big-endian word.
        u32::from_ne_bytes(btf_preamble()),
        HEADER_BYTES,
        // Offset and length of the types, then of the strings.
        0,
        TYPE_BYTES,
        TYPE_BYTES,
        STRINGS.len() as u32,
        // The type: its name at 1, its kind, four bytes.
        1,
        KIND_INT,
        4,
        SIGNED_32_BITS,
    ];
    let mut btf: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    btf.extend(STRINGS);
    let load = BtfLoad {
        btf: btf.as_ptr() as u64,
        log_buf: 0,
        btf_size: btf.len() as u32,
        log_size: 0,
        log_level: 0,
        padding: 0,
    };
    // SAFETY: `btf` lives through the call, and its length is given.
    unsafe { open(Command::BtfLoad, load) }
}

/// The first four bytes of BTF: magic, version, flags.
fn btf_preamble() -> [u8; 4] {
    let [first, second] = 0xeb9f_u16.to_ne_bytes();
    [first, second, 1, 0]
}

#[repr(C)]
struct MapCreate {
    map_type: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
    map_flags: u32,
    inner_map_fd: RawFd,
    numa_node: u32,
    map_name: [u8; NAME_BYTES],
    map_ifindex: u32,
    btf_fd: RawFd,
    btf_key_type_id: u32,
    btf_value_type_id: u32,
}

// SAFETY: no addresses.
unsafe impl Attribute for MapCreate {}

/// A map from sockets to a number each, which sockets inherit from their listener.
pub(crate) fn socket_storage(name: [u8; NAME_BYTES]) -> io::Result<OwnedFd> {
    let int = int_type()?;
    let map = MapCreate {
        map_type: SK_STORAGE,
        key_size: 4,
        value_size: 4,
        max_entries: 0,
        map_flags: NO_PREALLOC | CLONE,
        inner_map_fd: 0,
        numa_node: 0,
        map_name: name,
        map_ifindex: 0,
        btf_fd: int.as_raw_fd(),
        btf_key_type_id: 1,
        btf_value_type_id: 1,
    };
    // SAFETY: no addresses; the map takes its own reference to the type.
    unsafe { open(Command::MapCreate, map) }
}

#[repr(C)]
struct MapUpdate {
    map_fd: RawFd,
    padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

// SAFETY: `store` fills it in.
unsafe impl Attribute for MapUpdate {}

/// Puts down `value` for a socket, instead of what was there.
pub(crate) fn store(map: BorrowedFd<'_>, socket: BorrowedFd<'_>, value: u32) -> io::Result<()> {
    let key = socket.as_raw_fd();
    let mut update = MapUpdate {
        map_fd: map.as_raw_fd(),
        padding: 0,
        key: (&raw const key) as u64,
        value: (&raw const value) as u64,
        flags: 0,
    };
    // SAFETY: key and value are four bytes each, as the maps made here have them.
    unsafe { bpf(Command::MapUpdateElem, &mut update).map(drop) }
}

#[repr(C)]
struct ProgLoad {
    prog_type: u32,
    insn_cnt: u32,
    insns: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log_buf: u64,
    kern_version: u32,
    prog_flags: u32,
    prog_name: [u8; NAME_BYTES],
    prog_ifindex: u32,
    expected_attach_type: u32,
}

// SAFETY: `sock_ops_program` fills it in.
unsafe impl Attribute for ProgLoad {}

/// A program that the kernel calls at certain events of TCP sockets (include/uapi/linux/bpf.h,
/// `BPF_SOCK_OPS_*`), once its verifier has found it safe.
pub(crate) fn sock_ops_program(
    name: [u8; NAME_BYTES],
    code: &[Instruction],
) -> io::Result<OwnedFd> {
    let load = ProgLoad {
        prog_type: SOCK_OPS,
        insn_cnt: code.len() as u32,
        insns: code.as_ptr() as u64,
        // None of the helpers in use asks for the GPL.
        license: c"MIT OR Apache-2.0".as_ptr() as u64,
        log_level: 0,
        log_size: 0,
        log_buf: 0,
        kern_version: 0,
        prog_flags: 0,
        prog_name: name,
        prog_ifindex: 0,
        expected_attach_type: CGROUP_SOCK_OPS,
    };
    // SAFETY: code and licence live through the call; count and final zero say their lengths.
    unsafe { open(Command::ProgLoad, load) }
}

#[repr(C)]
struct LinkCreate {
    prog_fd: RawFd,
    target_fd: RawFd,
    attach_type: u32,
    flags: u32,
}

// SAFETY: no addresses.
unsafe impl Attribute for LinkCreate {}

/// Makes the program serve the sockets of a cgroup and of those below it, beside other programs,
/// for as long as the returned link is open. Linux 5.7.
pub(crate) fn link(program: BorrowedFd<'_>, cgroup: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let link = LinkCreate {
        prog_fd: program.as_raw_fd(),
        target_fd: cgroup.as_raw_fd(),
        attach_type: CGROUP_SOCK_OPS,
        flags: 0,
    };
    // SAFETY: no addresses.
    unsafe { open(Command::LinkCreate, link) }
}

#[repr(C)]
struct ProgQuery {
    target_fd: RawFd,
    attach_type: u32,
    query_flags: u32,
    attach_flags: u32,
    prog_ids: u64,
    prog_cnt: u32,
    padding: u32,
}

// SAFETY: `programs_of` asks for no list, only for the number.
unsafe impl Attribute for ProgQuery {}

/// How many programs of this kind are attached to a cgroup itself.
pub(crate) fn programs_of(cgroup: BorrowedFd<'_>) -> io::Result<usize> {
    let mut query = ProgQuery {
        target_fd: cgroup.as_raw_fd(),
        attach_type: CGROUP_SOCK_OPS,
        query_flags: 0,
        attach_flags: 0,
        prog_ids: 0,
        prog_cnt: 0,
        padding: 0,
    };
    // SAFETY: room for no identifier is announced, so none is written.
    unsafe { bpf(Command::ProgQuery, &mut query)? };
    Ok(query.prog_cnt as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::offset_of;

    #[test]
    fn attributes_are_laid_out_as_the_kernel_reads_them() {
        assert_eq!(offset_of!(MapCreate, map_name), 28);
        assert_eq!(offset_of!(MapCreate, btf_value_type_id), 56);
        assert_eq!(offset_of!(ProgLoad, prog_name), 48);
        assert_eq!(offset_of!(ProgLoad, expected_attach_type), 68);
        assert_eq!(offset_of!(BtfLoad, btf_size), 16);
        assert_eq!(offset_of!(MapUpdate, value), 16);
        assert_eq!(offset_of!(ProgQuery, prog_cnt), 24);
    }
}
