/* SPDX-License-Identifier: GPL-2.0-only */
/* Storage of each connection of a congestion control. */
#ifndef LH_CONNECTIONS_H
#define LH_CONNECTIONS_H

#include "kernel.h"

#include <bpf/bpf_helpers.h>

#define OWN_MAX 7

/* Parameters of this connection, stored before it begins; `given` has a bit for each. */
struct lh_connection {
	u32 given;
	u32 params[OWN_MAX];
};

/* The map of a congestion control lists all its connections, in any network namespace. Programs that
 * only set parameters use that map in place of this one when they are loaded. Memory: 64 B a
 * connection. */
struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC | BPF_F_CLONE);
	__type(key, int);
	__type(value, struct lh_connection);
} connections SEC(".maps");

#endif
