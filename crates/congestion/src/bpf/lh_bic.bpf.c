// SPDX-License-Identifier: GPL-2.0-only
#include "congestion_ops.h"
#include "bic_math.h"

CONGESTION_OPS(bic, BIC_PARAMS)
