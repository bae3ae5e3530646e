// What an H100's memory gives by what is asked of it, as JSON on stdout: the figures that plans assume
// (tests/kernels/ linear_figures.h).  Needs neither LibTorch nor the kernels: nvcc -O3 -std=c++17
// -arch=sm_90a gpu_probe.cu
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

constexpr int multiplier = 4;  // blocks of `read` a multiprocessor

void check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "gpu_probe: %s: %s\n", what, cudaGetErrorString(error));
  std::exit(1);
}

/// Reads `total` times 16 bytes, round and round of the first mask + 1; what becomes of them nobody looks at.
__global__ void read(const uint4* from, size_t mask, size_t total, uint4* never) {
  constexpr int at_once = 4;
  const size_t stride = size_t{gridDim.x} * blockDim.x;
  uint4 sum{};
  for (size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x; i < total; i += at_once * stride) {
    uint4 some[at_once];
#pragma unroll
    for (int j = 0; j < at_once; ++j)
      asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];"  // not out of the first level
                   : "=r"(some[j].x), "=r"(some[j].y), "=r"(some[j].z), "=r"(some[j].w)
                   : "l"(from + (i + j * stride & mask)));
#pragma unroll
    for (int j = 0; j < at_once; ++j)
      sum.x ^= some[j].x, sum.y ^= some[j].y, sum.z ^= some[j].z, sum.w ^= some[j].w;
  }
  if (sum.x == 0x12345678 && sum.y == 0x9abcdef0) *never = sum;
}

constexpr int stage_bytes = 16 << 10;

/// A thread of each block has stages copied to shared memory, `stages` of them on their way.
__global__ void copy_in_bulk(const unsigned char* from, size_t stages_in_all, int stages) {
  extern __shared__ __align__(128) unsigned char ring[];
  __shared__ uint64_t barriers[16];
  if (threadIdx.x != 0) return;
  const auto address = [](const void* at) { return static_cast<uint32_t>(__cvta_generic_to_shared(at)); };
  for (int i = 0; i < stages; ++i)
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(address(barriers + i)));
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  const auto begin = [&](size_t stage, int to) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(address(barriers + to)),
                 "r"(stage_bytes)
                 : "memory");
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
            address(ring + size_t{stage_bytes} * to)),
        "l"(from + stage * stage_bytes), "r"(stage_bytes), "r"(address(barriers + to))
        : "memory");
  };
  size_t asked = blockIdx.x;
  int on_their_way = 0;
  for (; on_their_way < stages && asked < stages_in_all; ++on_their_way, asked += gridDim.x)
    begin(asked, on_their_way);
  int to = 0;
  unsigned phase = 0;
  for (size_t stage = blockIdx.x; stage < stages_in_all; stage += gridDim.x, asked += gridDim.x) {
    uint32_t ended = 0;
    while (ended == 0)
      asm volatile(
          "{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
          : "=r"(ended)
          : "r"(address(barriers + to)), "r"(phase)
          : "memory");
    if (asked < stages_in_all) begin(asked, to);
    if (++to == stages) to = 0, phase ^= 1;
  }
}

__global__ void in_clusters() {}

/// Seconds of `body`, the least of several.
template <class Body>
double seconds_of(const Body& body) {
  cudaEvent_t begin, end;
  check(cudaEventCreate(&begin), "event");
  check(cudaEventCreate(&end), "event");
  float least = 1e30F;
  for (int round = 0; round < 6; ++round) {
    check(cudaEventRecord(begin), "record");
    body();
    check(cudaEventRecord(end), "record");
    check(cudaEventSynchronize(end), "a kernel");
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, begin, end), "time");
    if (round > 0) least = std::min(least, milliseconds);
  }
  return 1e-3 * least;
}

/// How many clusters of so many blocks with so much shared memory run at once.
int clusters_at_once(int blocks, int shared_bytes) {
  check(cudaFuncSetAttribute(in_clusters, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes),
        "shared memory");
  check(cudaFuncSetAttribute(in_clusters, cudaFuncAttributeNonPortableClusterSizeAllowed, 1), "clusters");
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(blocks * 1024);
  config.blockDim = dim3(288);
  config.dynamicSmemBytes = shared_bytes;
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim.x = blocks, attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
  config.attrs = &attribute, config.numAttrs = 1;
  int count = 0;
  check(cudaOccupancyMaxActiveClusters(&count, in_clusters, &config), "cudaOccupancyMaxActiveClusters");
  return count;
}

}  // namespace

int main() {
  cudaDeviceProp gpu{};
  check(cudaGetDeviceProperties(&gpu, 0), "no GPU");
  const size_t bytes = size_t{4} << 30;
  unsigned char *from = nullptr, *to = nullptr;
  check(cudaMalloc(&from, bytes), "memory");
  check(cudaMalloc(&to, bytes), "memory");
  check(cudaMemset(from, 1, bytes), "memory");
  const int blocks = gpu.multiProcessorCount * multiplier;
  const auto gigabytes = [](double count, double seconds) { return count / seconds / 1e9; };
  const double all = static_cast<double>(bytes);
  std::printf("{\"gpu\": \"%s\", \"multiprocessors\": %d, \"second_level_bytes\": %d,\n", gpu.name,
              gpu.multiProcessorCount, gpu.l2CacheSize);
  std::printf(
      " \"copied\": %.0f,\n",
      gigabytes(2 * all, seconds_of([&] { cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice); })));
  auto* const sixteens = reinterpret_cast<const uint4*>(from);
  auto* const never = reinterpret_cast<uint4*>(to);
  const auto read_seconds = [&](size_t part) {
    return seconds_of([&] { read<<<blocks, 512>>>(sixteens, part / 16 - 1, bytes / 16, never); });
  };
  std::printf(" \"read\": %.0f,\n \"read_again\": {", gigabytes(all, read_seconds(bytes)));
  const char* comma = "";
  for (const int size : {1, 4, 8, 16, 32}) {  // MiB, out of the second-level cache
    std::printf("%s\"%d\": %.0f", comma, size, gigabytes(all, read_seconds(static_cast<size_t>(size) << 20)));
    comma = ", ";
  }
  std::printf("},\n \"read_in_bulk\": {");  // by KiB on their way a multiprocessor
  comma = "";
  check(cudaFuncSetAttribute(copy_in_bulk, cudaFuncAttributeMaxDynamicSharedMemorySize, 13 * stage_bytes),
        "shared memory");
  for (const int stages : {1, 2, 3, 4, 5, 6, 8, 10, 13}) {
    const double seconds = seconds_of([&] {
      copy_in_bulk<<<gpu.multiProcessorCount, 32, 13 * stage_bytes>>>(from, bytes / stage_bytes, stages);
    });
    std::printf("%s\"%d\": %.0f", comma, stages * stage_bytes >> 10, gigabytes(all, seconds));
    comma = ", ";
  }
  std::printf("},\n \"clusters_at_once\": {");  // by blocks of one and KiB of shared memory of a block
  comma = "";
  for (const int size : {2, 4, 8}) {
    for (const int kib : {220, 112}) {
      std::printf("%s\"%d x %d KiB\": %d", comma, size, kib, clusters_at_once(size, kib << 10));
      comma = ", ";
    }
  }
  std::printf("}}\n");
  check(cudaDeviceSynchronize(), "the end");
  return 0;
}
