// SPDX-License-Identifier: GPL-2.0-only
#include "congestion_ops.h"
#include "htcp_math.h"

CONGESTION_OPS(htcp, HTCP_PARAMS)
