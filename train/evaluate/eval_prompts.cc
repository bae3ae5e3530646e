#include "train/evaluate/eval_prompts.h"

#include <algorithm>

namespace clover::train {

int64_t prompt_length(std::span<const uint8_t> supervised) {
  const int64_t unsupervised =
      std::find(supervised.begin(), supervised.end(), uint8_t{1}) - supervised.begin();
  return unsupervised > 0 ? unsupervised : std::max<int64_t>(1, static_cast<int64_t>(supervised.size()) / 4);
}

std::vector<EvalPrompt> held_out_prompts(const data::TokenStore& store, int64_t limit, int64_t context,
                                         int64_t max_tokens) {
  std::vector<EvalPrompt> prompts;
  for (int64_t i = 0; i < store.size(data::Split::held_out) && static_cast<int64_t>(prompts.size()) < limit;
       ++i) {
    const auto sample = store.sample(data::Split::held_out, i);
    const int64_t length = prompt_length(sample.supervised);
    if (length + max_tokens > context) continue;
    const int64_t answer_tokens = std::min<int64_t>(std::ssize(sample.ids) - length, max_tokens);
    prompts.push_back({{sample.ids.begin(), sample.ids.begin() + length},
                       std::string(sample.category),
                       {sample.ids.begin() + length, sample.ids.begin() + length + answer_tokens}});
  }
  return prompts;
}

}  // namespace clover::train
