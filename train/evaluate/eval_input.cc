#include "train/evaluate/eval_input.h"

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>

#include "data/chat/chat_fields.h"
#include "data/chat/chat_template.h"
#include "data/files/error.h"
#include "data/files/mapped_file.h"
#include "data/training/record_texts.h"
#include "data/training/token_store.h"
#include "data/training/training_input.h"
#include "infer/requests/batch_input.h"
#include "infer/requests/line_reader.h"
#include "train/store/preview.h"
#include "train/store/prompt_leakage.h"
#include "train/store/store_tokenization.h"

namespace clover::train {
namespace {

EvalInput read_store(const EvalSource& source, int64_t max_length, const data::Tokenizer& tokenizer,
                     const model::Target& target) {
  const data::TokenStore store = data::TokenStore::open(source.input);
  const StoreUse use{store, source.input, source.target_folder};
  check_prepared_for(use, target);
  check_same_tokenizer_and_template(use, tokenizer);
  const auto split = store.size(data::Split::held_out) > 0 ? data::Split::held_out : data::Split::train;
  EvalInput input;
  input.split = data::split_names[static_cast<int>(split)];
  if (split == data::Split::train)
    std::cerr << source.input
              << " holds no held-out samples: measured on its training split, which heads may know by heart; "
                 "prepare the data with --holdout, or give --input others\n";
  else
    warn_of_leaked_prompts(store, source.input);
  int64_t without_answer = 0;  // samples whose answer is cut away
  for (int64_t i = 0; i < std::min(store.size(split), source.limit); ++i) {
    const auto sample = store.sample(split, i);
    const size_t length = std::min(sample.ids.size(), static_cast<size_t>(max_length));
    EvalSample eval_sample{{sample.ids.begin(), sample.ids.begin() + length},
                           {sample.supervised.begin(), sample.supervised.begin() + length},
                           std::string(sample.category)};
    if (length < sample.ids.size() && !eval_sample.has_answer()) {  // the cut removed it
      ++without_answer;
      continue;
    }
    input.samples.push_back(std::move(eval_sample));
  }
  if (without_answer > 0)
    std::cerr << without_answer << " samples of " << source.input
              << " are left out: none of their answer is within " << max_length
              << " tokens (--max-length, or the target's context)\n";
  return input;
}

/// A sample without an answer, from a batch request.  text: line `number` of the file.
EvalSample parse_request(const std::string& text, int64_t number, const infer::PromptEncoder& encoder,
                         int64_t vocab) {
  auto parsed = infer::parse_batch_line(number, text, {});
  if (const auto* bad = std::get_if<infer::BadLine>(&parsed)) throw data::InputError(bad->message);
  auto& line = std::get<infer::BatchLine>(parsed);
  if (line.prompt_count() > 1)
    throw data::InputError("prompt: expected one text, found " + std::to_string(line.prompt_count()));
  if (line.messages.empty() && !line.turns.empty()) line.messages.push_back({"user", line.turns[0]});
  EvalSample sample{encoder.encode(line), {}, line.category};
  sample.supervised.assign(sample.ids.size(), 0);
  const auto unknown =
      std::find_if(sample.ids.begin(), sample.ids.end(), [&](int64_t id) { return id >= vocab; });
  if (unknown != sample.ids.end())
    throw data::InputError("token id " + std::to_string(*unknown) + " is not of the target's vocabulary");
  return sample;
}

/// Whether a line has an answer.  Such a line must not be read as a request, which would ignore the answer.
bool has_answer(const std::string& text) {
  const auto record = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!record.is_object()) return false;
  for (const char* key : {"token_ids", "conversations", "completion", "answer", "output", "error"})
    if (!data::is_blank_field(record, key)) return true;
  const auto messages = record.find("messages");
  if (messages == record.end() || !messages->is_array() || messages->empty()) return false;
  const auto& last = messages->back();
  const auto last_is = [&](const char* key, const char* value) {
    return last.is_object() && last.contains(key) && last[key] == value;
  };
  return last_is("role", "assistant") || last_is("from", "gpt");
}

/// The samples of one line; InputError when it is neither a training record nor a request.
std::vector<EvalSample> read_line(const std::string& text, int64_t number, const data::TrainingReader& reader,
                                  const infer::PromptEncoder& encoder, int64_t vocab) {
  std::string reason;
  try {
    std::vector<EvalSample> samples;
    for (data::TrainingSample& sample : reader.parse(text))
      samples.push_back({std::move(sample.ids), std::move(sample.supervised), std::move(sample.category)});
    return samples;
  } catch (const data::InputError& error) {
    if (has_answer(text)) throw;
    reason = error.what();
  }
  try {
    return {parse_request(text, number, encoder, vocab)};
  } catch (const data::InputError& error) {
    throw data::InputError("neither an answered record (" + reason + ") nor a request (" + error.what() +
                           ")");
  }
}

EvalInput read_lines(const EvalSource& source, int64_t max_length, const infer::PromptEncoder& encoder,
                     int64_t vocab) {
  const auto chat_template = data::ChatTemplate::load(source.target_folder, source.chat_template);
  const data::TrainingReader reader(encoder.tokenizer(), chat_template, max_length, vocab);
  EvalInput input;
  const auto is_enough = [&] { return static_cast<int64_t>(input.samples.size()) >= source.limit; };
  // Adds the samples of one line; `error`: why it cannot be read, or "".
  const auto add_line = [&](const std::string& text, int64_t number, const std::string& error) {
    try {
      if (!error.empty()) throw data::InputError(error);
      for (EvalSample& sample : read_line(text, number, reader, encoder, vocab))
        if (!is_enough()) input.samples.push_back(std::move(sample));
    } catch (const data::InputError& bad) {
      std::cerr << source.input << ":" << number << ": " << printable(bad.what()) << "\n";
      ++input.bad_records;
    }
  };
  infer::LineReader lines(source.input);
  if (std::filesystem::is_regular_file(source.input)) {
    const data::MappedFile file(source.input);
    if (data::is_json_array(file.view())) {
      data::RecordTexts texts(file.view());
      for (data::RecordTexts::Record record; !is_enough() && texts.next(record);)
        add_line(std::string(record.text), record.line, record.error);
      return input;
    }
  }
  for (std::string text; !is_enough() && lines.next(text);) {
    if (infer::is_blank(text)) continue;
    add_line(
        text, lines.number(),
        lines.too_long() ? "expected at most " + std::to_string(lines.limit()) + " bytes, found more" : "");
  }
  return input;
}

}  // namespace

int64_t EvalSample::answer_begin() const {
  return std::find(supervised.begin(), supervised.end(), uint8_t{1}) - supervised.begin();
}

EvalInput read_eval_input(const EvalSource& source, const infer::PromptEncoder& encoder,
                          const model::Target& target) {
  const int64_t max_length = std::min(source.max_length, target.config().context);
  EvalInput input = std::filesystem::is_directory(source.input)
                        ? read_store(source, max_length, encoder.tokenizer(), target)
                        : read_lines(source, max_length, encoder, target.config().vocab);
  if (input.samples.empty())
    throw data::InputError(source.input + " holds nothing to measure on: give records or requests.");
  return input;
}

}  // namespace clover::train
