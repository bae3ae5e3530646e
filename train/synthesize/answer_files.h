#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "infer/batch/batch_output.h"
#include "infer/engine/engine.h"
#include "infer/requests/decode_flags.h"
#include "infer/requests/loaded_model.h"

namespace clover::train {

/// Answers files of requests one after the other with one engine, as `clover-infer batch` does: a file of
/// answers that is there is continued, and one that is whole is only read.
class AnswerFiles {
 public:
  /// `model`, which was loaded from `folders`, is borrowed.  InputError when the options do not fit the
  /// model.
  AnswerFiles(const infer::LoadedModel& model, const infer::DecodeFlags& flags,
              const infer::ModelOptions& folders);

  /// Writes `requests` to NAME.requests.jsonl and their answers to NAME.jsonl, and returns the records of the
  /// answers in the order of the requests.  `defaults`: sampling that a request does not give.  `label`: for
  /// the progress bar.  Throws Interrupted when the user stops it; what is answered by then is kept.
  /// InputError when the files there belong to other requests.
  std::vector<nlohmann::json> answer(const std::filesystem::path& name,
                                     const std::vector<nlohmann::json>& requests,
                                     const infer::SamplingParams& defaults, const std::string& label);

  /// What answering the files so far has taken, in earlier processes, too.
  const infer::AnsweringCost& cost() const { return cost_; }

 private:
  const infer::LoadedModel& model_;
  infer::DecodeFlags flags_;
  infer::EngineOptions options_;
  infer::Engine engine_;
  nlohmann::json answer_settings_;
  infer::AnsweringCost cost_;
};

}  // namespace clover::train
