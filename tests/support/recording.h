#pragma once

#include <functional>
#include <memory>
#include <vector>

namespace clover::test {

/// An emulated graph: what runs when it is started, and the memory that is its own.
struct Recording {
  std::vector<std::function<void()>> steps;
  std::vector<std::shared_ptr<void>> memory;
};

/// The one that is being recorded, or null.
extern Recording* recording;

/// Now, or whenever the graph that is being recorded is started.
inline void run_or_record(std::function<void()> step) {
  if (recording != nullptr) {
    recording->steps.push_back(std::move(step));
  } else {
    step();
  }
}

}  // namespace clover::test
