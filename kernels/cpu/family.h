#pragma once

// Loops that are compiled once for each instruction family.  (PyTorch's DispatchStub does the same for the
// kernels in ATen/native/cpu.)
//
// Every *_simd.cc file is compiled once for each family, with the family's flags.  The macro CLOVER_FAMILY
// then names one of the types below, and the file defines LoopsOf<Loops, CLOVER_FAMILY>::loops, where Loops
// is a struct of function pointers that the op's header declares.  *_amx.cc files are compiled for Amx alone.
// cpu::loops (kernels/cpu/loops.h) returns the struct of the family in use.
//
// These files must not call inline functions of shared headers, the standard library's included, and all
// their other definitions are in anonymous namespaces.  If several object files define an inline function,
// the linker keeps any one of them.  One that was compiled for a wide instruction set could then run on a
// machine without it.
namespace clover::kernels::cpu {

// One type for each CpuPath (kernels/cpu/cpu_path.h).
struct Portable;
struct Avx2;
struct Avx512;
struct Avx512Bf16;
struct Amx;

template <class Loops, class Family>
struct LoopsOf {
  static const Loops loops;
};

}  // namespace clover::kernels::cpu
