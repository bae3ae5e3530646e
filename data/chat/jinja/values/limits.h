#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

// Limits on time and memory of a template, which is untrusted.  InputError beyond them.
namespace clover::data::jinja {

/// Largest size of a text value, and of the rendered text.
constexpr size_t max_text_bytes = size_t{64} << 20;
void check_size(size_t bytes);  // InputError beyond max_text_bytes
inline void check_size(const std::string& text) {
  check_size(text.size());
}

/// Largest nesting of lists, dicts and the like.
constexpr int max_value_depth = 100;

/// Adds `units` to the work that this thread has done for the template which it parses or renders.  A unit is
/// a statement, an expression, an item, or some bytes of text.  Unsupported (values.h) beyond a limit that
/// corresponds to a few seconds.
void charge_template_work(int64_t units);
/// Sets the count of work to 0, before a template is parsed or rendered.
void reset_template_work();

/// Counts `bytes` as held by values as long as the object lives.  InputError when all renderings of the
/// process together hold more than 1 GiB.
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
