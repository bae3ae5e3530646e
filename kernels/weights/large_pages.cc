#include "kernels/weights/large_pages.h"

#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>
#include <c10/util/accumulate.h>
#include <sys/mman.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <new>

namespace clover::kernels {
namespace {

constexpr size_t large_page = size_t{2} << 20, cache_line = 64;  // bytes
constexpr size_t shared_bytes = 16 * large_page;                 // of a mapping that small tensors share
#if defined(__SANITIZE_ADDRESS__)
// Smaller tensors would lie side by side in a mapping, where the sanitizer does not see accesses beyond one.
constexpr size_t min_bytes = shared_bytes / 2;
#else
// Smaller tensors gain nothing from large pages and come from at::zeros.
constexpr size_t min_bytes = size_t{256} << 10;
#endif

/// A memory mapping of zeros that begins at the boundary of a large page. Pages take memory only when they
/// are written to.
class Mapping {
 public:
  explicit Mapping(size_t bytes) : mapped_bytes_(bytes + large_page) {
    void* const mapped =
        ::mmap(nullptr, mapped_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED) throw std::bad_alloc();
    mapped_ = static_cast<char*>(mapped);
    begin_ = mapped_ + (large_page - reinterpret_cast<uintptr_t>(mapped_) % large_page) % large_page;
    ::madvise(begin_, bytes, MADV_HUGEPAGE);  // if Linux refuses, pages are small
  }
  ~Mapping() { ::munmap(mapped_, mapped_bytes_); }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  char* begin() const { return begin_; }

 private:
  size_t mapped_bytes_;
  char *mapped_, *begin_;
};

/// A part of a mapping. It keeps the mapping alive.
using Piece = std::shared_ptr<char>;

/// A mapping of its own.
Piece own_piece(size_t bytes) {
  const auto mapping = std::make_shared<Mapping>(bytes);
  return {mapping, mapping->begin()};
}

/// The next free part of the mapping that small tensors share.
Piece shared_piece(size_t bytes) {
  static std::mutex mutex;
  static auto& latest = *new std::weak_ptr<Mapping>();
  static size_t used = 0;
  const std::lock_guard lock(mutex);
  std::shared_ptr<Mapping> mapping = latest.lock();
  if (mapping == nullptr || used + bytes > shared_bytes) {
    latest = mapping = std::make_shared<Mapping>(shared_bytes);
    used = 0;
  }
  char* const begin = mapping->begin() + used;
  used += (bytes + cache_line - 1) / cache_line * cache_line;
  return {mapping, begin};
}

}  // namespace

at::Tensor zeros_in_large_pages(at::IntArrayRef sizes, const at::TensorOptions& options) {
  const size_t bytes = c10::multiply_integers(sizes) * options.dtype().itemsize();
  if (bytes < min_bytes) return at::zeros(sizes, options);
  const Piece piece = bytes > shared_bytes / 2 ? own_piece(bytes) : shared_piece(bytes);
  return at::from_blob(
      piece.get(), sizes, [piece](void*) {}, options);
}

}  // namespace clover::kernels
