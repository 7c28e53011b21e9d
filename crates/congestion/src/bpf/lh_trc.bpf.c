// SPDX-License-Identifier: GPL-2.0-only
#include "congestion_ops.h"
#include "trc_math.h"

PACED_CONGESTION_OPS(trc, TRC_PARAMS)
