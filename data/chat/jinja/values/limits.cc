#include "data/chat/jinja/values/limits.h"

#include <atomic>

#include "data/chat/jinja/values/values.h"
#include "data/files/error.h"

namespace clover::data::jinja {
namespace {

thread_local int64_t spent = 0;
std::atomic<size_t> held{0};

}  // namespace

void check_size(size_t bytes) {
  if (bytes > max_text_bytes) throw InputError("a text grows beyond 64 MiB");
}

void reset_work() {
  spent = 0;
}

void charge_work(int64_t amount) {
  constexpr int64_t most = 20'000'000;  // takes a few seconds
  // Unsupported, not InputError: a template that runs too long is rejected as a whole, not for this
  // conversation only.
  if ((spent += amount) > most) throw Unsupported("the template does not come to an end");
}

HeldBytes::HeldBytes(size_t bytes) : bytes_(bytes) {
  constexpr size_t most = size_t{1} << 30;
  if (held.fetch_add(bytes) + bytes > most) {
    held -= bytes;
    throw InputError("its values grow beyond 1 GiB");
  }
}

HeldBytes::~HeldBytes() {
  held -= bytes_;
}

}  // namespace clover::data::jinja
