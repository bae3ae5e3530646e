#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "data/chat/chat_template.h"
#include "data/tokenizer/tokenizer.h"
#include "infer/batch/batch_output.h"
#include "infer/requests/loaded_model.h"
#include "train/synthesize/answer_files.h"
#include "train/synthesize/near_duplicates.h"
#include "train/synthesize/openings.h"
#include "train/synthesize/synthesize.h"

namespace clover::train {

struct Conversation;

/// Conversations that the target makes in both roles, in rounds of many at a time.  What a round generates
/// is kept in the folder `parts`, so that an interrupted run goes on.  What it is given by reference must
/// outlive it.
class Conversations {
 public:
  Conversations(const SynthesizeOptions& options, const Openings& openings, const infer::LoadedModel& model,
                std::filesystem::path parts);

  /// Begins conversations in rounds until enough are kept, the first questions are used up, or too few are
  /// good.  InputError when none is kept.
  void run();

  /// Lines of the conversations that are kept, and of those held out.
  const std::string& kept_lines() const { return kept_lines_; }
  const std::string& held_out_lines() const { return held_out_lines_; }
  const SynthesisCounts& counts() const { return counts_; }
  int64_t answer_tokens() const { return answer_tokens_; }
  infer::AnsweringCost cost() const { return {files_.cost().seconds, answer_tokens_, files_.cost().joules}; }
  /// What the first request that failed says; empty: none has.
  const std::string& first_error() const { return first_error_; }

 private:
  /// A conversation that is kept.
  struct Kept {
    std::string line;
    double number;  // in [0, 1), which decides whether it is held out
  };

  int64_t size_of_next_round() const;
  void print_progress() const;
  std::string why_none_is_kept() const;
  void run_round(int64_t round, int64_t size);
  void add_first_questions(std::vector<Conversation>& conversations);
  template <class RequestOf>
  void add_turns(std::vector<Conversation>& conversations, const std::string& role,
                 const std::filesystem::path& name, const infer::SamplingParams& defaults,
                 const std::string& label, const RequestOf& request_of);
  nlohmann::json user_request(const Conversation& conversation) const;
  nlohmann::json answer_request(const Conversation& conversation) const;
  void add_turn(Conversation& conversation, const std::string& role, const nlohmann::json& record);
  void take(const Conversation& conversation);
  void split();
  std::string id_of(const Conversation& conversation) const;

  const SynthesizeOptions& options_;
  const std::vector<std::string>& topics_;
  const std::vector<std::string>& first_questions_;
  const data::Tokenizer& tokenizer_;
  data::ChatTemplate chat_template_;
  std::filesystem::path parts_;
  infer::SamplingParams user_sampling_;  // of what a user's request does not say: nothing but the seed is set
  AnswerFiles files_;
  NearDuplicates user_turns_;
  SynthesisCounts counts_;
  int64_t answer_tokens_ = 0;  // of the conversations that are kept
  std::string first_error_;
  std::vector<Kept> kept_;
  std::string kept_lines_, held_out_lines_;
};

}  // namespace clover::train
