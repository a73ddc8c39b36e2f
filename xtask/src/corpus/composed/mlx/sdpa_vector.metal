#include <metal_stdlib>
#include "mlx/backend/metal/kernels/utils.h"
#include "mlx/backend/metal/kernels/sdpa_vector.h"

instantiate_kernel("sdpa_vector_float32_64", sdpa_vector, float, 64)
instantiate_kernel("sdpa_vector_float16_64", sdpa_vector, half, 64)
instantiate_kernel("sdpa_vector_bfloat16_128", sdpa_vector, bfloat16_t, 128)
