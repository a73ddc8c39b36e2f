#include <metal_stdlib>
#include "mlx/backend/metal/kernels/utils.h"
#include "mlx/backend/metal/kernels/steel/attn/kernels/steel_attention.h"

instantiate_kernel("attention_float32_64", attention, float, 32, 32, 64, 64, 4, 1, bool)
instantiate_kernel("attention_float16_64", attention, half, 32, 32, 64, 64, 4, 1, bool)
instantiate_kernel("attention_bfloat16_128", attention, bfloat16_t, 32, 16, 128, 128, 4, 1, bfloat16_t)
