#include <metal_stdlib>
#include "mlx/backend/metal/kernels/utils.h"
#include "mlx/backend/metal/kernels/scan.h"

#define instantiate_scan(name, type, op, reads)                                                       \
  instantiate_kernel("contig_scan_inclusive_" name, contiguous_scan, type, type, op<type>, reads, true, false)   \
  instantiate_kernel("contig_scan_exclusive_" name, contiguous_scan, type, type, op<type>, reads, false, false)  \
  instantiate_kernel("contig_scan_reverse_" name, contiguous_scan, type, type, op<type>, reads, true, true)      \
  instantiate_kernel("strided_scan_inclusive_" name, strided_scan, type, type, op<type>, reads, true, false)     \
  instantiate_kernel("strided_scan_exclusive_" name, strided_scan, type, type, op<type>, reads, false, false)    \
  instantiate_kernel("strided_scan_reverse_" name, strided_scan, type, type, op<type>, reads, true, true)

instantiate_scan("sum_int32", int32_t, CumSum, 4)
instantiate_scan("sum_float32", float, CumSum, 4)
instantiate_scan("sum_int64", int64_t, CumSum, 2)
instantiate_scan("max_float16", half, CumMax, 4)
instantiate_scan("min_float32", float, CumMin, 4)
instantiate_scan("max_uint8", uint8_t, CumMax, 4)
