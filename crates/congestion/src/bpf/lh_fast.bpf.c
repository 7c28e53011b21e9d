// SPDX-License-Identifier: GPL-2.0-only
#include "congestion_ops.h"
#include "fast_math.h"

CONGESTION_OPS(fast, FAST_PARAMS)
