#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

// Limits on time and memory of a template, which is untrusted.  InputError beyond them.
namespace clover::data::jinja {

/// Largest size of one text, and of the rendered text.
constexpr size_t max_text_bytes = size_t{64} << 20;
void check_size(size_t bytes);
inline void check_size(const std::string& text) {
  check_size(text.size());
}

/// Largest nesting of lists, dicts and the like.
constexpr int max_value_depth = 100;

/// Counts work of the rendering in this thread: statements, expressions, items, kilobytes.  InputError beyond
/// a limit that corresponds to a few seconds.
void charge_work(int64_t amount);
/// Sets the count of work to 0, at the beginning of a rendering.
void reset_work();

/// Counts memory held by values while the object lives, over all renderings.
class HeldBytes {
 public:
  explicit HeldBytes(size_t bytes);
  ~HeldBytes();
  HeldBytes(const HeldBytes&) = delete;
  HeldBytes& operator=(const HeldBytes&) = delete;

 private:
  size_t bytes_;
};

}  // namespace clover::data::jinja
