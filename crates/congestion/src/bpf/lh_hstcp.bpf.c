// SPDX-License-Identifier: GPL-2.0-only
#include "congestion_ops.h"
#include "hstcp_math.h"

CONGESTION_OPS(hstcp, HSTCP_PARAMS)
