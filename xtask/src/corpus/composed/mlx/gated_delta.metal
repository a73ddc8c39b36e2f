#include <metal_stdlib>
#include "mlx/backend/metal/kernels/utils.h"
#include "mlx/backend/metal/kernels/gated_delta_update.h"

instantiate_kernel("gated_delta_seq_float32", gated_delta_seq, float, 64, 12, 2, 4, 2)
instantiate_kernel("gated_delta_seq_float16", gated_delta_seq, half, 64, 12, 2, 4, 2)
