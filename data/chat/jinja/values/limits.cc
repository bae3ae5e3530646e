#include "data/chat/jinja/values/limits.h"

#include <atomic>

#include "data/chat/jinja/values/values.h"
#include "data/files/error.h"

namespace clover::data::jinja {
namespace {

thread_local int64_t work_done = 0;
std::atomic<size_t> held_bytes{0};

}  // namespace

void check_size(size_t bytes) {
  if (bytes > max_text_bytes) throw InputError("a text grows beyond 64 MiB");
}

void reset_template_work() {
  work_done = 0;
}

void charge_template_work(int64_t units) {
  constexpr int64_t max_work = 20'000'000;  // units; takes a few seconds
  // Unsupported, not InputError: a template that runs too long is rejected as a whole, not for this
  // conversation only.
  if ((work_done += units) > max_work) throw Unsupported("the template does not come to an end");
}

HeldBytes::HeldBytes(size_t bytes) : bytes_(bytes) {
  constexpr size_t max_held_bytes = size_t{1} << 30;
  if (held_bytes.fetch_add(bytes) + bytes > max_held_bytes) {
    held_bytes -= bytes;
    throw InputError("its values grow beyond 1 GiB");
  }
}

HeldBytes::~HeldBytes() {
  held_bytes -= bytes_;
}

}  // namespace clover::data::jinja
