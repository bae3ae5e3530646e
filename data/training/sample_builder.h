#pragma once

#include <functional>
#include <string>
#include <vector>

#include "data/chat/chat_template.h"
#include "data/tokenizer/tokenizer.h"
#include "data/training/training_input.h"
#include "data/training/training_record.h"

namespace clover::data {

/// Turns a record into samples; it is the visitor of TrainingRecord::content.  The samples have the tokens
/// that the model sees when it generates: prompt and answer are tokenised separately.  A conversation is one
/// sample if the prompt of each turn begins with the tokens of the turns before it.  Where it does not (the
/// template drops earlier reasoning, or re-tokenising changes an answer), the turn begins a new sample.
class SampleBuilder {
 public:
  SampleBuilder(const Tokenizer& tokenizer, const ChatTemplate& chat_template);

  std::vector<TrainingSample> operator()(const ChatRecord& record) const;
  std::vector<TrainingSample> operator()(const CompletionRecord& record) const;
  std::vector<TrainingSample> operator()(const TextRecord& record) const;
  std::vector<TrainingSample> operator()(const TokensRecord& record) const;
  std::vector<TrainingSample> operator()(const BatchOutputRecord& record) const;

 private:
  /// For a request without messages: one sample for each prompt.
  std::vector<TrainingSample> samples_of_prompts(const BatchOutputRecord& record) const;

  const Tokenizer& tokenizer_;
  const ChatTemplate& chat_template_;
  /// Returns the text of the chat template's end token, "<|im_end|>" for ChatML; "" without one.  The
  /// template is rendered at the first call only.
  std::function<std::string()> end_text_;
};

/// A warning for the user if the template's {% generation %} blocks leave out the end token, since heads then
/// do not learn where answers end; otherwise "".
std::string masking_notice(const ChatTemplate& chat_template);

}  // namespace clover::data
