#pragma once

#include <functional>
#include <string>
#include <vector>

#include "data/chat/chat_template.h"
#include "data/tokenizer/tokenizer.h"
#include "data/training/training_input.h"
#include "data/training/training_record.h"

namespace clover::data {

/// Turns records into samples whose tokens are those that the decoder reads and writes: the prompt's,
/// tokenised by itself, then the answer's.  Where a template writes what was said before in another way once
/// more follows, or the decoder read an earlier answer otherwise than it was said, the later turns are
/// samples of their own.
class SampleBuilder {
 public:
  SampleBuilder(const Tokenizer& tokenizer, const ChatTemplate& chat_template);

  std::vector<TrainingSample> operator()(const ChatRecord& record) const;
  std::vector<TrainingSample> operator()(const CompletionRecord& record) const;
  std::vector<TrainingSample> operator()(const TextRecord& record) const;
  std::vector<TrainingSample> operator()(const TokensRecord& record) const;
  std::vector<TrainingSample> operator()(const AnsweredRecord& record) const;

 private:
  std::vector<TrainingSample> answered_prompts(const AnsweredRecord& record) const;

  const Tokenizer& tokenizer_;
  const ChatTemplate& chat_template_;
  std::function<std::string()> end_text_;  // of an answer, "<|im_end|>" for ChatML; "" when it has none
};

/// One plain sentence on what samples of this template lack; "" where they lack nothing.
std::string notice_of(const ChatTemplate& chat_template);

}  // namespace clover::data
