#include "train/store/prompt_leakage.h"

#include <algorithm>
#include <cstdio>
#include <unordered_set>

#include "data/files/hash.h"

namespace clover::train {
namespace {

/// The hash of a sample's prompt; 0 when it has at most one token, a BOS.
uint64_t hash_of_prompt(const data::TokenStore::Sample& sample) {
  const auto length =
      std::find(sample.supervised.begin(), sample.supervised.end(), uint8_t{1}) - sample.supervised.begin();
  if (length < 2) return 0;
  const auto ids = sample.ids.first(length);
  return data::fnv1a({reinterpret_cast<const char*>(ids.data()), ids.size_bytes()});
}

}  // namespace

int64_t count_leaked_prompts(const data::TokenStore& store) {
  std::unordered_set<uint64_t> training_prompts;
  for (int64_t i = 0; i < store.size(data::Split::train); ++i)
    training_prompts.insert(hash_of_prompt(store.sample(data::Split::train, i)));
  training_prompts.erase(0);
  int64_t leaked = 0;
  for (int64_t i = 0; i < store.size(data::Split::held_out); ++i)
    leaked += training_prompts.contains(hash_of_prompt(store.sample(data::Split::held_out, i)));
  return leaked;
}

void warn_of_leaked_prompts(const data::TokenStore& store, const std::string& folder) {
  if (store.metadata().value("split_by", nlohmann::json()) == "prompt" ||
      store.size(data::Split::held_out) == 0)
    return;
  const int64_t leaked = count_leaked_prompts(store);
  if (leaked == 0) return;
  std::fprintf(
      stderr,
      "%lld of the %lld held-out samples of %s have prompts that are trained on, too: prepare the data "
      "again, which keeps the samples of a prompt together\n",
      static_cast<long long>(leaked), static_cast<long long>(store.size(data::Split::held_out)),
      folder.c_str());
}

}  // namespace clover::train
