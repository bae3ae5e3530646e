#include "train/run/same_job.h"

#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "data/files/error.h"
#include "data/files/hash.h"
#include "kernels/cpu/cpu_path.h"
#include "train/run/saved_drafter.h"

namespace clover::train {
namespace {

uint64_t hash_of_weights(const model::Drafter& drafter) {
  uint64_t hash = data::fnv_start;
  for (const auto& [name, parameter] : parameters_of(drafter)) {
    const at::Tensor weights = parameter.detach().cpu().contiguous();
    hash = data::fnv1a({static_cast<const char*>(weights.const_data_ptr()), weights.nbytes()}, hash);
  }
  return hash;
}

/// The first rank that says something else than rank 0, or 0.
size_t other_rank(uint64_t hash, Communicator& ranks) {
  const auto all = ranks.gather_bits(hash);
  for (size_t rank = 1; rank < all.size(); ++rank)
    if (all[rank] != all[0]) return rank;
  return 0;
}

uint64_t hash_of(const std::string& text) {
  return data::fnv1a(text, data::fnv_start);
}

}  // namespace

void check_same_job(const FitJob& job, Communicator& ranks) {
  if (ranks.alone()) return;
  nlohmann::json settings = job.settings.to_json(), identity = job.identity();
  settings.erase("feature-cache");  // of free memory; changes no weight
  identity.erase("settings");
  const std::pair<const char*, uint64_t> parts[] = {
      {"settings (--threads and --compute-dtype among them)", hash_of(settings.dump())},
      {"target and data", hash_of(identity.dump())},
      {"instructions", hash_of(kernels::to_string(kernels::cpu_path()))},
      {"steps done", static_cast<uint64_t>(job.state.step)},
      {"weights to begin with", hash_of_weights(*job.drafter)}};
  for (const auto& [what, hash] : parts) {
    if (const size_t rank = other_rank(hash, ranks); rank != 0) {
      throw data::InputError("The " + std::string(what) + " of rank " + std::to_string(rank) +
                             " are not those of rank 0: give all processes the same ones, on machines of one "
                             "kind.");
    }
  }
}

void check_same_weights(const model::Drafter& drafter, int64_t step, Communicator& ranks) {
  if (ranks.alone()) return;
  if (const size_t rank = other_rank(hash_of_weights(drafter), ranks); rank != 0) {
    throw std::runtime_error("the weights of rank " + std::to_string(rank) +
                             " are not those of rank 0 after step " + std::to_string(step) +
                             ": use machines of one kind, and continue with --resume auto");
  }
}

}  // namespace clover::train
