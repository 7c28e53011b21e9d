// SPDX-License-Identifier: GPL-2.0-only
#include "congestion_ops.h"
#include "scalable_math.h"

CONGESTION_OPS(scalable, SCALABLE_PARAMS)
