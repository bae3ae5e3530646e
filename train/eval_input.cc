#include "train/eval_input.h"

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <optional>

#include "data/chat_template.h"
#include "data/error.h"
#include "data/token_store.h"
#include "data/training_input.h"
#include "infer/batch_input.h"
#include "infer/line_reader.h"

namespace clover::train {
namespace {

EvalInput from_store(const std::string& folder, int64_t max_length, int64_t limit) {
  const data::TokenStore store = data::TokenStore::open(folder);
  const auto split = store.size(data::Split::held_out) > 0 ? data::Split::held_out : data::Split::train;
  EvalInput input;
  for (int64_t i = 0; i < store.size(split) && static_cast<int64_t>(input.samples.size()) < limit; ++i) {
    const auto sample = store.sample(split, i);
    const size_t length = std::min(sample.ids.size(), static_cast<size_t>(max_length));
    input.samples.push_back({{sample.ids.begin(), sample.ids.begin() + length},
                             {sample.supervised.begin(), sample.supervised.begin() + length},
                             std::string(sample.category)});
  }
  return input;
}

/// A line that asks without answering.
EvalSample bare_prompt(const std::string& text, int64_t number, const infer::PromptEncoder& prompts) {
  auto parsed = infer::parse_batch_line(number, text, {});
  if (const auto* bad = std::get_if<infer::BadLine>(&parsed)) throw data::InputError(bad->message);
  auto& line = std::get<infer::BatchLine>(parsed);
  if (line.messages.empty() && !line.turns.empty()) line.messages.push_back({"user", line.turns[0]});
  EvalSample sample{prompts.encode(line), {}, line.category};
  sample.supervised.assign(sample.ids.size(), 0);
  return sample;
}

EvalInput from_lines(const std::string& file, const infer::PromptEncoder& prompts,
                     const data::ChatTemplate& chat_template, int64_t max_length, int64_t limit,
                     int64_t vocab) {
  const data::TrainingReader reader(prompts.tokenizer(), chat_template, max_length, vocab);
  EvalInput input;
  infer::LineReader lines(file);
  for (std::string text; static_cast<int64_t>(input.samples.size()) < limit && lines.next(text);) {
    if (infer::is_blank(text)) continue;
    std::string reason;
    try {
      data::TrainingSample sample = reader.parse(text);
      input.samples.push_back(
          {std::move(sample.ids), std::move(sample.supervised), std::move(sample.category)});
      continue;
    } catch (const data::InputError& error) {
      reason = error.what();
    }
    try {
      input.samples.push_back(bare_prompt(text, lines.number(), prompts));
    } catch (const data::InputError& error) {
      std::cerr << file << ":" << lines.number() << ": neither an answered record (" << reason
                << ") nor a request (" << error.what() << ")\n";
      ++input.bad_records;
    }
  }
  return input;
}

}  // namespace

int64_t EvalSample::prompt_length() const {
  return std::find(supervised.begin(), supervised.end(), uint8_t{1}) - supervised.begin();
}

bool EvalSample::answered() const {
  return prompt_length() < static_cast<int64_t>(ids.size());
}

EvalInput read_eval_input(const std::string& input, const infer::PromptEncoder& prompts,
                          const std::string& target, const std::string& template_name, int64_t max_length,
                          int64_t limit, int64_t vocab) {
  EvalInput read;
  if (std::filesystem::is_directory(input)) {
    read = from_store(input, max_length, limit);
  } else {
    read =
        from_lines(input, prompts, data::ChatTemplate::load(target, template_name), max_length, limit, vocab);
  }
  if (read.samples.empty())
    throw data::InputError(input + " holds nothing to measure on: give records or requests.");
  return read;
}

}  // namespace clover::train
