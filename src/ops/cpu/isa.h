// Instruction sets by translation unit: a file compiles its own functions for one set, between BZ_ISA_*_BEGIN and
// BZ_ISA_END, and everything it includes before for the baseline. So an inline function of a shared header is never
// emitted with instructions that the machine may lack (which per-file compiler flags do not guarantee: the linker keeps
// one copy of it, anyone's).
#pragma once

#define BZ_ISA_PRAGMA_(x) _Pragma(#x)
#if defined(__clang__)
#define BZ_ISA_AVX2_BEGIN \
  BZ_ISA_PRAGMA_(clang attribute push(__attribute__((target("avx2,fma,f16c"))), apply_to = function))
#define BZ_ISA_AVX512_BEGIN                                                                           \
  BZ_ISA_PRAGMA_(clang attribute push(                                                                \
      __attribute__((target("avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,evex512"))), \
      apply_to = function))
#define BZ_ISA_END BZ_ISA_PRAGMA_(clang attribute pop)
#else
#define BZ_ISA_AVX2_BEGIN BZ_ISA_PRAGMA_(GCC target("avx2,fma,f16c"))
// g++ 12 takes the undefined operand inside its own intrinsics for a mistake of ours (GCC bug 105593).
#define BZ_ISA_AVX512_BEGIN                                      \
  BZ_ISA_PRAGMA_(GCC diagnostic ignored "-Wuninitialized")       \
  BZ_ISA_PRAGMA_(GCC diagnostic ignored "-Wmaybe-uninitialized") \
  BZ_ISA_PRAGMA_(GCC target("avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni"))
#define BZ_ISA_END
#endif

// Before a loop over a register tile, whose bounds are constants: only unrolled do its arrays live in registers.
#define BZ_UNROLL BZ_ISA_PRAGMA_(GCC unroll 16)

// Every function of a vector class: it must not be emitted on its own.
#define BZ_VEC [[gnu::always_inline]] static inline
