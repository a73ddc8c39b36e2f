#include <metal_stdlib>
#include "mlx/backend/metal/kernels/utils.h"
#include "mlx/backend/metal/kernels/steel/gemm/gemm.h"
#include "mlx/backend/metal/kernels/quantized_utils.h"
#include "mlx/backend/metal/kernels/fp_quantized.h"

#define instantiate_fp(name, type, group, bits)                                                       \
  instantiate_kernel("fp_dequantize_" name, fp_dequantize, type, group, bits, false)                  \
  instantiate_kernel("fp_qmv_" name, fp_qmv, type, group, bits, false)                                \
  instantiate_kernel("fp_qmm_t_" name, fp_qmm_t, type, group, bits, false, false)

instantiate_fp("float32_gs_32_b_4", float, 32, 4)
instantiate_fp("float32_gs_32_b_8", float, 32, 8)
instantiate_fp("float32_gs_16_b_4", float, 16, 4)
instantiate_fp("bfloat16_gs_32_b_4", bfloat16_t, 32, 4)
instantiate_fp("float16_gs_16_b_4", half, 16, 4)
