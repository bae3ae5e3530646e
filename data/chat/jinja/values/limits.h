#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

// A template is a file that somebody gave us: what it may cost.  InputError beyond.
namespace clover::data::jinja {

/// Bytes of one text, or of what a template writes.
constexpr size_t most_of_a_value = size_t{64} << 20;
void check_size(size_t bytes);
inline void check_size(const std::string& text) {
  check_size(text.size());
}

/// Lists, dicts and the like within each other.
constexpr int deepest_value = 100;

/// Counts what the rendering that goes on in this thread does: statements, expressions, items, kilobytes.
void spend(int64_t amount);
/// A new rendering begins.
void begin_spending();

/// Bytes that values hold, all renderings together, while this lives.
class Held {
 public:
  explicit Held(size_t bytes);
  ~Held();
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;

 private:
  size_t bytes_;
};

}  // namespace clover::data::jinja
