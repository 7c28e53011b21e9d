/* SPDX-License-Identifier: GPL-2.0-only */
/* What stands beside each connection of a congestion control. */
#ifndef LH_CONNECTIONS_H
#define LH_CONNECTIONS_H

#include "kernel.h"

#include <bpf/bpf_helpers.h>

#define OWN_MAX 7

/* Parameters of this connection alone, put here before it begins; `given` has a bit for each. */
struct lh_connection {
	u32 given;
	u32 params[OWN_MAX];
};

/* Walking a congestion control's map finds all its connections, in any network namespace. Programs
 * that only put parameters there have that map in this one's place when they are loaded. Memory:
 * 64 B a connection. */
struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC | BPF_F_CLONE);
	__type(key, int);
	__type(value, struct lh_connection);
} connections SEC(".maps");

#endif
