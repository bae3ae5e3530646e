#pragma once

#include <functional>
#include <string>
#include <vector>

#include "data/chat/chat_template.h"
#include "data/tokenizer/tokenizer.h"
#include "data/training/training_input.h"
#include "data/training/training_record.h"

namespace clover::data {

/// Turns records into samples with the tokens that the model sees when it generates: prompt and answer are
/// tokenised separately.  A conversation is one sample if each turn's prompt begins with the tokens before
/// it.  Where it does not (the template drops earlier reasoning, or re-tokenising changes an answer), a later
/// turn becomes a sample of its own.
class SampleBuilder {
 public:
  SampleBuilder(const Tokenizer& tokenizer, const ChatTemplate& chat_template);

  std::vector<TrainingSample> operator()(const ChatRecord& record) const;
  std::vector<TrainingSample> operator()(const CompletionRecord& record) const;
  std::vector<TrainingSample> operator()(const TextRecord& record) const;
  std::vector<TrainingSample> operator()(const TokensRecord& record) const;
  std::vector<TrainingSample> operator()(const BatchOutputRecord& record) const;

 private:
  std::vector<TrainingSample> samples_of_prompts(const BatchOutputRecord& record) const;

  const Tokenizer& tokenizer_;
  const ChatTemplate& chat_template_;
  std::function<std::string()> end_text_;  // the format's end token, "<|im_end|>" for ChatML; "" without one
};

/// A sentence for the user when this template's {% generation %} blocks leave out the end token; otherwise
/// "".
std::string masking_notice(const ChatTemplate& chat_template);

}  // namespace clover::data
