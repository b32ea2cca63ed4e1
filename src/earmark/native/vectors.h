/* Functions that are compiled once for each kind of processor, which chooses when the module is
   loaded. */
#ifndef EARMARK_VECTORS_H
#define EARMARK_VECTORS_H

#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) && defined(__GLIBC__)
#define ON_VECTORS __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define ON_VECTORS
#endif

/* A loop of such functions, which is compiled as they are. */
#ifdef __GNUC__
#define WITHIN static inline __attribute__((always_inline))
#else
#define WITHIN static inline
#endif

#endif
