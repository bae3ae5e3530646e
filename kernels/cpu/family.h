#pragma once

// Loops that are compiled once for each instruction family.  (PyTorch's DispatchStub does the same for the
// kernels in ATen/native/cpu.)
//
// A file *_simd.cc is compiled once with the flags of each family, where the macro CLOVER_FAMILY names one of
// the types below; it defines LoopsOf<Loops, CLOVER_FAMILY>::loops, a struct of function pointers that the
// op's header declares.  *_amx.cc does so for the family Amx alone.  kernels/cpu/loops.h chooses among them.
//
// Those files take raw pointers, call no inline function of a shared header, the standard library's included,
// and define everything else in anonymous namespaces: of an inline function that several files define the
// linker keeps one copy, and one that was compiled for a wide instruction set would then run on machines
// without it.
namespace clover::kernels::cpu {

struct Portable;
struct Avx2;
struct Avx512Bf16;
struct Amx;

template <class Loops, class Family>
struct LoopsOf {
  static const Loops loops;
};

}  // namespace clover::kernels::cpu
