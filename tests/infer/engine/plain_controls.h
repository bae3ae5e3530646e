#pragma once

#include <algorithm>
#include <limits>
#include <vector>

#include "infer/engine/request.h"
#include "model/target/target.h"
#include "tests/support/reading.h"

namespace clover::test {

/// Applies Hugging Face's and vLLM's logits processors, one after another, to the logits after `text`, whose
/// first `prompt` tokens are the prompt.
inline void process(std::vector<float>& logits, const infer::LogitControls& controls,
                    const std::vector<int64_t>& text, int64_t prompt, const std::vector<int64_t>& end_ids) {
  constexpr float never = -std::numeric_limits<float>::infinity();
  const int64_t vocab = std::ssize(logits), length = std::ssize(text), answered = length - prompt;
  for (const auto& [id, bias] : controls.bias) logits[id] += static_cast<float>(bias);
  for (int64_t id = 0; id < vocab; ++id) {
    float& x = logits[id];
    const auto times = static_cast<double>(std::count(text.begin() + prompt, text.end(), id));
    const float penalty = static_cast<float>(controls.repetition_penalty);
    if (std::count(text.begin(), text.end(), id) > 0) x = x < 0 ? x * penalty : x / penalty;
    if (times > 0) x -= static_cast<float>(controls.frequency_penalty * times + controls.presence_penalty);
  }
  if (const int64_t n = controls.no_repeat_ngram; n > 0) {
    for (int64_t begin = 0; begin + n <= length; ++begin) {
      bool same = true;
      for (int64_t i = 0; i < n - 1; ++i) same &= text[begin + i] == text[length - n + 1 + i];
      if (same) logits[text[begin + n - 1]] = never;
    }
  }
  for (const std::vector<int64_t>& word : controls.bad_words) {
    const int64_t before = std::ssize(word) - 1;
    if (before == 0 && std::count(end_ids.begin(), end_ids.end(), word[0]) > 0) continue;
    if (before <= length && std::equal(word.begin(), word.end() - 1, text.end() - before))
      logits[word.back()] = never;
  }
  if (answered < controls.min_tokens || length < controls.min_length)
    for (const int64_t id : end_ids) logits[id] = never;
  for (const int64_t id : controls.suppressed) logits[id] = never;
  if (answered == 0)
    for (const int64_t id : controls.suppressed_first) logits[id] = never;
}

/// The expected answer to a request: the whole text is read again for every token.
inline std::vector<int64_t> answered_plainly(const model::Target& target, const infer::Request& request) {
  std::vector<int64_t> text = request.prompt;
  const int64_t prompt = std::ssize(text);
  const std::vector<int64_t>& end_ids = target.config().end_ids;
  while (std::ssize(text) < prompt + request.max_tokens) {
    const at::Tensor row = read_text(target, text).logits[-1].cpu().contiguous();
    std::vector<float> logits(row.const_data_ptr<float>(), row.const_data_ptr<float>() + row.numel());
    if (request.controls) process(logits, *request.controls, text, prompt, end_ids);
    const double uniform = infer::uniform_at(request.random, std::ssize(text));
    text.push_back(kernels::sample(logits.data(), std::ssize(logits), request.sampling, uniform));
    if (std::count(end_ids.begin(), end_ids.end(), text.back()) > 0) break;
  }
  return {text.begin() + prompt, text.end()};
}

/// Controls for request `number`: one kind of control for small numbers, several for larger ones.
inline std::shared_ptr<const infer::LogitControls> some_controls(int64_t number) {
  infer::LogitControls controls;
  const auto kind = [number](int64_t which) {
    return number == which || (number > 9 && number % (which + 3) == 1);
  };
  if (kind(0)) controls.repetition_penalty = number % 2 == 0 ? 1.6 : 0.8;
  if (kind(1)) controls.presence_penalty = 1.5;
  if (kind(2)) controls.frequency_penalty = number % 4 == 3 ? -0.3 : 0.9;
  if (kind(3)) controls.no_repeat_ngram = 1 + number % 3;
  if (kind(4)) controls.min_tokens = 5 + number % 9;
  if (kind(5)) controls.bias = {{number % 60 + 20, 4.0}, {7, -100}, {2, 3}, {90, 2.5}};
  if (kind(6)) controls.suppressed = {5, 40, 41, 77, number * 11 % 130};
  if (kind(7)) controls.suppressed_first = {number * 7 % 130, 31, 3, 12, 2};
  if (kind(8)) controls.min_length = 50;
  if (kind(9)) {
    controls.bad_words = {{2}, {64}};  // an end token alone is no bad word
    for (int64_t first = number % 3; first < 130; first += 3)
      controls.bad_words.push_back({first, (first * 5 + 1) % 130});
    for (int64_t last = 0; last < 130; last += 2) controls.bad_words.push_back({last, last + 1, last});
  }
  return controls.have_effect() ? std::make_shared<const infer::LogitControls>(controls) : nullptr;
}

}  // namespace clover::test
