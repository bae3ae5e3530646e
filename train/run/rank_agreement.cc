#include "train/run/rank_agreement.h"

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
  uint64_t hash = data::fnv1a_offset_basis;
  for (const auto& [name, parameter] : parameters_of(drafter)) {
    const at::Tensor weights = parameter.detach().cpu().contiguous();
    hash = data::fnv1a({static_cast<const char*>(weights.const_data_ptr()), weights.nbytes()}, hash);
  }
  return hash;
}

/// The first rank whose hash differs from rank 0's, or 0.
size_t first_differing_rank(uint64_t hash, Communicator& ranks) {
  const auto hashes = ranks.all_gather_bits(hash);
  for (size_t rank = 1; rank < hashes.size(); ++rank)
    if (hashes[rank] != hashes[0]) return rank;
  return 0;
}

uint64_t hash_of(const std::string& text) {
  return data::fnv1a(text, data::fnv1a_offset_basis);
}

}  // namespace

void check_ranks_agree_on_job(const FitJob& job, Communicator& ranks) {
  if (ranks.is_only_rank()) return;
  nlohmann::json settings = job.settings.to_json(), identity = job.identity();
  settings.erase("feature-cache");  // depends on free memory, and changes no weight
  identity.erase("settings");
  const std::pair<const char*, uint64_t> parts[] = {
      {"settings (--threads and --compute-dtype among them)", hash_of(settings.dump())},
      {"target and data", hash_of(identity.dump())},
      {"instructions", hash_of(kernels::to_string(kernels::cpu_path()))},
      {"steps done", static_cast<uint64_t>(job.state.step)},
      {"weights to begin with", hash_of_weights(*job.drafter)}};
  for (const auto& [what, hash] : parts) {
    if (const size_t rank = first_differing_rank(hash, ranks); rank != 0) {
      throw data::InputError("The " + std::string(what) + " of rank " + std::to_string(rank) +
                             " are not those of rank 0: give all processes the same ones, on machines of one "
                             "kind.");
    }
  }
}

void check_ranks_agree_on_weights(const model::Drafter& drafter, int64_t step, Communicator& ranks) {
  if (ranks.is_only_rank()) return;
  if (const size_t rank = first_differing_rank(hash_of_weights(drafter), ranks); rank != 0) {
    throw std::runtime_error("the weights of rank " + std::to_string(rank) +
                             " are not those of rank 0 after step " + std::to_string(step) +
                             ": use machines of one kind, and continue with --resume auto");
  }
}

}  // namespace clover::train
