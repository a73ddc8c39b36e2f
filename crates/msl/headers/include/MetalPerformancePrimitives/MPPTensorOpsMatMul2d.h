// Metal Performance Primitives: products of matrices.
#include <MetalPerformancePrimitives/MetalPerformancePrimitives.h>
