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

constexpr size_t large_page = size_t{2} << 20, line = 64;
constexpr size_t shared_bytes = 16 * large_page;
#if defined(__SANITIZE_ADDRESS__)
constexpr size_t least = shared_bytes / 2;  // what lies side by side has no edges that it would see
#else
constexpr size_t least = size_t{256} << 10;  // less is no part of a stream worth its name
#endif

/// A memory mapping that begins at a large page's boundary. It is zero, and takes memory page by page when it
/// is written to.
class Mapping {
 public:
  explicit Mapping(size_t bytes) : whole_(bytes + large_page) {
    void* const at = ::mmap(nullptr, whole_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) throw std::bad_alloc();
    at_ = static_cast<char*>(at);
    begin_ = at_ + (large_page - reinterpret_cast<uintptr_t>(at_) % large_page) % large_page;
    ::madvise(begin_, bytes, MADV_HUGEPAGE);  // a wish: without it pages are small
  }
  ~Mapping() { ::munmap(at_, whole_); }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  char* begin() const { return begin_; }

 private:
  size_t whole_;
  char *at_, *begin_;
};

/// A part of a mapping, which it keeps alive.
using Piece = std::shared_ptr<char>;

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
  used += (bytes + line - 1) / line * line;
  return {mapping, begin};
}

}  // namespace

at::Tensor zeros_in_large_pages(at::IntArrayRef sizes, const at::TensorOptions& options) {
  const size_t bytes = c10::multiply_integers(sizes) * options.dtype().itemsize();
  if (bytes < least) return at::zeros(sizes, options);
  const Piece piece = bytes > shared_bytes / 2 ? own_piece(bytes) : shared_piece(bytes);
  return at::from_blob(
      piece.get(), sizes, [piece](void*) {}, options);
}

}  // namespace clover::kernels
