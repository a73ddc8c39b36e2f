#include <metal_stdlib>
#include "mlx/backend/metal/kernels/utils.h"
#include "mlx/backend/metal/kernels/steel/gemm/gemm.h"
#include "mlx/backend/metal/kernels/quantized_utils.h"
#include "mlx/backend/metal/kernels/quantized.h"

#define instantiate_affine(name, type, group, bits)                                                   \
  instantiate_kernel("affine_dequantize_" name, affine_dequantize, type, group, bits)                 \
  instantiate_kernel("affine_qmv_" name, affine_qmv, type, group, bits, false)                        \
  instantiate_kernel("affine_qmm_t_" name, affine_qmm_t, type, group, bits, false, false)             \
  instantiate_kernel("affine_qmm_n_" name, affine_qmm_n, type, group, bits, false)

instantiate_affine("float32_gs_64_b_2", float, 64, 2)
instantiate_affine("float32_gs_64_b_3", float, 64, 3)
instantiate_affine("float32_gs_64_b_4", float, 64, 4)
instantiate_affine("float32_gs_64_b_5", float, 64, 5)
instantiate_affine("float32_gs_64_b_6", float, 64, 6)
instantiate_affine("float32_gs_64_b_8", float, 64, 8)
instantiate_affine("float16_gs_32_b_3", half, 32, 3)
instantiate_affine("float16_gs_32_b_4", half, 32, 4)
instantiate_affine("bfloat16_gs_128_b_6", bfloat16_t, 128, 6)
