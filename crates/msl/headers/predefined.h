// Macros that Metal's compiler defines before it reads the first line of a source.
#define __METAL__ 1
#define __METAL_VERSION__ 320
#define __METAL_MACOS__ 1
#define __METAL_FAST_MATH__ 1
#define __METAL_FAST_MATH_ONLY__ 1
#define __METAL_PRECISE_MATH__ 0
#define __METAL_MEMORY_SCOPE_SYSTEM__ 4
#define __HAVE_BFLOAT__ 1
#define __HAVE_SIMDGROUP_MATRIX__ 1
#define __clang__ 1
#define __LITTLE_ENDIAN__ 1
#define __ELINVAR__ 1
