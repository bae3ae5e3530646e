#include "kernels/cpu/cpu_path.h"
#include "tests/kernels/here.h"

namespace clover::kernels {

void on_every_path(const std::function<void()>& body) {
  const CpuPath before = cpu_path();
  for (CpuPath path : available_cpu_paths()) {
    SCOPED_TRACE(to_string(path));
    set_cpu_path(path);
    body();
  }
  set_cpu_path(before);
}

bool here::emulated() {
  return false;
}

}  // namespace clover::kernels
